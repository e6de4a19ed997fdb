"""The threshold of least distance, found by asking how many losses lie below edges.

Whoever has the losses answers: an array, a file read again and again, or clients who
show nothing but sums of counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from ._bits import split, to_float, to_place
from ._objective import Benchmark, Counts, Objective

PARTS = 1000
"""Into so many parts an interval is cut by one question."""

Questions = Generator[np.ndarray, Counts, "Solution"]
"""Yields edges, ascending and distinct; is sent the counts at them."""


@dataclasses.dataclass(frozen=True)
class Solution:
    """Threshold, with the weight that it keeps.

    Attributes:
        value: Losses up to this are kept.
        kept: Their weight.
        total: Weight of all losses.
        distance: KS distance between the kept losses and the benchmark's.
    """

    value: float
    kept: int
    total: int
    distance: float


def solve(
    benchmark: Benchmark, counts: Counts | None = None, *, exact: bool = True
) -> Questions:
    """Find the threshold of least distance, the smallest of several.

    Args:
        benchmark: The benchmark's losses.
        counts: Those at its edges, if they are known: then that is not asked.
        exact: Whether the value must be the largest kept loss itself. Otherwise it may
            be a number between that and the next one, which takes fewer questions.

    Returns:
        A generator that returns the solution.
    """
    if counts is None:
        counts = yield benchmark.edges
    objective = Objective(benchmark, counts)
    k, after = objective.crossing(), None
    before = objective.n
    if k <= objective.n:
        after = yield from _order(k, benchmark.edges, counts, exact)
        before = after.below
    # Strictly less, for of equal distances the smaller threshold is wanted.
    if after is not None and (before == 0 or _less(objective, after.upto, before)):
        best = after
    else:
        first = objective.first_as_good(before)
        best = yield from _order(first, benchmark.edges, counts, exact)
    distance = objective.distance(best.upto)
    return Solution(best.value, best.upto, counts.total, distance)


def _less(objective: Objective, after: int, before: int) -> bool:
    """Return whether the distance behind the crossing is less than before it."""
    return objective.leads(after)[0] * before < objective.leads(before)[1] * after


@dataclasses.dataclass(frozen=True)
class _Order:
    """A loss of some rank: its value, and the weight below it and up to it."""

    value: float
    below: int
    upto: int


def _order(
    k: int, edges: np.ndarray, counts: Counts, exact: bool
) -> Generator[np.ndarray, Counts, _Order]:
    """Find the loss at which the weight, summed in ascending order, reaches k."""
    low, high = to_place(np.array([-np.inf, np.inf], edges.dtype)).tolist()
    below, upto = 0, counts.total
    while True:
        index = int(np.searchsorted(counts.upto, k))
        # Below this edge are fewer than k, up to it k or more: the loss of rank k
        # equals it.
        if index < len(edges) and counts.below[index] < k:
            return _Order(
                float(edges[index]), int(counts.below[index]), int(counts.upto[index])
            )
        if index:
            low, below = (
                int(to_place(edges[index - 1 : index])[0]),
                int(counts.upto[index - 1]),
            )
        if index < len(edges):
            high, upto = (
                int(to_place(edges[index : index + 1])[0]),
                int(counts.below[index]),
            )
        if not exact and upto - below == 1:
            # Any threshold from the loss up to `high` keeps it: its value isn't needed.
            last = to_float(np.array([high - 1]), edges.dtype)
            return _Order(float(last[0]), below, upto)
        # By bit patterns, not by values: four cuts into 1000 parts single out any
        # float32 (1000^4 > 2^32), however skewed the losses are.
        edges = to_float(split(low, high, PARTS), edges.dtype)
        counts = yield edges


def run(
    runs: Sequence[Questions], ask: Callable[[np.ndarray], Counts]
) -> list[Solution]:
    """Run several searches at once, with their edges merged into one question.

    Args:
        runs: Generators of `solve`.
        ask: Returns the counts at edges.

    Returns:
        The solution of each.
    """
    solutions: dict[int, Solution] = {}
    waiting: dict[int, tuple[Questions, Any]] = {
        i: (search, None) for i, search in enumerate(runs)
    }
    while waiting:
        asked: dict[int, tuple[Questions, np.ndarray]] = {}
        for i, (search, counts) in waiting.items():
            try:
                asked[i] = search, search.send(counts)
            except StopIteration as end:
                solutions[i] = end.value
        if not asked:
            break
        if len(asked) == 1:
            waiting = {
                i: (search, ask(wanted)) for i, (search, wanted) in asked.items()
            }
            continue
        # An answer may cost a pass over all losses: the searches share it.
        edges = np.unique(np.concatenate([wanted for _, wanted in asked.values()]))
        counts = ask(edges)
        waiting = {
            i: (search, counts.at(np.searchsorted(edges, wanted)))
            for i, (search, wanted) in asked.items()
        }
    return [solutions[i] for i in range(len(runs))]
