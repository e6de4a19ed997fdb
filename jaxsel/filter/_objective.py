"""The KS distance between a benchmark's losses and the losses up to a threshold.

In whole numbers: comparisons of rounded fractions picked another threshold in about one
of a hundred random cases with ties.
"""

from __future__ import annotations

import bisect
import dataclasses

import numpy as np

MOST = 1 << 62
"""Largest product of the benchmark's weight and that of all losses."""


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """The distribution of a benchmark's m losses, of whole weights.

    Attributes:
        edges: Its distinct losses, `[J]`, ascending.
        steps: Weight of those up to each, `[J]` int64; the last is the total.
    """

    edges: np.ndarray
    steps: np.ndarray

    @property
    def total(self) -> int:
        return int(self.steps[-1])


@dataclasses.dataclass(frozen=True)
class Counts:
    """Cumulative weights below each edge, as whole numbers.

    Attributes:
        below: Below each of E edges, `[E]` int64.
        upto: Below or at it, `[E]` int64.
        total: In all.
    """

    below: np.ndarray
    upto: np.ndarray
    total: int

    def at(self, rows: np.ndarray) -> Counts:
        """Return the counts at some of the edges."""
        return Counts(self.below[rows], self.upto[rows], self.total)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.below + other.below, self.upto + other.upto, self.total + other.total
        )


class Objective:
    """The distance G(k) where the k smallest losses are kept, for k from 1 to n.

    G is the larger of two leads. The lead of the benchmark's distribution over the kept
    one does not fall with k, and the lead of the kept one does not rise: so both cross
    at one k, G falls before it, and does not fall from it on.

    Args:
        benchmark: The benchmark's losses, m of them.
        counts: The others' at the benchmark's edges, n of them.
    """

    def __init__(self, benchmark: Benchmark, counts: Counts):
        self.m, self.n = benchmark.total, counts.total
        if not self.n:
            raise ValueError("losses must hold at least one of weight above zero")
        # Both terms of a lead are at most m n, so that int64 holds their difference.
        if self.m * self.n > MOST:
            raise ValueError(
                "losses and benchmark losses must have weights whose totals' product "
                f"is at most 2^62, got {self.n} and {self.m}"
            )
        self._upto, self._at = counts.upto, benchmark.steps
        self._under = np.append(counts.below, counts.total)
        self._before = np.append(0, benchmark.steps)

    def leads(self, k: int) -> tuple[int, int]:
        """Return the leads of the benchmark and of the kept losses, times m k."""
        # The supremum over losses is reached at an edge of the benchmark; for the
        # opposite lead, just below one. Equal losses beyond k count up to k only.
        ahead = self._at * k - np.minimum(self._upto, k) * self.m
        return int(ahead.max()), self._behind(k)

    def _behind(self, k: int) -> int:
        behind = np.minimum(self._under, k) * self.m - self._before * k
        return int(behind.max())

    def crossing(self) -> int:
        """Return the least k at which the benchmark leads by as much; n + 1 if none."""

        def crossed(k: int) -> bool:
            ahead, behind = self.leads(k)
            return ahead >= behind

        # One lead minus the other is monotone in k: bisection needs O(log n) of them.
        return 1 + bisect.bisect_left(range(1, self.n + 1), True, key=crossed)

    def first_as_good(self, k: int) -> int:
        """Return the least k at which the kept lead by no more than at this one."""
        behind = self._behind(k)

        def as_good(j: int) -> bool:
            # Python's integers: these products may exceed 64 bits.
            return self._behind(j) * k <= behind * j

        return 1 + bisect.bisect_left(range(1, k), True, key=as_good)

    def distance(self, k: int) -> float:
        """Return G(k)."""
        return max(self.leads(k)) / (self.m * k)
