"""Inputs and peers of the search for near-duplicates in `bench_retrieve`."""

from __future__ import annotations

import functools
import importlib
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


def by_semhash(task: Embeddings) -> Callable[[], Any]:
    """Return semhash's search: an index of approximate neighbours, and its groups.

    Texts are the rows' numbers, so that none is an exact copy of another. `pip install
    --no-deps semhash vicinity usearch numkong model2vec pyversity frozendict orjson
    joblib safetensors tokenizers`: no extra has it.

    Raises:
        ImportError: If semhash is not installed.
    """
    module = importlib.import_module("semhash")
    importlib.import_module("usearch.index")
    texts = [str(row) for row in range(len(task.x))]

    def call() -> Any:
        hashed = module.SemHash.from_embeddings(task.x, texts, model=None)
        return hashed.index, hashed.self_deduplicate(threshold=THRESHOLD)

    return call


@functools.lru_cache(maxsize=2)
def _near(kind: Kind, n: int, d: int) -> np.ndarray:
    """Return which rows are near-duplicates of some rows, `[m, n]`, by float64."""
    x = embeddings(kind, n, d).x.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", x, x))
    rows = _sampled(n)
    near = x[rows] @ x.T / (lengths[rows, None] * lengths) >= THRESHOLD
    near[np.arange(len(rows)), rows] = False
    return near


def _sampled(n: int) -> np.ndarray:
    return np.linspace(0, n - 1, min(n, SAMPLED)).astype(int)


def wrong(task: Embeddings, result: Any) -> dict[str, float]:
    """Return the share of sampled rows with another partner than by all pairs."""
    near = _near(task.kind, *task.x.shape)
    right = np.where(near.any(1), near.argmax(1), -1)
    return {"wrong": float(np.mean(result.partner[_sampled(len(task.x))] != right))}


def missed(task: Embeddings, result: Any) -> dict[str, float]:
    """Return the share of the sampled rows' pairs that semhash's index doesn't find."""
    near, rows = _near(task.kind, *task.x.shape), _sampled(len(task.x))
    neighbours = result[0].query_threshold(task.x[rows], THRESHOLD)
    pairs = int(near.sum())
    hits = sum(
        int(right[np.asarray(indices, int)].sum())
        for right, (indices, _) in zip(near, neighbours, strict=True)
    )
    return {"missed": 1 - hits / pairs if pairs else 0.0}
