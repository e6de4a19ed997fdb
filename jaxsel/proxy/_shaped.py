"""Operands that are shapes alone: a secure run without numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .families._place import Call, Shape

N = -1
"""Stands for the samples of a batch, in front."""


class Shaped:
    """An operand of which only the shape is known.

    It has the methods that families' steps call, and so says what an engine's tensors
    must have: those of torch and of CrypTen do.
    """

    def __init__(self, *shape: int):
        self.shape: Shape = shape

    def __add__(self, other: Any) -> Shaped:
        return Shaped(*_broadcast(self.shape, _shape(other)))

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__

    def __truediv__(self, number: float) -> Shaped:
        del number
        return self

    def __neg__(self) -> Shaped:
        return self

    def __getitem__(self, index: Any) -> Shaped:
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in index:
            at = index.index(Ellipsis)
            free = len(self.shape) - len(index) + 1
            index = (*index[:at], *[slice(None)] * free, *index[at + 1 :])
        index += (slice(None),) * (len(self.shape) - len(index))
        return Shaped(
            *(
                size if each == slice(None) else len(range(*each.indices(size)))
                for size, each in zip(self.shape, index, strict=True)
                if isinstance(each, slice)
            )
        )

    def sum(self, axis: int, keepdim: bool = False) -> Shaped:
        shape = list(self.shape)
        shape[axis : axis % len(shape) + 1] = [1] if keepdim else []
        return Shaped(*shape)

    def reshape(self, *shape: int) -> Shaped:
        """Return these numbers in another shape, -1 in front for the samples."""
        if math.prod(shape[1:]) != math.prod(self.shape[1:]):
            raise ValueError(f"shape must be one of {self.shape}, got {shape}")
        return Shaped(*shape)

    def transpose(self, first: int, second: int) -> Shaped:
        shape = list(self.shape)
        shape[first], shape[second] = shape[second], shape[first]
        return Shaped(*shape)

    def unsqueeze(self, axis: int) -> Shaped:
        return Shaped(*self.shape[:axis], 1, *self.shape[axis:])

    def squeeze(self, axis: int) -> Shaped:
        return Shaped(*self.shape[:axis], *self.shape[axis + 1 :])


def cat(parts: Sequence[Shaped]) -> Shaped:
    """Join operands along the last axis."""
    return Shaped(*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))


def outcome(call: Call) -> Any:
    """Return the result of an operation; of "powers" and "max" it is a tuple."""
    shapes = [operand.shape for operand in call.operands]
    if call.kind == "matmul":
        (*left, rows, inner), (*right, same, columns) = shapes
        if inner != same:
            raise ValueError(f"{call.place}.{call.name} must fit, got {shapes}")
        return Shaped(*_broadcast(tuple(left), tuple(right)), rows, columns)
    if call.kind == "mul":
        return Shaped(*_broadcast(*shapes))
    if call.kind == "powers":
        return (Shaped(*shapes[0]),) * call.degree
    if call.kind == "max":
        return Shaped(*shapes[0][:-1], 1), Shaped(*shapes[0])
    return Shaped(*shapes[0])


def _shape(value: Any) -> Shape:
    return value.shape if isinstance(value, Shaped) else ()


def _broadcast(first: Shape, second: Shape) -> Shape:
    rank = max(len(first), len(second))
    pairs = zip(
        (1,) * (rank - len(first)) + first,
        (1,) * (rank - len(second)) + second,
        strict=True,
    )
    sizes = []
    for a, b in pairs:
        if 1 not in (a, b) and a != b:
            raise ValueError(f"shapes must fit, got {first} and {second}")
        sizes.append(b if a == 1 else a)
    return tuple(sizes)
