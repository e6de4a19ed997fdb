"""Messages of ABY3 of SPU 0.9.5: two parties, a helper, 64-bit replicated shares.

Of three parties each holds two of three shares. A product costs its result alone: every
party sends one word to the one before it. The rest follows from that and from four
more gates, in bytes that all parties together send for an element:

| gate | bytes | messages |
|---|--:|--:|
| product, before it is cut back (`MulAA`, `MatMulAA`) | 24 | 3 |
| cutting back a product (`TruncAPr2`) | 28 | 5 |
| sign of a number (`MsbA2B`) | 108 | 24 |
| a number times a bit (`MulA1B`) | 64 | 8 |
| an owner's number becomes shares (`V2A`) | 16 | 2 |

What is built from them is counted whole, as runs of three parties counted it, at 18
fraction bits; the tests compare each. In some gates a public draw says which party does
what: of each party an expectation is known, a third of the sum. Products with public
numbers that the compiler puts together are counted apart: up to 5 % of a few proxies.
"""

from __future__ import annotations

import dataclasses
import math

from ._operands import Operation, elements, products
from ._traffic import Traffic

PRODUCT, CUT = 52, 28  # bytes for an element: a product with its cut, a cut alone
ZERO = 24  # bytes for a public number that becomes shares

# Bytes for an element, messages of a call, and latencies one after the other. These are
# as measured over a link of 100 ms: a quarter more than the messages that must follow
# each other.
_ELEMENTWISE: dict[str, tuple[int, int, int]] = {
    "scale": (CUT, 5, 3),
    "mul": (PRODUCT, 8, 4),
    "square": (PRODUCT, 8, 4),
    "nonnegative": (108, 24, 9),
    "relu": (172, 32, 13),
    "abs": (164, 31, 12),
    "exp": (1684, 206, 73),
    "reciprocal": (1336, 152, 55),
    "inv_sqrt": (1548, 142, 51),
    "gelu": (3232, 392, 140),
}


def traffic(operation: Operation, samples: int) -> Traffic:
    """Return what an operation on a batch sends.

    Args:
        operation: Of `owned_schedule`.
        samples: Of the batch.
    """
    kind = operation.kind
    if kind == "zero":
        return _even(ZERO, 3, 1)
    if kind == "share":
        found = _shared(elements(operation, samples))
        return dataclasses.replace(found, waits=1.0)
    if kind == "matmul":
        batch, left, inner, right = products(operation, samples)
        found = _even(PRODUCT * batch * left * right, 8 * batch, 4 * batch)
        sizes = batch * left * inner, batch * inner * right
        calls = batch
    else:
        count = elements(operation, samples)
        found, calls = _of_numbers(operation, count), 1
        sizes = (count,) * len(operation.shapes)
    for owner, size in zip(operation.owners, sizes, strict=False):
        if owner is not None:
            found += _shared(size, calls)
    return found


def _of_numbers(operation: Operation, count: int) -> Traffic:
    kind = operation.kind
    if kind == "powers":
        times = operation.degree - 1
        return _even(PRODUCT * count * times, 8 * times, 4 * times)
    if kind in ("softmax", "log_softmax", "max"):
        length = operation.shapes[0][-1]
        return _of_rows(kind, count // length, length)
    size, messages, waits = _ELEMENTWISE[kind]
    return _even(size * count, messages, waits)


def _of_rows(kind: str, rows: int, length: int) -> Traffic:
    halvings = math.ceil(math.log2(length))
    if kind == "softmax":
        size = (3244 * length - 172) * rows + ZERO
        return _even(size, 369 + 32 * halvings, 140 + 10 * halvings)
    if kind == "log_softmax":
        size = (1856 * length + 2352) * rows + ZERO
        return _even(size, 329 + 32 * halvings, 127 + 10 * halvings)
    size = 648 * length - 172  # the largest, one after the other, and where it stands
    return _even(size * rows, 20 + 32 * length, 12 + 14 * length)


def _even(total: float, messages: float, waits: float) -> Traffic:
    third = (total / 3,) * 3
    return Traffic(messages / 3, waits, third, third)


def _shared(count: int, calls: int = 1) -> Traffic:
    """Return what it takes for the data owner's numbers to become shares.

    Beside a product they are on the way while others work.
    """
    word = 8 * count
    return Traffic(2 * calls / 3, 0.0, (0, 2 * word, 0), (word, 0, word))
