"""One worker against two: the same run of TMC-Shapley on each, in turn."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import multiprocessing
import os
import tempfile
import weakref
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsel import value

from ._machine import ROOT
from ._retrain import gaussians

ONE_THREAD = {"NPROC": "1"}
"""What gives XLA one thread on a CPU, rather than one for each core."""

_CORES = "JAXSEL_BENCH_CORES"  # a folder with a file for each core
_held: list[Any] = []


def pin() -> None:
    """Keep this process on a core that no other worker has taken.

    Also on one thread XLA hands work from Python's to its own: on another core that
    takes a quarter longer.
    """
    for core in sorted(os.sched_getaffinity(0)):
        file = (Path(os.environ[_CORES]) / str(core)).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            continue
        os.sched_setaffinity(0, {core})
        _held.append(file)  # until this process ends
        return


class Spread:
    """The same run of TMC-Shapley on one worker or on two, which stay until it goes.

    Args:
        kind: "processes" or "ray".
        quick: Whether the run is tiny.

    Raises:
        ImportError: If Ray is wanted, and missing.
    """

    def __init__(self, kind: str, *, quick: bool) -> None:
        task = gaussians(20 if quick else 200, 10)
        self._utility = value.ModelUtility(
            value.LogisticRegression(), task.x, task.y, task.x_val, task.y_val
        )
        # Enough batches that the last one, which leaves a worker idle, hardly counts.
        batch, batches = (4, 4) if quick else (64, 40)
        self._options: Any = {
            "key": jax.random.key(0),
            "stop": value.MaxSamples(batch * batches),
            "batch_size": batch,
            "tolerance": 0,
        }
        stack = contextlib.ExitStack()
        self._pools = stack.enter_context(_workers(kind))
        weakref.finalize(self, stack.close)

    def run(self, number: int | None) -> np.ndarray:
        """Return the values, computed by `number` workers; None: in this process."""
        executor = None if number is None else self._pools[number]
        result = value.tmc_shapley(self._utility, executor=executor, **self._options)
        return np.asarray(result.values)

    @functools.cached_property
    def expected(self) -> np.ndarray:
        """The values without an executor."""
        return self.run(None)


@contextlib.contextmanager
def _workers(kind: str) -> Iterator[dict[int, Any]]:
    """Yield an executor of one worker and one of two, each worker on its own core."""
    with contextlib.ExitStack() as stack:
        if kind == "processes":
            yield {number: stack.enter_context(pool(number)) for number in (1, 2)}
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        import ray  # pyright: ignore[reportMissingImports]

        variables = ONE_THREAD | {_CORES: folder, "PYTHONPATH": str(ROOT)}
        environment = {"env_vars": variables, "worker_process_setup_hook": pin}
        # Ray ends workers that were idle for a second: a new one compiles again.
        idle = {"idle_worker_killing_time_threshold_ms": 10**7}
        options: Any = {"include_dashboard": False, "log_to_driver": False}
        options |= {"runtime_env": environment, "_system_config": idle}
        ray.init(address="local", num_cpus=2, **options)
        stack.callback(ray.shutdown)
        two = value.RayExecutor(num_cpus=1)
        # Each of its tasks takes both processors, so that there is one at a time.
        executor = value.RayExecutor(num_cpus=2)
        yield {1: executor, 2: two}


@contextlib.contextmanager
def pool(number: int) -> Iterator[ProcessPoolExecutor]:
    """Yield spawned processes, each on its own core with one thread."""
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(
            number, context, initializer=_begin, initargs=(folder,)
        ) as processes,
    ):
        yield processes


def _begin(folder: str) -> None:
    os.environ.update(ONE_THREAD | {_CORES: folder})
    pin()
