"""Inputs and peers of `bench_value`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import jaxsel
from jaxsel import data

Call = Callable[[], Any]

COMPARED = 40  # samples of which values are computed from all pairs, in float64
SEEDS = 10


class Embedded(NamedTuple):
    """Embeddings of data and of a target, float32, and the kernel's bandwidth."""

    x: np.ndarray
    target: np.ndarray
    bandwidth: float


class Labelled(NamedTuple):
    """Training samples, some of them with wrong labels, and validation samples."""

    x: np.ndarray
    y: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    wrong: np.ndarray


def scores(queries: int, documents: int) -> np.ndarray:
    """Return scores `[q, m]`, a third of them below zero."""
    rng = np.random.default_rng(0)
    return rng.normal(0.5, 1, size=(queries, documents)).astype(np.float32)


def shared(row: np.ndarray) -> np.ndarray:
    """Return Shapley values of the largest of a query's scores, in plain Python.

    Each step between two scores is shared by the documents that reach the upper one.
    """
    gains = np.maximum(row.astype(np.float64), 0)
    values, before = np.zeros(len(gains)), 0.0
    total = 0.0
    for place, i in enumerate(np.argsort(gains)):
        total += (gains[i] - before) / (len(gains) - place)
        values[i], before = total, gains[i]
    return values


def loop(table: np.ndarray) -> Call:
    """Return a call that goes through the queries one by one."""
    return lambda: np.mean([shared(row) for row in table], axis=0)


@functools.lru_cache(maxsize=2)
def _expected(queries: int, documents: int) -> np.ndarray:
    return loop(scores(queries, documents))()


def shapley_error(table: np.ndarray, result: Any) -> dict[str, float]:
    """Return the largest error of a result, as a share of the largest value."""
    right = _expected(*table.shape)
    return {"error": float(np.abs(np.asarray(result) - right).max() / right.max())}


def embedded(n: int, m: int, d: int) -> Embedded:
    """Return clusters, of which the target has other shares than the data."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, d)).astype(np.float32)
    shares = rng.dirichlet(np.ones(20), size=2)
    x, target = (
        centres[rng.choice(20, size, p=share)]
        + rng.normal(size=(size, d)).astype(np.float32)
        for size, share in ((n, shares[0]), (m, shares[1]))
    )
    return Embedded(x, target, float(np.sqrt(3 * d)))


def blockwise(task: Embedded, references: int = 1024, rows: int = 500) -> Call:
    """Return the plain way: kernels of a block of rows by NumPy in float32."""
    drawn = np.random.default_rng(1).choice(
        len(task.x), min(references, len(task.x)), replace=False
    )

    def call() -> np.ndarray:
        among = task.x[drawn]
        scores = np.empty(len(task.x))
        for start in range(0, len(task.x), rows):
            block = task.x[start : start + rows]
            means = [
                _kernel(block, points, task.bandwidth).mean(1)
                for points in (task.target, among)
            ]
            scores[start : start + rows] = means[0] - means[1]
        return 2 / len(task.x) * (scores - scores.mean())

    return call


def _kernel(x: np.ndarray, points: np.ndarray, bandwidth: float) -> np.ndarray:
    squares = -2 * x @ points.T
    squares += np.einsum("nd,nd->n", x, x)[:, None]
    squares += np.einsum("nd,nd->n", points, points)
    return np.exp(squares / (-2 * bandwidth**2))


@functools.lru_cache(maxsize=2)
def _influences(n: int, m: int, d: int) -> np.ndarray:
    """Return the values of some samples by all pairs, less the first sample's value."""
    x, target, bandwidth = embedded(n, m, d)
    few = x[:COMPARED].astype(np.float64)
    gap = np.zeros(len(few))
    for sign, points in ((1, target), (-1, x)):
        for part in np.array_split(points, max(1, len(points) // 5000)):
            near = _kernel(few, part.astype(np.float64), bandwidth)
            gap += sign * near.sum(1) / len(points)
    return 2 / n * (gap - gap[0])


def influence_error(task: Embedded, result: Any) -> dict[str, float]:
    """Return the root mean square error, as a share of the values' deviation."""
    right = _influences(len(task.x), len(task.target), task.x.shape[1])
    values = np.asarray(result, np.float64)[:COMPARED]
    error = values - values[0] - right
    return {"error": float((error - error.mean()).std() / right.std())}


def digits(seed: int) -> Labelled:
    """Return 1,000 digits, a tenth of them with wrong labels, and 442 to judge by."""
    rng = np.random.default_rng(seed)
    whole = data.load("digits")
    rows = rng.permutation(len(whole.y))
    x, y = whole.as_features()[rows], np.asarray(whole.y)[rows].copy()
    wrong = np.zeros(1000, bool)
    wrong[rng.choice(1000, 100, replace=False)] = True
    y[:1000][wrong] = (y[:1000][wrong] + rng.integers(1, 10, 100)) % 10
    return Labelled(x[:1000], y[:1000], x[1000:], y[1000:], wrong)


def tenth_wrong() -> list[Labelled]:
    """Return the draws of all seeds."""
    return [digits(seed) for seed in range(SEEDS)]


def area(values: Any, wrong: np.ndarray) -> float:
    """Return the chance that a wrong label has a lower value than a right one."""
    values = np.asarray(values)
    return float(np.mean(values[wrong][:, None] < values[~wrong]))


@functools.lru_cache(maxsize=1)
def _by_neighbours() -> float:
    areas = [
        area(jaxsel.knn_shapley(*task[:4], k=5).values, task.wrong)
        for task in tenth_wrong()
    ]
    return float(np.mean(areas))


def areas(tasks: list[Labelled], results: Any) -> dict[str, float]:
    """Return the mean AUC of values, and how far it is behind KNN-Shapley's."""
    mean = np.mean([area(v, t.wrong) for v, t in zip(results, tasks, strict=True)])
    return {"auc": float(mean), "behind": _by_neighbours() - float(mean)}
