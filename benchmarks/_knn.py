"""Inputs for the KNN benchmarks, and reference values: slow, plain, float64."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Points:
    """Training and validation points. Compared by identity, so that results are cached.

    Attributes:
        x: Array of shape `[n, d]`, float32.
        y: Array of shape `[n]`, int32.
        x_val: Array of shape `[m, d]`, float32.
        y_val: Array of shape `[m]`, int32.
        k: Neighbours.
        n_classes: Their number.
    """

    x: np.ndarray
    y: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    k: int = 10
    n_classes: int = 10

    @functools.cached_property
    def radius(self) -> float:
        """A distance within which about 5 % of the points lie."""
        squared = next(_squared_distances(self, min(20, len(self.x_val))))
        return float(np.sqrt(np.quantile(squared, 0.05, method="midpoint")))


def mixture(n: int, m: int, d: int, *, k: int = 10, seed: int = 0) -> Points:
    """Draw ten Gaussian classes that overlap, and flip a tenth of the training labels.

    A KNN classifier is right on most of the validation points, so that values are
    neither all alike nor noise.
    """
    rng = np.random.default_rng(seed)
    n_classes = 10
    centres = rng.standard_normal((n_classes, d), np.float32)
    centres *= np.float32(5 / (2 * d) ** 0.5)  # about 5 standard deviations apart

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(n_classes, size=count, dtype=np.int32)
        x = rng.standard_normal((count, d), np.float32)
        for start in range(0, count, 4096):  # no temporary array of the size of x
            x[start : start + 4096] += centres[y[start : start + 4096]]
        return x, y

    x, y = draw(n)
    x_val, y_val = draw(m)
    flipped = rng.random(n) < 0.1
    y[flipped] = rng.integers(n_classes, size=int(flipped.sum()), dtype=np.int32)
    return Points(x, y, x_val, y_val, k)


@functools.cache
def shapley(points: Points, m: int) -> np.ndarray:
    """Return KNN-Shapley values, the mean over the first `m` validation points, `[n]`.

    With u_r the match of the r-th neighbour, v_N = u_N / max(N, K) and
    v_r = v_{r+1} + (u_r - u_{r+1}) / max(r, K).
    """
    rank = np.arange(1, len(points.x) + 1)
    return _semivalue(points, m, 1 / np.maximum(rank, points.k))


@functools.cache
def banzhaf(points: Points, m: int) -> np.ndarray:
    """Return KNN-Banzhaf values, the mean over the first `m` validation points, `[n]`.

    The weight of rank r is P(Binomial(r - 1, 1/2) < K) / K.
    """
    n, k = len(points.x), points.k
    weights = np.zeros(n)
    counts = np.zeros(k)  # P(Binomial(r - 1, 1/2) = i), i < K
    counts[0] = 1
    for rank in range(n):
        weights[rank] = counts.sum() / k
        counts[1:] = (counts[1:] + counts[:-1]) / 2
        counts[0] /= 2
    return _semivalue(points, m, weights)


@functools.cache
def threshold(points: Points, m: int) -> np.ndarray:
    """Return threshold KNN-Shapley values with `points.radius`, the mean, `[n]`.

    Of b points in the ball with b+ matches, one with match u has the value
    [(u - 1/C) + (u - (b+ - u)/(b - 1)) (H_b - 1)] / b; points outside have none.
    """
    total = np.zeros(len(points.x))
    # The ball is closed: two float32 epsilons wider, as docs/knn-values.md says.
    limit = (points.radius * (1 + 2 * np.finfo(np.float32).eps)) ** 2
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, len(points.x) + 1))])
    for squared, label in _rows(points, m):
        inside = np.flatnonzero(squared <= limit)
        match = (points.y[inside] == label).astype(np.float64)
        b = len(inside)
        if b == 0:
            continue
        value = match - 1 / points.n_classes
        if b > 1:
            others = (match.sum() - match) / (b - 1)
            value += (match - others) * (harmonic[b] - 1)
        total[inside] += value / b
    return total / m


def relative_error(values: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest difference, over the largest absolute value."""
    values = np.asarray(values, np.float64)
    return float(np.abs(values - reference).max() / np.abs(reference).max())


def _semivalue(points: Points, m: int, weights: np.ndarray) -> np.ndarray:
    total = np.zeros(len(points.x))
    for squared, label in _rows(points, m):
        order = np.argsort(squared, kind="stable")
        match = (points.y[order] == label).astype(np.float64)
        steps = weights * np.diff(match, append=0.0) * -1
        total[order] += np.cumsum(steps[::-1])[::-1]
    return total / m


def _rows(points: Points, m: int) -> Iterator[tuple[np.ndarray, int]]:
    """One validation point after the other: squared distances `[n]`, and its label."""
    rows = itertools.chain.from_iterable(_squared_distances(points, m))
    yield from zip(rows, points.y_val[:m], strict=True)


def _squared_distances(points: Points, m: int) -> Iterator[np.ndarray]:
    """Squared distances, in blocks of validation points: arrays `[b, n]`."""
    x = points.x.astype(np.float64)
    norms = np.einsum("nd,nd->n", x, x)
    size = max(1, 10**7 // len(x))
    for start in range(0, m, size):
        q = points.x_val[start : min(start + size, m)].astype(np.float64)
        squared = norms - 2 * (q @ x.T) + np.einsum("md,md->m", q, q)[:, None]
        yield np.maximum(squared, 0)
