"""Published algorithm of weighted KNN-Shapley, for the benchmark: quadratic in n.

Wang, Mittal and Jia, Efficient data Shapley for weighted nearest neighbor algorithms,
AISTATS 2024, in plain NumPy, vectorised over ranks and sums. The authors' repository
has no licence, and is not used.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxsel

from . import _knn
from ._knn import Points

BITS, WIDTH = 3, 5.0
WHICH = range(0, 2000, 100)
"""Ranks of the points that the peer values, for one validation point."""

CHECKED = [0, 1]
"""Points of compared values, over all validation points."""


def draw(n: int, m: int, d: int, *, k: int = 5) -> Points:
    """Draw points of two classes, each of five Gaussians."""
    points = _knn.mixture(n, m, d, k=k)
    y, y_val = points.y % 2, points.y_val % 2
    return dataclasses.replace(points, y=y, y_val=y_val, n_classes=2)


def ours(points: Points, **options: Any) -> Callable[[], jaxsel.Values]:
    """Return jaxsel's values of the mean over validation points."""
    arrays = points.x, points.y, points.x_val, points.y_val
    common: dict[str, Any] = {"k": points.k, "bits": BITS, "weights": _weights}
    return lambda: jaxsel.weighted_knn_shapley(*arrays, **common, **options)


def loop(points: Points) -> Callable[[], np.ndarray]:
    """Return the published algorithm, for a few points and one validation point."""
    which = [i for i in WHICH if i < len(points.x)]

    def call() -> np.ndarray:
        query, label = points.x_val[0], int(points.y_val[0])
        _, votes = votes_of(points.x, points.y, query, label, WIDTH, BITS)
        return published(votes, points.k, which)

    return call


def error(points: Points, result: Any) -> dict[str, float]:
    """Compare with the published algorithm: of the largest value."""
    if isinstance(result, np.ndarray):
        return {"error": float(np.abs(result - loop(points)()).max())}
    values = np.asarray(result.values)
    if result.error_bound is None:
        off = np.abs(values[CHECKED] - _expected(points)).max()
        return {"error": float(off / np.abs(values).max())}
    off = float(np.abs(values - np.asarray(ours(points)().values)).max())
    bound = float(np.asarray(result.error_bound).max())
    return {"certified": bound, "off": off, "beyond": max(0.0, off - bound)}


@functools.cache
def _expected(points: Points) -> np.ndarray:
    """Return the values of a few points, the mean over all validation points."""
    every: list[np.ndarray] = []
    for query, label in zip(points.x_val, points.y_val.tolist(), strict=True):
        order, votes = votes_of(points.x, points.y, query, label, WIDTH, BITS)
        which = [int(np.flatnonzero(order == i)[0]) for i in CHECKED]
        every.append(published(votes, points.k, which))
    return np.mean(every, axis=0)


def _weights(distance: Any) -> Any:
    return jnp.exp(-distance / WIDTH)


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
    for row, i in enumerate(which):
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
        values[row] = value
    return values
