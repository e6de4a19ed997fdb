"""Messages of choosing the highest scores, by engine and by what is opened."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from . import _cheetah, _primitives as primitives
from ._models import MODELS
from ._operands import Operation
from ._traffic import EngineName, Traffic

_COMPARED = primitives.COMPARE + primitives.OPEN

_SHORTEST = 64  # comparisons that SPU's parties lengthen a pass to, if n is more
_ROW = 32  # numbers at most of a row of a network of switches
_FRAME = 58  # bytes of a message with shares, beside them
# From the sizes of passes to their lengths: over an octave, b ln(b / a) add up to ...
_LENGTHENED = 2 * sum(b / 8 * math.log(b / (b - 1)) for b in (5, 6, 7, 8))


def chosen(
    engine: EngineName,
    leak: str,
    n: int,
    k: int,
    passes: float,
    comparisons: float,
    *,
    at_most: bool = False,
) -> Traffic:
    """Return what a choice sends, expected or at most.

    Args:
        engine: The engine.
        leak: "rank" or "set".
        n: Scores.
        k: How many are chosen.
        passes: Batches of comparisons.
        comparisons: In all of them.
        at_most: Whether it may send no more, however they are spread over the passes.
    """
    if engine == "crypten":
        return Traffic.equal(
            _COMPARED.rounds * passes, _COMPARED.bytes * comparisons / 2
        )
    if leak == "set":
        return _SETS[engine](n, k, passes, comparisons, at_most)
    padded = _padded(n, passes, comparisons, at_most)
    return _compared(engine, passes, padded) + _revealed(engine, passes, padded)


def _padded(n: int, passes: float, comparisons: float, at_most: bool) -> float:
    """Return how many numbers SPU's parties compare: of few lengths, of few programs.

    A pass is lengthened to n halved so often, or 7, 6 or 5 eighths of that, but to 64
    at least. Sizes are taken as spread evenly by their logarithm: in between two
    lengths a and b, the mean size is (b - a) / ln(b / a).
    """
    if not passes:
        return 0.0
    shortest = n
    while shortest // 2 >= _SHORTEST:
        shortest = -(-shortest // 2)
    parts = (-(-shortest * eighths // 8) for eighths in (5, 6, 7))
    shortest = next((part for part in parts if part >= _SHORTEST), shortest)
    rest, later = comparisons - (n - 1), passes - 1  # the first compares n - 1, as n
    if at_most or n == 2:
        return n + 5 / 4 * rest + (shortest + 1) * later
    later *= math.log(shortest) / math.log(n)
    rest -= later * (shortest - 1) / math.log(shortest)
    return n + _LENGTHENED * max(0.0, rest) + shortest * later


def _compared(engine: EngineName, passes: float, comparisons: float) -> Traffic:
    """Return passes of comparisons, however many numbers are in each."""
    compare = Operation("choice", "compare", "nonnegative", ((1,),))
    one = MODELS[engine].traffic(compare, 1)
    sent = tuple(size * comparisons for size in one.sent)
    received = tuple(size * comparisons for size in one.received)
    return Traffic(one.rounds * passes, one.waits * passes, sent, received)


def outside_count(engine: EngineName, n: int) -> Traffic:
    """Return the traffic of counting samples with numbers beyond their bounds.

    At most: each outcome becomes a number as if it were multiplied by one.
    """
    summed = Operation("scores", "outside", "select", ((1,),))
    bits = MODELS[engine].traffic(summed, n)
    return _compared(engine, 1, n) + bits + _revealed(engine, 1, 1)


def _revealed(engine: EngineName, passes: float, numbers: float) -> Traffic:
    """Return what it takes to open bits to all parties."""
    if engine == "spu-cheetah":
        return Traffic.equal(passes, 8 * numbers + _FRAME * passes)
    each = 2 * (2 * numbers + _FRAME * passes)
    return Traffic(2 * passes, passes, (each,) * 3, (each,) * 3)


def _set_of_two(
    n: int, k: int, passes: float, comparisons: float, at_most: bool
) -> Traffic:
    """Return two shuffles by switches, and comparisons whose outcomes are opened."""
    by_rank = functools.partial(chosen, "spu-cheetah", "rank", at_most=at_most)
    found = by_rank(n, k, passes, comparisons) + Traffic.equal(1, 8 * k + _FRAME)
    layers = switches(n)
    shared = Traffic.equal(2, sum(layers) / 8 + _FRAME)
    return sum((_cheetah.switched(size) * 2 for size in layers), found + shared)


def switches(n: int) -> list[int]:
    """Return how many switches each layer of Beneš's network for n numbers has.

    The numbers are filled up to rows of 17 to 32, or fewer in one row. Each half of
    them goes to a network of its own, of an odd number one more to the second, and they
    meet again behind these; a network of two is one switch.
    """
    rows = 1
    while -(-n // rows) > _ROW:
        rows *= 2
    width = -(-n // rows)
    levels = rows.bit_length() - 1
    inward = [rows * width // 2] * levels
    outward = list(inward)
    sizes = {width: rows}
    while max(sizes) > 1:
        inward.append(sum(size // 2 * many for size, many in sizes.items()))
        outward.append(sum(s // 2 * many for s, many in sizes.items() if s > 2))
        halves: dict[int, int] = {}
        for size, many in sizes.items():
            for half in (size // 2, size - size // 2):
                halves[half] = halves.get(half, 0) + many
        sizes = halves
    return inward + outward[-2::-1]


def _set_of_three(
    engine: EngineName,
    words: int,
    n: int,
    k: int,
    passes: float,
    comparisons: float,
    at_most: bool,
) -> Traffic:
    """Return a shuffle by three permutations, and comparisons that are opened."""
    del at_most  # no pass is lengthened
    third = words * _SHUFFLED * n / 3
    shuffled = Traffic(2, 4, (third,) * 3, (third,) * 3)
    opened = Traffic.equal(passes, comparisons, parties=3)
    rows = Traffic.equal(2, 2 * (words * 16 * k + _FRAME), parties=3)
    return shuffled + opened + rows + _compared(engine, passes, comparisons)


_SHUFFLED = 32  # bytes for a score that all parties together send: measured
_SETS: dict[EngineName, Callable[[int, int, float, float, bool], Traffic]] = {
    "spu-cheetah": _set_of_two,
    "spu-aby3": functools.partial(_set_of_three, "spu-aby3", 1),
    "spu-aby3-128": functools.partial(_set_of_three, "spu-aby3-128", 2),
}
