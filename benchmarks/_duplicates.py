"""Inputs and peers of the search for near-duplicates in `bench_retrieve`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

THRESHOLD = 0.9
SAMPLED = 500  # rows whose near-duplicates are found by all pairs in float64
Kind = Literal["clusters", "isotropic"]


class Embeddings(NamedTuple):
    """Embeddings, a tenth of which are near-duplicates of others, and their kind."""

    x: np.ndarray
    kind: Kind


def embeddings(kind: Kind, n: int, d: int) -> Embeddings:
    """Return clusters with axes of falling variance, or rows of no structure."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)).astype(np.float32)
    if kind == "clusters":
        x += rng.normal(size=(200, d)).astype(np.float32)[rng.integers(0, 200, n)]
        x /= np.sqrt(1 + np.arange(d, dtype=np.float32))
    copies = n // 10
    noise = rng.normal(size=(copies, d)).astype(np.float32)
    x[n - copies :] = x[:copies] + 0.2 * noise * x.std(axis=0)
    return Embeddings(x, kind)


def by_blocks(task: Embeddings, rows: int = 2048) -> Callable[[], int]:
    """Return the plain way: all products of unit rows in float32, and a count."""

    def call() -> int:
        x = task.x / np.linalg.norm(task.x, axis=1, keepdims=True)
        count = 0
        for start in range(0, len(x) // SHARE, rows):
            for other in range(start, len(x), rows):
                near = x[start : start + rows] @ x[other : other + rows].T
                near = near >= THRESHOLD
                count += int(
                    np.count_nonzero(np.triu(near, 1) if other == start else near)
                )
        return count

    return call


SHARE = 10
"""The plain way looks at one row in this many, as it would take long."""


@functools.lru_cache(maxsize=2)
def _partners(kind: Kind, n: int, d: int) -> np.ndarray:
    """Return the first near-duplicate of some rows, -1 for none, by float64."""
    x = embeddings(kind, n, d).x.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", x, x))
    rows = _sampled(n)
    near = x[rows] @ x.T / (lengths[rows, None] * lengths) >= THRESHOLD
    near[np.arange(len(rows)), rows] = False
    return np.where(near.any(1), near.argmax(1), -1)


def _sampled(n: int) -> np.ndarray:
    return np.linspace(0, n - 1, min(n, SAMPLED)).astype(int)


def wrong(task: Embeddings, result: Any) -> dict[str, float]:
    """Return the share of sampled rows with another partner than by all pairs."""
    right = _partners(task.kind, *task.x.shape)
    return {"wrong": float(np.mean(result.partner[_sampled(len(task.x))] != right))}
