"""One worker against two: the same run of TMC-Shapley on each, in turn."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import numpy as np

from jaxsel import value

from ._machine import ROOT
from ._retrain import gaussians

ONE_CORE = {"NPROC": "1"}
"""What gives XLA one thread on a CPU, rather than one for each core."""


def compared(kind: str, *, quick: bool) -> dict[str, float]:
    """Time a run on one worker and on two, five times each in turn.

    Args:
        kind: "processes" or "ray".
        quick: Whether the run is tiny, and twice.

    Returns:
        `speedup`, the median over rounds of the time of one worker over that of two,
        its least and most; `one_s` and `two_s`, medians; `differ`, how many of the
        values differ in any bit from those without an executor.
    """
    task = gaussians(20 if quick else 200, 10)
    utility = value.ModelUtility(
        value.LogisticRegression(), task.x, task.y, task.x_val, task.y_val
    )
    # Enough batches that the last one, which leaves a worker idle, hardly counts.
    batch, batches = (4, 4) if quick else (64, 40)
    options: Any = {
        "key": jax.random.key(0),
        "stop": value.MaxSamples(batch * batches),
        "batch_size": batch,
        "tolerance": 0,
    }
    expected = np.asarray(value.tmc_shapley(utility, **options).values)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    differ = 0
    with _workers(kind) as pools:
        for number in (1, 2):  # starts processes, and compiles in each
            value.tmc_shapley(utility, executor=pools[number], **options)
        for _ in range(2 if quick else 5):
            for number, times in seconds.items():
                started = time.perf_counter()
                found = value.tmc_shapley(utility, executor=pools[number], **options)
                times.append(time.perf_counter() - started)
                differ += int((np.asarray(found.values) != expected).sum())
    ratios = np.divide(seconds[1], seconds[2])
    return {
        "speedup": float(np.median(ratios)),
        "least": float(ratios.min()),
        "most": float(ratios.max()),
        "one_s": float(np.median(seconds[1])),
        "two_s": float(np.median(seconds[2])),
        "differ": float(differ),
    }


@contextlib.contextmanager
def _workers(kind: str) -> Iterator[dict[int, Any]]:
    if kind == "processes":
        context = multiprocessing.get_context("spawn")
        before = {name: os.environ.get(name) for name in ONE_CORE}
        os.environ.update(ONE_CORE)  # as processes find it when they start
        try:
            with (
                ProcessPoolExecutor(1, mp_context=context) as one,
                ProcessPoolExecutor(2, mp_context=context) as two,
            ):
                yield {1: one, 2: two}
        finally:
            for name, was in before.items():
                if was is None:
                    del os.environ[name]
                else:
                    os.environ[name] = was
        return
    import ray  # pyright: ignore[reportMissingImports]

    environment = {"env_vars": {**ONE_CORE, "PYTHONPATH": str(ROOT)}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        two = value.RayExecutor(num_cpus=1, runtime_env=environment)
        # Each of its tasks takes both processors, so that there is one at a time.
        one = value.RayExecutor(num_cpus=2, runtime_env=environment)
        yield {1: one, 2: two}
    finally:
        ray.shutdown()
