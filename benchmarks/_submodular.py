"""Inputs for targeted choices, the plain greedy algorithm as reference, and submodlib.

Peers choose by given kernels `[n, m]`: making these is timed, too, as ours makes its
own.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ._retrieval import Pool

Objective = Literal["flqmi", "gcmi", "logdetmi"]

ETA, L2 = 1.0, 1.0


def _units(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _similarities(pool: Pool, dtype: Any) -> np.ndarray:
    x, hard = (_units(a.astype(dtype)) for a in (pool.x, pool.hard))
    return np.maximum(x @ hard.T, 0)


def greedy(pool: Pool, objective: Objective, dtype: Any = np.float32) -> np.ndarray:
    """Choose by the gains of all candidates, anew for each choice, in NumPy."""
    if objective == "gcmi":
        sums = _similarities(pool, dtype).sum(axis=1)
        return np.argsort(-sums, kind="stable")[: pool.budget]
    if objective == "logdetmi":
        return _determinants(pool)
    alike = _similarities(pool, dtype)
    likeness = ETA * alike.max(axis=1)
    covered, chosen = np.zeros(alike.shape[1], dtype), np.empty(pool.budget, np.int64)
    for place in range(pool.budget):
        gains = likeness + np.maximum(alike - covered, 0).sum(axis=1)
        chosen[place] = best = gains.argmax()
        likeness[best] = -np.inf
        np.maximum(covered, alike[best], out=covered)
    return chosen


def _determinants(pool: Pool) -> np.ndarray:
    """Choose by conditional variances, a column of each kernel a choice."""
    x, hard = (_units(a.astype(np.float64)) for a in (pool.x, pool.hard))
    across = x @ hard.T
    inverse = np.linalg.inv(hard @ hard.T + L2 * np.eye(len(hard)))
    kernels = [x @ x.T, x @ x.T - ETA**2 * across @ inverse @ across.T]
    # Partial Cholesky factors: what is left of each diagonal.
    rest = [kernel.diagonal() + L2 for kernel in kernels]
    factors = [np.zeros((pool.budget, len(x))) for _ in kernels]
    chosen = np.empty(pool.budget, np.int64)
    free = np.ones(len(x), bool)
    for place in range(pool.budget):
        gains = np.where(free, np.log(rest[0]) - np.log(rest[1]), -np.inf)
        chosen[place] = best = gains.argmax()
        free[best] = False
        for kernel, remainder, factor in zip(kernels, rest, factors, strict=True):
            done = factor[:place]
            row = kernel[best] - done[:, best] @ done
            factor[place] = row / np.sqrt(remainder[best])
            remainder -= factor[place] ** 2
            remainder[best] = 1.0  # chosen: not read again
    return chosen


@functools.cache
def expected(pool: Pool, objective: Objective) -> frozenset[int]:
    """Return the choice of the plain greedy algorithm in float64."""
    return frozenset(greedy(pool, objective, np.float64).tolist())


def plain(pool: Pool, objective: Objective) -> Callable[[], np.ndarray]:
    """Return the plain greedy algorithm in NumPy, float32."""
    return lambda: greedy(pool, objective)


def submodlib(pool: Pool, objective: Objective) -> Callable[[], np.ndarray]:
    """Return submodlib's lazy choices; for "logdetmi" its plain ones, which are right.

    `pip install --no-deps submodlib-py numba llvmlite`: no extra has it.

    Raises:
        ImportError: If submodlib is not installed.
    """
    functions = importlib.import_module("submodlib.functions")

    kinds = {
        "flqmi": functions.FacilityLocationVariantMutualInformationFunction,
        "gcmi": functions.GraphCutMutualInformationFunction,
        "logdetmi": functions.LogDeterminantMutualInformationFunction,
    }
    x, hard = _units(pool.x), _units(pool.hard)

    def call() -> np.ndarray:
        options: dict[str, Any] = {"query_sijs": np.maximum(x @ hard.T, 0)}
        if objective == "flqmi":
            options["queryDiversityEta"] = ETA
        elif objective == "logdetmi":
            options = {
                "query_sijs": x @ hard.T,
                "data_sijs": x @ x.T,
                "query_query_sijs": hard @ hard.T,
                "lambdaVal": L2,
                "magnificationEta": ETA,
            }
        function = kinds[objective](n=len(x), num_queries=len(hard), **options)
        optimizer = "NaiveGreedy" if objective == "logdetmi" else "LazyGreedy"
        chosen = function.maximize(budget=pool.budget, optimizer=optimizer)
        return np.array([index for index, _ in chosen])

    return call
