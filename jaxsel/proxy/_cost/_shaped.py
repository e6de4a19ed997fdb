"""Operands that are shapes alone: a secure run without numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Self

from jaxsel.proxy.families._place import Call, Shape

N = -1
"""Stands for the samples of a batch, in front."""

Index = int | slice | EllipsisType
"""An index along one axis, or an ellipsis for the other axes."""


class Shaped:
    """An operand of which only the shape is known.

    It has the methods that families' steps call, and so says what an engine's tensors
    must have: those of torch and of CrypTen do.
    """

    def __init__(self, *shape: int):
        self.shape: Shape = shape

    def like(self, *shape: int) -> Self:
        """Return an operand of another shape, and alike in all else."""
        return type(self)(*shape)

    def __add__(self, other: Any) -> Self:
        return self.like(*broadcast(self.shape, _shape(other)))

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__

    def __truediv__(self, number: float) -> Self:
        del number
        return self

    def __neg__(self) -> Self:
        return self

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Self:
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in index:
            position = index.index(Ellipsis)
            free = len(self.shape) - len(index) + 1
            index = (*index[:position], *[slice(None)] * free, *index[position + 1 :])
        index += (slice(None),) * (len(self.shape) - len(index))
        return self.like(
            *(
                size if selector == slice(None) else len(range(*selector.indices(size)))
                for size, selector in zip(self.shape, index, strict=True)
                if isinstance(selector, slice)
            )
        )

    def sum(self, axis: int, keepdim: bool = False) -> Self:
        shape = list(self.shape)
        shape[axis : axis % len(shape) + 1] = [1] if keepdim else []
        return self.like(*shape)

    def reshape(self, *shape: int) -> Self:
        """Return these numbers in another shape, -1 in front for the samples."""
        if math.prod(shape[1:]) != math.prod(self.shape[1:]):
            raise ValueError(f"shape must be one of {self.shape}, got {shape}")
        return self.like(*shape)

    def transpose(self, first: int, second: int) -> Self:
        shape = list(self.shape)
        shape[first], shape[second] = shape[second], shape[first]
        return self.like(*shape)

    def unsqueeze(self, axis: int) -> Self:
        return self.like(*self.shape[:axis], 1, *self.shape[axis:])

    def squeeze(self, axis: int) -> Self:
        return self.like(*self.shape[:axis], *self.shape[axis + 1 :])


def cat(parts: Sequence[Shaped]) -> Shaped:
    """Join operands along the last axis."""
    return Shaped(*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))


def outcome(call: Call) -> Shaped | tuple[Shaped, ...]:
    """Return the result of an operation; of "powers" and "max" it is a tuple."""
    shapes = [operand.shape for operand in call.operands]
    if call.kind == "matmul":
        (*first, rows, inner), (*second, same, columns) = shapes
        if inner != same:
            raise ValueError(f"{call.place}.{call.name} must fit, got {shapes}")
        return Shaped(*broadcast(tuple(first), tuple(second)), rows, columns)
    if call.kind == "mul":
        return Shaped(*broadcast(*shapes))
    if call.kind == "all":
        return Shaped(*shapes[0][:-1])
    if call.kind == "powers":
        return (Shaped(*shapes[0]),) * call.degree
    if call.kind == "max":
        return Shaped(*shapes[0][:-1], 1), Shaped(*shapes[0])
    return Shaped(*shapes[0])


def _shape(value: Any) -> Shape:
    return value.shape if isinstance(value, Shaped) else ()


def broadcast(first: Shape, second: Shape) -> Shape:
    """Return the shape of a sum of two, as NumPy has it; -1 stands for the samples."""
    rank = max(len(first), len(second))
    pairs = zip(
        (1,) * (rank - len(first)) + first,
        (1,) * (rank - len(second)) + second,
        strict=True,
    )
    sizes: list[int] = []
    for a, b in pairs:
        if 1 not in (a, b) and a != b:
            raise ValueError(f"shapes must fit, got {first} and {second}")
        sizes.append(b if a == 1 else a)
    return tuple(sizes)
