"""Weighted KNN-Shapley as it was published, for the benchmark: quadratic in n.

Wang, Mittal and Jia, Efficient data Shapley for weighted nearest neighbor algorithms,
AISTATS 2024, in plain NumPy, vectorised over ranks and sums. The authors' repository
has no licence, and is not used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def votes_of(
    x: np.ndarray, y: np.ndarray, query: np.ndarray, label: int, width: float, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the order by distance, and the signed votes in that order, `[n]` each.

    Weights are exp(-distance / width).
    """
    distance = np.linalg.norm(x.astype(np.float64) - query, axis=1)
    order = np.argsort(distance, kind="stable")
    weight = np.exp(-distance / width)
    size = np.round(weight / weight.max() * (2**bits - 1)).astype(int)
    return order, np.where(y == label, size, -size)[order]


def published(votes: np.ndarray, k: int, which: Sequence[int]) -> np.ndarray:
    """Return the values of some points, by rank, of a vote between two classes.

    Sets are counted by their size, the rank of their farthest point, and their sum.

    Args:
        votes: Signed votes, `[n]`, the nearest point's first.
        k: Number of neighbours, less than n.
        which: The ranks of the points to value, from 0.
    """
    n = len(votes)
    far = (k - 1) * int(np.abs(votes).max(initial=1)) or 1
    sums = np.arange(-far, far + 1)
    source = sums - votes[:, None]  # of a sum with this vote, the sum without it
    known = np.abs(source) <= far
    places = np.where(known, source + far, 0)
    values = np.zeros(len(which))
    for at, i in enumerate(which):
        vote, others = int(votes[i]), np.arange(n) != i
        # sets[m, s]: of one size, with the farthest at m, and this sum.
        sets = np.zeros((n, len(sums)))
        alone = np.abs(votes) <= far
        sets[alone, votes[alone] + far] = 1
        sets[i] = 0
        turned = (sums + vote >= 0).astype(float) - (sums >= 0)
        total = float(vote >= 0) - 1.0
        for size in range(1, k):
            if size > 1:
                nearer = np.cumsum(sets, axis=0) - sets
                moved = np.take_along_axis(nearer, places, axis=1)
                sets = np.where(known & others[:, None], moved, 0.0)
            total += (sets.sum(0) @ turned) / math.comb(n - 1, size)
        # Of K - 1 points nearer than m, the sums with point i or with m.
        if k == 1:
            within = np.tile((sums == 0).astype(float), (n, 1))
        else:
            within = np.cumsum(sets, axis=0) - sets
        changed = (sums + vote >= 0).astype(float) - (sums + votes[:, None] >= 0)
        flips = (within * changed).sum(1)
        value = total / n
        for m in range(max(i + 1, k), n):
            value += flips[m] / ((m + 1) * math.comb(m, k))
        values[at] = value
    return values
