"""Inputs and peers of `bench_value`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[], Any]


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
