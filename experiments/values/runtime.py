"""Figure 1: runtime of the values against the number of training points."""

from __future__ import annotations

import time
from typing import NamedTuple

import jax
import numpy as np

import jaxsel
from experiments._kit.scenes.samples import Part
from jaxsel import value

from .methods import logistic

TIMED = ("KNN-Shapley", "G-Shapley", "LOO", "TMC-Shapley")
PERMUTATIONS = 1000
"""Permutations to which the times of G-Shapley and TMC-Shapley are scaled up."""


class RuntimeSizes(NamedTuple):
    """Numbers of training and validation points, repeats and samples."""

    n: tuple[int, ...] = (100, 200, 400)
    n_val: int = 200
    repeats: int = 3
    passes: int = 256
    permutations: int = 16


FULL_RUNTIME = RuntimeSizes(n=(100, 200, 400, 800))


def measure_runtime(part: Part, sizes: RuntimeSizes) -> dict[str, np.ndarray]:
    """Measure each method of `TIMED`, compiled beforehand, with nothing beside it.

    TMC-Shapley is measured without truncation, so that its cost does not depend on
    how soon a model is good, on few permutations, and scaled up.

    Returns:
        "n", `[N]`; "seconds", `[repeats, methods, N]`.
    """
    learner = logistic()
    passes = value.MaxSamples(sizes.passes)
    permutations = value.MaxSamples(sizes.permutations)
    seconds = np.zeros((sizes.repeats, len(TIMED), len(sizes.n)))
    for j, n in enumerate(sizes.n):
        flat = part.x[: n + sizes.n_val].reshape(n + sizes.n_val, -1)
        labels = part.y[: n + sizes.n_val]
        arrays = flat[:n], labels[:n], flat[n:], labels[n:]
        utility = value.ModelUtility(learner, *arrays)
        key = jax.random.key(n)
        calls = (
            lambda a=arrays: jaxsel.knn_shapley(*a),
            lambda a=arrays, k=key: value.g_shapley(
                learner, *a, key=k, learning_rate=0.03, stop=passes
            ),
            lambda u=utility: value.loo(u),
            lambda u=utility, k=key: value.tmc_shapley(
                u, key=k, stop=permutations, tolerance=0
            ),
        )
        scale = 1, PERMUTATIONS / sizes.passes, 1, PERMUTATIONS / sizes.permutations
        for i, (call, factor) in enumerate(zip(calls, scale, strict=True)):
            np.asarray(call().values)  # compiles
            for r in range(sizes.repeats):
                start = time.perf_counter()
                np.asarray(call().values)
                seconds[r, i, j] = factor * (time.perf_counter() - start)
    return {"n": np.array(sizes.n), "seconds": seconds}
