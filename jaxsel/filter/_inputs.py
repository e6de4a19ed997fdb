"""Losses as callers give them: checked, of one float type, with whole weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from jaxsel._checks import as_array, check_numeric
from jaxsel._chunk import chunk_slices
from jaxsel._progress import track

from ._objective import Benchmark
from ._sorted import Chunk, Sorted, joined
from ._source import Streamed
from ._tally import FEW

if TYPE_CHECKING:
    import jax
    import numpy.typing as npt

Losses: TypeAlias = "npt.ArrayLike | jax.Array | Callable[[], Iterable[Any]]"
"""An array, or what returns an iterator over chunks: of losses, or with weights."""

IN_MEMORY = 1 << 24
"""Losses that are held in memory; longer arrays are read in chunks."""

_CHUNK = 1 << 20
# What weights that are no whole numbers add up to once they are rounded to such: the
# product of both must fit 62 bits.
_BENCHMARK_UNITS, _UNITS = 1 << 24, 1 << 38


def as_losses(name: str, value: Any, *, start: int = 0) -> np.ndarray:
    """Return finite losses `[n]` as float32, or float64 if float32 can't hold them.

    Args:
        name: What errors call them.
        value: An array.
        start: Number of the first entry, for errors.
    """
    array = as_array(name, value)
    check_numeric(name, array)
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape [n], got {array.shape}")
    losses = np.asarray(array).astype(_float_type(array.dtype), copy=False)
    if not np.isfinite(losses.sum(dtype=np.float64)):
        bad = np.flatnonzero(~np.isfinite(losses))
        if bad.size:
            raise ValueError(
                f"{name} must be finite, but entry {start + bad[0]} is "
                f"{losses[bad[0]]} ({bad.size} in a row of {len(losses)} are not)"
            )
    return losses


def as_benchmark(value: Any, weights: Any = None) -> Benchmark:
    """Return the distribution of a benchmark's losses."""
    losses = as_losses("benchmark_losses", value)
    if not len(losses):
        raise ValueError("benchmark_losses must hold at least one loss")
    counts = np.ones(len(losses), np.int64)
    if weights is not None:
        name = "benchmark_weights"
        counts = _whole(_as_weights(name, weights, len(losses)), _BENCHMARK_UNITS)
        if not counts.any():
            raise ValueError(f"{name} must not all be zero")
    edges, at = np.unique(losses[counts > 0] + 0.0, return_inverse=True)
    steps = np.cumsum(np.bincount(at, counts[counts > 0])).astype(np.int64)
    if steps[-1] >= 1 << 31:
        raise ValueError(
            f"benchmark_weights must add up to below 2^31, got {steps[-1]}"
        )
    return Benchmark(edges, steps)


def as_source(
    losses: Losses, weights: Any, benchmark: Benchmark, *, progress: bool
) -> tuple[Sorted | Streamed, Benchmark]:
    """Return losses that can be counted, and the benchmark in the same float type."""
    if callable(losses):
        if weights is not None:
            raise ValueError(
                "weights must be None where losses is a function: let it yield pairs "
                "of losses and weights"
            )
        first = next(iter(losses()), ())
        first = first[0] if isinstance(first, tuple) and first else first
        n, dtype, read = None, np.asarray(first).dtype, losses
    else:
        array = as_array("losses", losses)
        if array.ndim != 1 or not len(array):
            raise ValueError(f"losses must have shape [n], n > 0, got {array.shape}")
        n, dtype = len(array), array.dtype
        if weights is not None:
            weights = _whole(_as_weights("weights", weights, n), _UNITS)
        read = lambda: _cut(array, weights)
    dtype = np.result_type(benchmark.edges, _float_type(dtype))
    benchmark = Benchmark(benchmark.edges.astype(dtype), benchmark.steps)

    def chunks() -> Iterator[Chunk]:
        total = None if n is None else -(-n // _CHUNK)
        return _checked(
            track(read(), progress=progress, label="Losses", total=total), dtype
        )

    if n is None or n > IN_MEMORY:
        return Streamed(chunks), benchmark
    whole = joined(chunks())
    return Sorted(*whole) if n < FEW else Streamed(lambda: [whole]), benchmark


def _cut(losses: Any, weights: np.ndarray | None) -> Iterator[Any]:
    for rows in chunk_slices(len(losses), _CHUNK):
        yield losses[rows] if weights is None else (losses[rows], weights[rows])


def _checked(chunks: Iterable[Any], dtype: Any) -> Iterator[Chunk]:
    start = 0
    for chunk in chunks:
        losses, weights = chunk if isinstance(chunk, tuple) else (chunk, None)
        losses = as_losses("losses", losses, start=start).astype(dtype, copy=False)
        if weights is not None:
            weights = _whole(_as_weights("weights", weights, len(losses)), None)
        start += len(losses)
        yield losses, weights


def _as_weights(name: str, value: Any, n: int) -> np.ndarray:
    array = np.asarray(as_array(name, value))
    check_numeric(name, array)
    if array.shape != (n,):
        raise ValueError(f"{name} must have shape [{n}], got {array.shape}")
    bad = np.flatnonzero(~np.isfinite(array) | (array < 0))
    if bad.size:
        raise ValueError(
            f"{name} must be finite and zero or more, but entry {bad[0]} is "
            f"{array[bad[0]]}"
        )
    return array


def _whole(weights: np.ndarray, units: int | None) -> np.ndarray:
    """Return weights as whole numbers, int64: rounded, where they are not, to `units`.

    Raises:
        ValueError: If they are not, and `units` is None.
    """
    if weights.dtype.kind not in "iub" and np.any(weights != np.floor(weights)):
        if units is None:
            raise ValueError("weights of losses in chunks must be whole numbers")
        weights = np.rint(weights.astype(np.float64) * (units / weights.sum()))
    return weights.astype(np.int64)


def _float_type(dtype: Any) -> Any:
    narrow = jnp.issubdtype(dtype, jnp.floating) and np.dtype(dtype).itemsize <= 4
    return np.float32 if narrow else np.float64
