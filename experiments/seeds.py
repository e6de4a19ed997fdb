"""Experiments, each repeated for every seed, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from jaxsel._progress import track

_T = TypeVar("_T")
_R = TypeVar("_R")


def each_seed(
    run: Callable[[str, int], Mapping[str, Any]],
    names: Sequence[str],
    seeds: Sequence[int],
    *,
    label: str,
    progress: bool,
) -> dict[str, list[Mapping[str, Any]]]:
    """Return what `run` returns for each name, those of all seeds in their order.

    Args:
        run: From the name of an experiment and a seed to its results.
        names: Of the experiments.
        seeds: All experiments run for one before those for the next begin.
        label: What a progress bar counts.
        progress: Whether to show one.
    """
    pairs = [(name, int(seed)) for seed in seeds for name in names]
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names}
    results = at_once(lambda pair: run(*pair), pairs)
    counted = track(results, progress=progress, label=label, total=len(pairs))
    for (name, _), result in zip(pairs, counted, strict=True):
        found[name].append(result)
    return found


def at_once(run: Callable[[_T], _R], items: Sequence[_T]) -> Iterator[_R]:
    """Yield what `run` returns for each item, one of them running on every core.

    Small trainings, and compiling them, keep one core busy each; so NumPy gets one
    thread. After an error no further item is begun.
    """
    from threadpoolctl import threadpool_limits

    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        with threadpool_limits(1):
            for future in [pool.submit(run, item) for item in items]:
                yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def one_thread_each() -> None:
    """Let a computation on the CPU have one thread, if JAX has not started yet.

    Experiments run side by side, one on every core. Where their computations are small
    and many, threads of one would wait for those of another.
    """
    flags, name = os.environ.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen"
    if name not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {name}=false".strip()
