"""Thresholds for benchmarks that are drawn again, here or on an executor."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TypeAlias

import jax
import numpy as np

from jaxsel._inputs.show import brief
from jaxsel._runs.executor import Ahead, Executor, Sent, workers_of

from ._objective import Benchmark
from ._solve import Solution, run, solve
from ._sorted import Sorted
from ._source import Streamed

Source: TypeAlias = Sorted | Streamed


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Band:
    """Thresholds for benchmarks that were drawn again.

    Attributes:
        values: Threshold of each of R replicates, `[R]`.
        shares: Share of the losses' weight that each keeps, `[R]`.
        low: Lower end of the band.
        high: Upper end.
        level: Share of the replicates between both.
    """

    values: np.ndarray
    shares: np.ndarray
    low: float
    high: float
    level: float


def solutions(
    benchmark: Benchmark,
    source: Source,
    m: int,
    key: jax.Array,
    replicates: int,
    executor: Executor | None,
) -> list[Solution]:
    """Return the threshold of each replicate, in order.

    Args:
        benchmark: Losses to draw from.
        source: Losses to choose from.
        m: How many are drawn.
        key: Of the draws.
        replicates: How often.
        executor: Where ranges of replicates are computed, or None for here.
    """
    if executor is None:
        return _solved(benchmark, source, m, key, range(replicates))
    sent = Sent((benchmark, source, m, key), ("losses", getattr(source, "read", None)))
    # Two ranges for each worker: each makes its own passes over the losses.
    size = -(-replicates // (2 * workers_of(executor)))
    ranges = (
        range(first, min(first + size, replicates))
        for first in range(0, replicates, size)
    )
    ahead = Ahead(executor, _solved_apart, sent, ranges, name=_name)
    try:
        return [solution for _, batch in ahead for solution in batch]
    finally:
        ahead.close()


def _solved_apart(sent: Sent, numbers: range) -> list[Solution]:
    """Return the thresholds of a range; several threads may do so at once."""
    (benchmark, source, m, key), _ = sent.open()
    with sent.settings():
        return _solved(benchmark, source.apart(), m, key, numbers)


def _solved(
    benchmark: Benchmark, source: Source, m: int, key: jax.Array, numbers: range
) -> list[Solution]:
    """Return the thresholds of some replicates, each of which depends on its number."""
    counts = source.counts(benchmark.edges)
    runs = [
        solve(again, counts.at(np.searchsorted(benchmark.edges, again.edges)))
        for again in _replicates(benchmark, m, key, numbers)
    ]
    return run(runs, source.counts)


def _replicates(
    benchmark: Benchmark, m: int, key: jax.Array, numbers: range
) -> Iterator[Benchmark]:
    """Yield a benchmark's losses as drawn again, m of them with replacement."""
    for i in numbers:
        # A draw numbers a unit of weight, below 2^31 as `as_benchmark` sees to; its
        # loss is the first with a larger cumulative weight.
        draws = jax.random.randint(jax.random.fold_in(key, i), (m,), 0, benchmark.total)
        indices = np.searchsorted(benchmark.steps, np.asarray(draws), "right")
        rows, counts = np.unique(indices, return_counts=True)
        yield Benchmark(benchmark.edges[rows], np.cumsum(counts))


def _name(numbers: range) -> str:
    return f"replicates {numbers.start} to {numbers.stop - 1}"
