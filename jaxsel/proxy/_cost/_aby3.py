"""Messages of ABY3 of SPU 0.9.5: two parties, a helper, replicated shares.

Of three parties each holds two of three shares. A product costs its result alone: every
party sends one word to the one before it. The rest follows from that and from four
more gates, in bytes that all parties together send for an element:

| gate | bytes | messages |
|---|--:|--:|
| product, before it is cut back (`MulAA`, `MatMulAA`) | 24 | 3 |
| cutting back a product (`TruncAPr2`) | 28 | 5 |
| sign of a number (`MsbA2B`) | 108 | 24 |
| a number times a bit (`MulA1B`) | 64 | 8 |
| a bit of many that are joined by "and" | 3 | 3 |
| an owner's number becomes shares (`V2A`) | 16 | 2 |

These are of 64 bits; with 128 a word is twice as long. Gates built from others are
counted whole, as runs of three parties counted it, at 22 fraction bits and at 40 with
128; the tests compare each. With fewer bits a logarithm alone takes less: 64 bytes a
row and bit. In some gates a public draw assigns the parties' roles: of each party an
expectation is known, a third of the sum. Products with public numbers that the compiler
puts together are counted apart: up to 5 % of a few proxies.
"""

from __future__ import annotations

import dataclasses
import math

from ._operands import Operation, elements, joins, products
from ._traffic import Traffic

_WORDS = {64: 1, 128: 2}  # of 64 bits, that a number has in each ring
PRODUCT, CUT = 52, 28  # bytes for an element: a product with its cut, a cut alone
ZERO = 24  # bytes for a public number that becomes shares

# By the bits of the ring. Bytes for an element, messages of a call, and latencies one
# after the other. These are as measured over a link of 100 ms: a quarter more than the
# messages that must follow each other; with 128 bits they grow as the messages do.
_ELEMENTWISE: dict[int, dict[str, tuple[int, int, int]]] = {
    64: {
        "nonnegative": (108, 24, 9),
        "select": (64, 8, 4),
        "relu": (172, 32, 13),
        "abs": (164, 31, 12),
        "exp": (1684, 206, 73),
        "reciprocal": (1336, 152, 55),
        "inv_sqrt": (1548, 142, 51),
        "gelu": (3232, 392, 140),
    },
    128: {
        "nonnegative": (204, 27, 10),
        "select": (128, 8, 4),
        "relu": (332, 35, 14),
        "abs": (316, 34, 13),
        "exp": (3524, 218, 77),
        "reciprocal": (3108, 180, 65),
        "inv_sqrt": (3432, 154, 55),
        "gelu": (7056, 432, 154),
    },
}
_PRODUCTS = {"scale": (CUT, 5, 3), "mul": (PRODUCT, 8, 4), "square": (PRODUCT, 8, 4)}

# Of rows: bytes for each number and for each row; messages and latencies, and those
# that each halving of a row adds; of "max", that each of its numbers adds.
_ROWWISE: dict[int, dict[str, tuple[int, int, int, int, int, int]]] = {
    64: {
        "softmax": (3244, -172, 369, 32, 140, 10),
        "log_softmax": (1856, 2608, 329, 32, 127, 10),
        "max": (648, -172, 20, 32, 12, 14),
    },
    128: {
        "softmax": (7068, -332, 409, 35, 155, 11),
        "log_softmax": (3856, 7772, 350, 35, 135, 11),
        "max": (1368, -332, 23, 35, 13, 15),
    },
}


def traffic(operation: Operation, samples: int, ring: int = 64) -> Traffic:
    """Return the traffic of an operation on a batch.

    Args:
        operation: Of `owned_schedule`.
        samples: Samples of the batch.
        ring: Bits of the ring, 64 or 128.
    """
    kind, words = operation.kind, _WORDS[ring]
    if kind == "zero":
        return _even(words * ZERO, 3, 1)
    if kind == "share":
        total = _shared(words * elements(operation, samples))
        return dataclasses.replace(total, waits=1.0)
    if kind == "matmul":
        batch, rows, inner, columns = products(operation, samples)
        # SPU makes the products of a batch one after the other.
        size = words * PRODUCT * batch * rows * columns
        total = _even(size, 8 * batch, 4 * batch)
        sizes = batch * rows * inner, batch * inner * columns
        calls = batch
    else:
        count = elements(operation, samples)
        total, calls = _of_numbers(operation, count, ring), 1
        sizes = (count,) * len(operation.shapes)
    for owner, size in zip(operation.owners, sizes, strict=False):
        if owner is not None:
            total += _shared(words * size, calls)
    return total


def _of_numbers(operation: Operation, count: int, ring: int) -> Traffic:
    kind, words = operation.kind, _WORDS[ring]
    if kind == "powers":
        times = operation.degree - 1
        return _even(words * PRODUCT * count * times, 8 * times, 4 * times)
    if kind == "all":
        length = operation.shapes[0][-1]
        levels = joins(length)
        return _even(3 * (length - 1) * (count // length), 3 * levels, levels)
    if kind in _ROWWISE[ring]:
        length = operation.shapes[0][-1]
        return _of_rows(kind, count // length, length, ring)
    if kind in _PRODUCTS:
        size, messages, waits = _PRODUCTS[kind]
        return _even(words * size * count, messages, waits)
    size, messages, waits = _ELEMENTWISE[ring][kind]
    return _even(size * count, messages, waits)


def _of_rows(kind: str, rows: int, length: int, ring: int) -> Traffic:
    per_number, per_row, messages, more, waits, longer = _ROWWISE[ring][kind]
    times = length if kind == "max" else math.ceil(math.log2(length))
    size = (per_number * length + per_row) * rows
    if kind != "max":
        size += _WORDS[ring] * ZERO
    return _even(size, messages + more * times, waits + longer * times)


def _even(total: float, messages: float, waits: float) -> Traffic:
    third = (total / 3,) * 3
    return Traffic(messages / 3, waits, third, third)


def _shared(words: int, calls: int = 1) -> Traffic:
    """Return the traffic of turning the data owner's numbers into shares.

    Without latency: beside a product these messages overlap with others.
    """
    size = 8 * words
    # The data owner, rank 1, sends each of the two others a share.
    return Traffic(2 * calls / 3, 0.0, (0, 2 * size, 0), (size, 0, size))
