"""Operands of a shape and an owner alone, from which SPU's engines are counted.

CrypTen adds and scales shares at no cost. SPU cuts a product with a public number back
to its digits, which the parties do together; an owner's array that never left them
becomes shares where it meets another's; and a sum of shares starts from a shared zero,
made once. These are noted as operations of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from jaxsel.proxy.families._place import Call, Kind, Shape

from ._shaped import Shaped, broadcast, outcome

Note = Callable[[Kind, Shape, int | None], None]
"""Gets "scale", "share" or "zero", the shape, and the owner's rank or None."""


class Owned(Shaped):
    """A shape and its owner's rank; None for a shared array.

    Attributes:
        owner: That rank.
        note: Called with each operation that costs.
        factor: The public number that its array has yet to be multiplied by: several
            become one product.
    """

    def __init__(self, *shape: int, owner: int | None, note: Note):
        super().__init__(*shape)
        self.owner, self.note, self.factor = owner, note, 1.0

    def like(self, *shape: int) -> Self:
        return type(self)(*shape, owner=self.owner, note=self.note)

    def shared(self, *shape: int) -> Self:
        """Return shares of another shape."""
        return type(self)(*shape, owner=None, note=self.note)

    def __add__(self, other: Any) -> Self:
        if not isinstance(other, Owned):
            return self
        shape = broadcast(self.shape, other.shape)
        if self.owner == other.owner:
            return self.like(*shape)
        for operand in (self, other):
            if operand.owner is not None:  # it is spread to the sum's shape before
                self.note("share", shape, operand.owner)
        return self.shared(*shape)

    __radd__ = __sub__ = __rsub__ = __add__

    def __mul__(self, number: float) -> Self:
        result = self.like(*self.shape)
        result.factor = self.factor * number
        if self.owner is None:
            # Factors in a row are one product: only further parts of it cost.
            more = len(public_factors(result.factor)) - len(public_factors(self.factor))
            for _ in range(more):
                self.note("scale", self.shape, None)
        return result

    def sum(self, axis: int, keepdim: bool = False) -> Self:
        if self.owner is None:
            self.note("zero", (), None)
        return super().sum(axis, keepdim)

    __rmul__ = __mul__

    def __truediv__(self, number: float) -> Self:
        return self * (1 / number)


_SMALLEST, _PIECE = -12, 7
"""Exponents: of the smallest power that is one factor, and of the parts of others."""


def public_factors(number: float) -> tuple[float, ...]:
    """Return `number` as factors that shares are multiplied by in turn.

    In fixed point a small number has few digits. It is taken as one of at least a half,
    and a power of two. A factor of 1 is left out.

    Args:
        number: Public factor of the shares; both parties know it.

    Returns:
        Factors with the product `number`: none, one, or a fraction and a power of two;
        powers that few fraction bits do not hold are products of several.
    """
    fraction, exponent = math.frexp(number)
    if number == 1:
        return ()
    # Numbers from 1/8 on keep digits enough.
    if number == 0 or exponent > -3:
        return (number,)
    first: tuple[float, ...] = (fraction,)
    if abs(fraction) == 0.5:  # a power of two itself
        first, exponent = (), exponent - 1
    powers: list[float] = []
    # A power down to 2^_SMALLEST is one factor; others are split by 2^-_PIECE.
    while exponent < (_SMALLEST if not powers else -_PIECE):
        powers.append(2.0**-_PIECE)
        exponent += _PIECE
    powers.append(2.0**exponent)
    if not first:
        powers[0] = math.copysign(powers[0], number)
    return (*first, *powers)


def cat(parts: Sequence[Owned]) -> Owned:
    """Join operands along the last axis."""
    columns = sum(part.shape[-1] for part in parts)
    owners = {part.owner for part in parts}
    shape = (*parts[0].shape[:-1], columns)
    if len(owners) == 1:
        return parts[0].like(*shape)
    for part in parts:
        if part.owner is not None:
            part.note("share", part.shape, part.owner)
    return parts[0].shared(*shape)


def result_of(call: Call) -> Any:
    """Return the result of an operation: one owner's if all operands are."""
    operands: tuple[Owned, ...] = call.operands
    owners = {operand.owner for operand in operands}
    kept = operands[0].like if len(owners) == 1 else operands[0].shared
    result = outcome(call)
    if isinstance(result, tuple):
        return tuple(kept(*part.shape) for part in result)
    return kept(*result.shape)
