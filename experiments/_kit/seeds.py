"""Experiments, each repeated for every seed, on threads, processes or Ray.

The caller saves each result as soon as it arrives, so a worker that dies loses only the
experiment it was running.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import multiprocessing
import os
import pickle
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import jax
import numpy as np

from jaxsel._runs.executor import Renewed, workers_of
from jaxsel._runs.progress import track

from .store import remembered, versions_here

KINDS = ("threads", "processes", "ray")

Job: TypeAlias = Callable[[int], Mapping[str, Any]]
_T = TypeVar("_T")
_R = TypeVar("_R")

_PROGRAMS = (
    "jax_compilation_cache_dir",
    "jax_enable_compilation_cache",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)
# Linux allows 65,530 (vm.max_map_count); half is left to jobs that compile meanwhile.
_MAPPINGS = 32_000
_log = logging.getLogger("experiments")
_made: dict[bytes, Mapping[str, Job]] = {}


@dataclasses.dataclass(frozen=True)
class Workers:
    """Where experiments run.

    Attributes:
        kind: "threads" of this process; "processes" of this host, each of which reads
            the data and compiles; or "ray", tasks of one CPU each.
        number: Jobs at a time; None for one on each processor, or for each CPU of
            Ray.
    """

    kind: Literal["threads", "processes", "ray"] = "threads"
    number: int | None = None

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(
                f"executor must be one of {', '.join(KINDS)}, got {self.kind!r}"
            )
        if self.number is not None and self.number < 1:
            raise ValueError(f"workers must be at least 1, got {self.number}")


@dataclasses.dataclass(frozen=True)
class Work:
    """Experiments by name, as `make` returns them here and in every other process.

    Attributes:
        make: A function at the top level of a module.
        arguments: Its arguments, which can be pickled.
    """

    make: Callable[..., Mapping[str, Job]]
    arguments: tuple[Any, ...] = ()


def each_seed(
    work: Work,
    seeds: Sequence[int],
    file: Callable[[str, int], tuple[Path, Mapping[str, Any]]],
    *,
    label: str,
    progress: bool,
    workers: Workers | None = None,
) -> dict[str, list[Mapping[str, Any]]]:
    """Return the results of each experiment for all seeds, in their order.

    Args:
        work: Makes the experiments.
        seeds: Seeds of each experiment. Experiments that run in parallel finish all
            seeds before others begin, so that seeds share compiled programs.
        file: Returns the file of an experiment's results for a seed, and the settings
            that identify them; see `remembered`.
        label: Label of the progress bar.
        progress: Whether to show one.
        workers: Where they run; threads, one for each processor, if None.

    Raises:
        ValueError: If there are no seeds.
        RuntimeError: If the worker of an experiment is lost again and again.
    """
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    jobs = work.make(*work.arguments)
    by_name: dict[str, list[Mapping[str, Any]]] = {name: [] for name in jobs}
    workers = Workers() if workers is None else workers
    with _elsewhere(work, workers) as (number, run_elsewhere):
        run = run_elsewhere or (lambda name, seed: _run_here(jobs[name], seed))

        def run_pair(pair: tuple[str, int]) -> dict[str, Any]:
            return remembered(*file(*pair), lambda: run(*pair))

        pairs = _in_turn([*jobs], seeds, number or os.cpu_count() or 1)
        results = at_once(run_pair, pairs, number)
        counted = track(results, progress=progress, label=label, total=len(pairs))
        for (name, _), result in logged(pairs, counted, label):
            by_name[name].append(result)
    return by_name


def stacked(runs: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Stack the results of several seeds, by name, on a new first axis."""
    return {name: np.stack([run[name] for run in runs]) for name in runs[0]}


def logged(
    pairs: Sequence[tuple[str, int]], results: Iterable[_R], label: str
) -> Iterator[tuple[tuple[str, int], _R]]:
    """Yield names and seeds with their results, and log a line for each.

    Args:
        pairs: Names of experiments, with seeds.
        results: Their results, in this order.
        label: Label of the lines.
    """
    started = time.monotonic()
    for number, (pair, result) in enumerate(zip(pairs, results, strict=True), 1):
        minutes = (time.monotonic() - started) / 60
        line = "%s: %s, seed %d, %d of %d after %.1f min"
        _log.info(line, label, *pair, number, len(pairs), minutes)
        yield pair, result


@contextlib.contextmanager
def lines_of_progress(*, shown: bool) -> Iterator[None]:
    """Log finished runs to standard output, in place of a progress bar.

    Args:
        shown: Whether to log anything.
    """
    handler = logging.StreamHandler(sys.stdout)
    level = _log.level
    if shown:
        _log.addHandler(handler)
        _log.setLevel(logging.INFO)
        _log.propagate = False  # the root may have a handler of another package
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(level)
        _log.propagate = True


def _in_turn(
    names: Sequence[str], seeds: Sequence[int], number: int
) -> list[tuple[str, int]]:
    """Return pairs of experiment and seed, `number` experiments in parallel."""
    groups = [names[i : i + number] for i in range(0, len(names), number)]
    return [(name, int(s)) for group in groups for s in seeds for name in group]


def at_once(
    run: Callable[[_T], _R], items: Sequence[_T], number: int | None = None
) -> Iterator[_R]:
    """Apply `run` to items on a pool of threads, and yield the results in order.

    Small trainings, and compiling them, keep one core busy each; so NumPy and SciPy get
    one thread. After an error no further item is begun.

    Args:
        run: Function of one item.
        items: Its arguments, in order.
        number: Size of the pool; one thread for each processor if None.
    """
    pool = ThreadPoolExecutor(number or os.cpu_count())
    try:
        with _one_thread():
            for future in [pool.submit(run, item) for item in items]:
                yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def one_thread_each() -> None:
    """Limit XLA on the CPU to one thread for a computation, unless JAX has started.

    Experiments run in parallel, one on every core. Their computations are small and
    many, so the threads of one would wait for the threads of another.
    """
    flags, name = os.environ.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen"
    if name not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {name}=false".strip()


def free_programs() -> None:
    """Clear JAX's caches if this process has too many memory mappings.

    Each compiled program takes about a dozen, and a process that exceeds Linux's limit
    dies. Programs used later are compiled again, or read from the cache on disk.
    """
    if _mappings() > _MAPPINGS:
        jax.clear_caches()
        gc.collect()


@contextlib.contextmanager
def _elsewhere(
    work: Work, workers: Workers
) -> Iterator[tuple[int | None, Callable[[str, int], Mapping[str, Any]] | None]]:
    """Yield the number of workers and a function to run a job; None on threads."""
    if workers.kind == "threads":
        yield workers.number, None
        return
    versions, settings = versions_here(), {}
    if workers.kind == "processes":
        settings = {name: getattr(jax.config, name) for name in _PROGRAMS}
        number = workers.number or os.cpu_count() or 1
        # One process per pool, since a process that dies breaks its whole pool.
        context = multiprocessing.get_context("spawn")
        options: Any = {"mp_context": context, "initializer": _end_with_caller}
        pools = [ProcessPoolExecutor(1, **options) for _ in range(number)]
    else:
        from jaxsel.value import RayExecutor

        # XLA's settings change the programs: keep them, so that results agree bitwise.
        names = {"XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64"} & {*os.environ}
        variables = {name: os.environ[name] for name in names}
        ray = RayExecutor(num_cpus=1, runtime_env={"env_vars": variables})
        number = min(workers_of(ray), workers.number or workers_of(ray))
        pools = [ray] * number
    free: queue.SimpleQueue[Renewed] = queue.SimpleQueue()
    renewed = [Renewed(pool) for pool in pools]
    for executor in renewed:
        free.put(executor)

    def run(name: str, seed: int) -> Mapping[str, Any]:
        worker = free.get()
        submit = lambda: worker.submit(_run, work, name, seed, settings, versions)
        try:
            return worker.result(submit(), submit, f"{name}, seed {seed},")
        finally:
            free.put(worker)

    try:
        yield number, run
    finally:
        for executor in renewed:
            executor.shutdown()
        for pool in pools:
            if isinstance(pool, ProcessPoolExecutor):
                pool.shutdown(cancel_futures=True)


def _end_with_caller() -> None:
    """End this process when its parent does, even if the parent is killed."""
    caller = multiprocessing.parent_process()

    def wait() -> None:
        if caller is not None:
            caller.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _run(
    work: Work,
    name: str,
    seed: int,
    settings: Mapping[str, Any],
    versions: Mapping[str, Any],
) -> dict[str, Any]:
    """Run one experiment for one seed on a worker, and cache the jobs it made."""
    if versions != versions_here():
        raise RuntimeError(
            "workers must have the versions and sources of the caller, "
            f"{versions}, got {versions_here()}"
        )
    for setting, value in settings.items():
        jax.config.update(setting, value)
    key = pickle.dumps(work)
    if key not in _made:
        # Jobs hold the data that they read: keep the jobs of one `work` only.
        _made.clear()
        _made[key] = work.make(*work.arguments)
    with _one_thread():
        return dict(_run_here(_made[key][name], seed))


def _run_here(job: Job, seed: int) -> Mapping[str, Any]:
    results = job(seed)
    free_programs()
    return results


def _mappings() -> int:
    """Return the number of this process's memory mappings; 0 without `/proc`."""
    try:
        with Path("/proc/self/maps").open("rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    # The BLAS of XLA's decompositions, which it would load after the limit.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield
