"""Rounds and payload of the primitives of stock CrypTen 0.4.1 between two parties.

Counted as its communicator counts: a round is a call of the communicator; the payload
is sent plus received by one party, 8 bytes each way for every ring element that is
opened. Sharing an input costs nothing (the masks come from seeds agreed upon
before), nor does what is linear in secrets: sums, public factors, truncation. The
dealer's messages are apart.

Everything is built from two steps. A product of secrets (Beaver) opens both operands at
their own sizes, in one round; a square opens its operand once. The tests compare every
formula with runs of two parties.
"""

from __future__ import annotations

import dataclasses
import math

WORD = 16  # bytes to open one ring element: 8 sent and 8 received
PRODUCT = 2 * WORD  # of two elements


@dataclasses.dataclass(frozen=True)
class Count:
    """Rounds, and payload bytes sent plus received by each party."""

    rounds: int
    bytes: int

    def __add__(self, other: Count) -> Count:
        return Count(self.rounds + other.rounds, self.bytes + other.bytes)

    def __mul__(self, times: int) -> Count:
        """Return the count of this many repetitions, one after the other."""
        return Count(self.rounds * times, self.bytes * times)

    def on(self, elements: int) -> Count:
        """Return the count for this many elements at once: the rounds stay."""
        return Count(self.rounds, self.bytes * elements)


OPEN = SQUARE = Count(1, WORD)
MUL = AND = Count(1, PRODUCT)

# The sum of the two shares' bits: one AND, then six levels of a carry tree, each an AND
# of two words; one opening brings the sign bit back to arithmetic shares.
COMPARE = AND + Count(1, 2 * PRODUCT) * 6 + OPEN
EQUAL = AND * 6 + OPEN
RELU = ABS = COMPARE + MUL
SELECT = MUL * 2

EXP = SQUARE * 8  # (1 + x / 2^8)^(2^8)
RECIPROCAL = EXP + (SQUARE + MUL) * 10  # of positive numbers, Newton-Raphson
INV_SQRT = EXP + (SQUARE + MUL * 2) * 3  # Newton-Raphson
# The sign, the exponential of the absolute value, three Newton-Raphson steps from a
# public number (the first is linear), and a choice by the sign.
SIGMOID = COMPARE + MUL + EXP + (SQUARE + MUL) * 2 + SELECT
GELU = SQUARE + MUL + SIGMOID + MUL  # x · sigmoid(1.5958 (x + 0.044715 x³))


def powers(degree: int) -> Count:
    """Return the count of x², ..., x^degree, of one element: a doubling tree."""
    count = SQUARE if degree > 1 else Count(0, 0)
    terms = 2
    while terms < degree:
        count += Count(1, WORD * (terms + 1))
        terms *= 2
    return count


LOG = EXP + (MUL + EXP + powers(8)) * 2  # Householder's iterations, of order 8


def _random_index(length: int) -> Count:
    """Return the count of choosing one of the largest by lot, as `max` does."""
    sixteen_bits = OPEN.on(16)
    return sixteen_bits + MUL + COMPARE.on(length)


def maximum(length: int) -> Count:
    """Return the count of the largest of a row, and of its place, found as well.

    Halves are compared floor(ln(length)) times; the rest is compared pairwise.
    """
    if length < 2:
        raise ValueError(f"length must be at least 2, got {length}")
    count, remaining = Count(0, 0), length
    for _ in range(int(math.log(length))):
        count += (COMPARE + SELECT).on(remaining // 2)
        remaining -= remaining // 2
    count += COMPARE.on(remaining * (remaining - 1))
    # A tree of products: the largest of a row wins all of its comparisons.
    factors = remaining - 1
    while factors > 1:
        count += MUL.on(remaining * (factors // 2))
        factors -= factors // 2
    count += _random_index(remaining) + MUL.on(remaining)
    return count + EQUAL.on(length) + _random_index(length)


def softmax(length: int) -> Count:
    """Return the count of the softmax of one row."""
    if length == 1:
        return Count(0, 0)
    scale = Count(1, WORD * (length + 1))
    return maximum(length) + EXP.on(length) + RECIPROCAL + scale


def log_softmax(length: int) -> Count:
    """Return the count of the logarithm of the softmax of one row, at least 2 long."""
    return maximum(length) + EXP.on(length) + LOG
