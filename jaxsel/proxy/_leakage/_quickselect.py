"""QuickSelect over secret scores: its comparisons, and the places that they imply."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_count, check_finite
from jaxsel._inputs.show import brief

_SEEDS = 2**64 - 1  # the largest seed: parties draw theirs as 64 bits

Asked = tuple[int, np.ndarray]
Outcome = tuple[int, np.ndarray, np.ndarray]


def quickselect(
    n: int, k: int, *, seed: int
) -> Generator[Asked, np.ndarray, np.ndarray]:
    """Choose the k highest of n scores by asking which lie above a pivot.

    Yields a pivot and the rows to compare with it, and is sent which of these lie above
    it, booleans of their length; the caller compares, in the clear or in secret.
    Of equal scores the lower row must win. It ends as soon as the set is known.

    Args:
        n: Scores.
        k: How many to choose; n takes no comparison.
        seed: Public seed of the pivots, zero or more.

    Returns:
        The rows chosen, `[k]` int64, ascending: the value of its `StopIteration`.

    Raises:
        TypeError: If an argument is no whole number.
        ValueError: If k is not between 1 and n, or the seed below zero.

    References:
        Ouyang et al., SelectFormer, section 4.1: QuickSelect on encrypted entropies.
    """
    n = check_count("n", n)
    wanted = check_count("k", k)
    if wanted > n:
        raise ValueError(f"k must be at most the number of scores, {n}, got {k}")
    # Its raw words are the same in all releases of NumPy; other draws may change.
    draws = np.random.PCG64(check_count("seed", seed, minimum=0, maximum=_SEEDS))
    remaining = np.arange(n)
    chosen: list[np.ndarray] = []
    while 0 < wanted < len(remaining):
        # Multiply and shift (Lemire 2019): a uniform index up to a bias of n / 2^64.
        pivot = int(remaining[int(draws.random_raw()) * len(remaining) >> 64])
        others = remaining[remaining != pivot]
        above = yield pivot, others
        higher = others[above]
        if len(higher) >= wanted:
            remaining = higher
        else:
            chosen += [higher, np.array([pivot])]
            wanted -= len(higher) + 1
            remaining = others[~above]
    chosen.append(remaining[:wanted])  # all that are left, or none
    return np.sort(np.concatenate(chosen))


def places(n: int, outcomes: Iterable[Outcome]) -> np.ndarray:
    """Return every score's place among the pivots, from the outcomes of a choice.

    Args:
        n: Scores.
        outcomes: Of each pass, in order, the pivot, the rows that were compared with
            it, `[m]`, and which of these lie above it, `[m]` bool.

    Returns:
        `[n]` int32, how many of the pivots a score lies above, itself counted: the
        levels of `Declared`.
    """
    levels = np.zeros(n, np.int32)
    above_all = np.zeros(n, bool)  # of the rows that are decided, those above the rest
    before: tuple[np.ndarray, np.ndarray] | None = None
    for pivot, others, above in outcomes:
        remaining = np.append(others, pivot)
        if before is not None:
            were_left, were_above = before
            # The last pass left the rows above its pivot, or those below.
            if not np.isin(were_above, remaining).any():
                above_all[np.setdiff1d(were_left, remaining)] = True
        levels += above_all
        levels[pivot] += 1
        levels[others] += above
        before = remaining, others[above]
    return levels


@brief
@dataclasses.dataclass(frozen=True, eq=False)
class Declared:
    """All that a choice by QuickSelect declares of n scores.

    A score that a pass has decided lies on the same side of all later pivots, so that
    every score's place among all pivots follows, from those comparisons too that were
    never made.

    Attributes:
        levels: `[n]` int32, how many of the pivots a score lies above, itself counted.
        chosen: `[n]` bool.
        passes: Pivots, P.
    """

    levels: np.ndarray
    chosen: np.ndarray
    passes: int


def declare(scores: npt.ArrayLike, k: int, *, seed: int) -> Declared:
    """Return the levels and the set that a secure choice of the k highest declares.

    Args:
        scores: `[n]`, in the clear.
        k: How many are chosen.
        seed: Seed of the pivots.

    Raises:
        ValueError: If the scores are not `[n]` and finite, or as `quickselect` does.
    """
    values = np.asarray(scores)
    if values.ndim != 1:
        raise ValueError(f"scores must have shape [n], got {values.shape}")
    check_finite("scores", values)
    n = len(values)
    rank = np.empty(n, np.int64)  # from the lowest; of equal ones the last row first
    rank[np.lexsort((-np.arange(n), values))] = np.arange(n)
    steps, chosen = quickselect(n, k, seed=seed), np.zeros(n, bool)
    pivots: list[int] = []
    try:
        pivot, others = next(steps)
        while True:
            pivots.append(int(rank[pivot]))
            pivot, others = steps.send(rank[others] > rank[pivot])
    except StopIteration as end:
        chosen[end.value] = True
    # A score lies above the pivots of ranks up to its own; a pivot counts itself.
    levels = np.searchsorted(np.sort(pivots), rank, side="right")
    return Declared(levels.astype(np.int32), chosen, len(pivots))
