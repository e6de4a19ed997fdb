"""Messages of choosing the highest scores, by engine and by leak."""

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
_COMMITTED = 127  # bytes of a commitment and its opening, beside a share
# From the sizes of passes to their lengths: over an octave, b ln(b / a) add up to ...
# ... and sizes to 1/2: comparisons grow by the ratio.
_LENGTHENED = 2 * sum(b / 8 * math.log(b / (b - 1)) for b in (5, 6, 7, 8))


def chosen(
    engine: EngineName,
    leak: str,
    n: int,
    k: int,
    passes: float,
    comparisons: float,
    *,
    risk: float | None = None,
) -> Traffic:
    """Return the traffic of a choice: expected, or an upper bound.

    Args:
        engine: The engine.
        leak: "rank" or "set".
        n: Scores.
        k: How many are chosen.
        passes: Batches of comparisons.
        comparisons: In all of them.
        risk: Probability that more is sent, however comparisons are spread over the
            passes, and again after a second shuffle; None for the expectation.
    """
    if engine == "crypten":
        return Traffic.equal(
            _COMPARED.rounds * passes, _COMPARED.bytes * comparisons / 2
        )
    if leak == "set":
        return _SETS[engine](n, k, passes, comparisons, risk)
    padded = _padded(n, passes, comparisons, risk is not None)
    return _compared(engine, passes, padded) + _opened(engine, passes, padded / 8)


def bounds(n: int, risk: float) -> tuple[int, int]:
    """Return passes and comparisons of a choice of n, each exceeded with this risk.

    A random pivot leaves at most max(U, 1 - U) of the scores, U uniform. With p-th
    moment r of that fraction, m passes leave a score with probability at most n^p r^m
    (Markov), and the comparisons have a p-norm of at most n / (1 - r^(1/p))
    (Minkowski). The best p of 64 is taken.
    """
    passes, comparisons = n, n * (n - 1) // 2  # whatever the draw
    for p in range(1, 65):
        moment = 2 * (1 - 2.0 ** -(p + 1)) / (p + 1)
        # Markov: n^p moment^m = risk; Minkowski: a geometric series of p-norms.
        m = (p * math.log(n) - math.log(risk)) / -math.log(moment)
        most = n * risk ** (-1 / p) / (1 - moment ** (1 / p))
        passes = min(passes, math.ceil(m))
        comparisons = min(comparisons, math.ceil(most))
    return passes, comparisons


def harmonic(n: int) -> float:
    """Return 1 + 1/2 + ... + 1/n."""
    if n < 100:
        return sum(1 / i for i in range(1, n + 1))
    # Euler-Maclaurin: the error is below 1 / (120 n^4).
    return math.log(n) + 0.5772156649015329 + 1 / (2 * n) - 1 / (12 * n * n)


def _padded(n: int, passes: float, comparisons: float, at_most: bool) -> float:
    """Return how many numbers SPU's parties compare, passes padded to few lengths.

    A pass is lengthened to n / 2^i, or 7, 6 or 5 eighths of that, but to 64 at least.
    Sizes are taken as spread evenly by their logarithm: in between two lengths a and b,
    the mean size is (b - a) / ln(b / a).
    """
    if not passes:
        return 0.0
    shortest = n
    while shortest // 2 >= _SHORTEST:
        shortest = -(-shortest // 2)
    parts = (-(-shortest * eighths // 8) for eighths in (5, 6, 7))
    shortest = next((part for part in parts if part >= _SHORTEST), shortest)
    # The first pass compares n - 1 scores, as n numbers.
    comparisons_after, passes_after = comparisons - (n - 1), passes - 1
    if at_most or n == 2:
        # A length is at most 5/4 of the size, rounded up, or it is the shortest one.
        return n + 5 / 4 * comparisons_after + (shortest + 1) * passes_after
    # The share of passes below the shortest length, and their mean size,
    # (shortest - 1) / ln(shortest), both of sizes spread evenly by logarithm.
    passes_after *= math.log(shortest) / math.log(n)
    comparisons_after -= passes_after * (shortest - 1) / math.log(shortest)
    return n + _LENGTHENED * max(0.0, comparisons_after) + shortest * passes_after


def _compared(engine: EngineName, passes: float, comparisons: float) -> Traffic:
    """Return passes of comparisons, however many numbers are in each."""
    compare = Operation("choice", "compare", "nonnegative", ((1,),))
    single = MODELS[engine].traffic(compare, 1)
    sent = tuple(size * comparisons for size in single.sent)
    received = tuple(size * comparisons for size in single.received)
    return Traffic(single.rounds * passes, single.waits * passes, sent, received)


def outside_count(engine: EngineName, n: int) -> Traffic:
    """Return the traffic of counting samples with numbers beyond their bounds.

    At most: each outcome becomes a number as if it were multiplied by one.
    """
    summed = Operation("scores", "outside", "select", ((1,),))
    bits = MODELS[engine].traffic(summed, n)
    word = 16 if engine == "spu-aby3-128" else 8
    return _compared(engine, 1, n) + bits + _opened(engine, 1, word)


def _opened(engine: EngineName, openings: float, size: float) -> Traffic:
    """Count the messages that open shares to all parties, which commit to them first.

    Args:
        engine: The engine.
        openings: How many.
        size: Bytes of the part of each element that a party lacks, in all of them: on
            ABY3 one of the others sends it, and the commitment of the other will do.
    """
    parties = MODELS[engine].parties
    by_party = ((parties - 1) * _COMMITTED * openings + size,) * parties
    return Traffic(2 * (parties - 1) * openings, 2 * openings, by_party, by_party)


def _set_of_two(
    n: int, k: int, passes: float, comparisons: float, risk: float | None
) -> Traffic:
    """Count shuffles by switches, and comparisons with opened outcomes.

    All scores are shuffled by both parties before they are compared, and the chosen
    rows before they are opened.
    """
    engine: EngineName = "spu-cheetah"
    sent = chosen(engine, "rank", n, k, passes, comparisons, risk=risk)
    sent += _opened(engine, 1, 8 * k)
    for layers in (switches(n), switches(k)):
        # Each party shuffles once, and shares a bit for each switch of its network.
        shared = Traffic.equal(2, sum(layers) / 8)
        sent = sum((_cheetah.switched(size) * 2 for size in layers), sent + shared)
    return sent


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
    # The last outward layer is empty: a network of two is one inward switch.
    return inward + outward[-2::-1]


def _set_of_three(
    engine: EngineName,
    words: int,
    n: int,
    k: int,
    passes: float,
    comparisons: float,
    risk: float | None,
) -> Traffic:
    """Count shuffles by three permutations, and comparisons with opened outcomes.

    The chosen rows are shuffled once more as the highest k of k, among which SPU looks
    for the last one.
    """
    sent = _shuffled_select(engine, words, n, passes, comparisons)
    sent += _opened(engine, 1, 8 * words * k)
    if k == 1:
        return sent
    again = (harmonic(k), 2 * (k - harmonic(k))) if risk is None else bounds(k, risk)
    return sent + _shuffled_select(engine, words, k, *again)


def _shuffled_select(
    engine: EngineName, words: int, n: int, passes: float, comparisons: float
) -> Traffic:
    third = words * _SHUFFLED * n / 3
    shuffled = Traffic(2, 4, (third,) * 3, (third,) * 3)
    opened = Traffic.equal(passes, comparisons, parties=3)  # no pass is lengthened
    return shuffled + opened + _compared(engine, passes, comparisons)


_SHUFFLED = 32  # bytes for a score that all parties together send: measured
_SETS: dict[EngineName, Callable[[int, int, float, float, float | None], Traffic]] = {
    "spu-cheetah": _set_of_two,
    "spu-aby3": functools.partial(_set_of_three, "spu-aby3", 1),
    "spu-aby3-128": functools.partial(_set_of_three, "spu-aby3-128", 2),
}
