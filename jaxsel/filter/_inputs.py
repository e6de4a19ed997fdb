"""Losses as callers give them: checked, of one float type, with whole weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from jaxsel._inputs.checks import as_array, check_numeric
from jaxsel._inputs.chunk import chunk_slices
from jaxsel._runs.progress import track

from ._objective import MOST, Benchmark
from ._sorted import Chunk, Sorted, distinct, joined
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


def as_losses(
    name: str, value: Any, *, start: int = 0, dtype: Any = None
) -> np.ndarray:
    """Return losses `[n]` that are finite in a float type.

    Args:
        name: Name in error messages.
        value: An array.
        start: Index of the first entry, for error messages.
        dtype: The type; float32 if None, or float64 if that can't hold them.
    """
    array = as_array(name, value)
    check_numeric(name, array)
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape [n], got {array.shape}")
    original = np.asarray(array)
    dtype = np.dtype(_float_type(array.dtype) if dtype is None else dtype)
    with np.errstate(over="ignore"):
        losses = original.astype(dtype, copy=False)
    # The least and the largest are NaN if one is.
    if len(losses) and not np.isfinite([losses.min(), losses.max()]).all():
        bad = np.flatnonzero(~np.isfinite(losses))
        first = original[bad[0]]
        raise ValueError(
            f"{name} must be finite, but entry {start + bad[0]} is {first}"
            + (f", too large for {dtype}" if np.isfinite(first) else "")
            + f" ({bad.size} in a row of {len(losses)} are not)"
        )
    return losses


def as_benchmark(value: Any, weights: Any = None, *, dtype: Any = None) -> Benchmark:
    """Return the distribution of a benchmark's losses."""
    losses = as_losses("benchmark_losses", value, dtype=dtype)
    if not len(losses):
        raise ValueError("benchmark_losses must hold at least one loss")
    if weights is None:
        ordered = np.sort(losses + 0.0)
        edges = distinct(ordered)
        return Benchmark(edges, np.searchsorted(ordered, edges, "right"))
    name = "benchmark_weights"
    counts = _whole(name, _as_weights(name, weights, len(losses)), _BENCHMARK_UNITS)
    if not counts.any():
        raise ValueError(f"{name} must not all be zero")
    edges, inverse = np.unique(losses[counts > 0] + 0.0, return_inverse=True)
    steps = np.cumsum(np.bincount(inverse, counts[counts > 0])).astype(np.int64)
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
        begun = losses()
        if hasattr(begun, "__next__") and losses() is begun:
            raise ValueError("losses must return a new iterator at each call")
        first: np.ndarray | tuple[Any, ...] = next(iter(begun), ())
        if isinstance(first, tuple) and first:
            first = _pair(first)[0]
        n, dtype, read = None, np.asarray(first).dtype, losses
    else:
        array = as_array("losses", losses)
        if array.ndim != 1 or not len(array):
            raise ValueError(f"losses must have shape [n], n > 0, got {array.shape}")
        n, dtype = len(array), array.dtype
        if weights is not None:
            # Half of the room: rounding may add to the sum.
            units = min(_UNITS, MOST // (2 * benchmark.total))
            weights = _whole("weights", _as_weights("weights", weights, n), units)
        read = _Cut(array, weights)
    dtype = np.result_type(benchmark.edges, _float_type(dtype))
    benchmark = Benchmark(benchmark.edges.astype(dtype), benchmark.steps)

    chunks = _Chunks(read, dtype, n, progress)
    if n is None or n > IN_MEMORY:
        return Streamed(chunks), benchmark
    whole = joined(chunks())
    return Sorted(*whole) if n < FEW else Streamed(_Whole(whole)), benchmark


# Classes rather than closures, so that they can be sent to other processes.


@dataclasses.dataclass(frozen=True, eq=False)
class _Whole:
    chunk: Chunk

    def __call__(self) -> list[Chunk]:
        return [self.chunk]


@dataclasses.dataclass(frozen=True, eq=False)
class _Cut:
    losses: Any
    weights: np.ndarray | None

    def __call__(self) -> Iterator[Any]:
        for rows in chunk_slices(len(self.losses), _CHUNK):
            losses = self.losses[rows]
            yield losses if self.weights is None else (losses, self.weights[rows])


@dataclasses.dataclass(frozen=True, eq=False)
class _Chunks:
    """Checked chunks of losses, with a progress bar in the first process."""

    read: Callable[[], Iterable[Any]]
    dtype: Any
    n: int | None
    progress: bool

    def __call__(self) -> Iterator[Chunk]:
        total = None if self.n is None else -(-self.n // _CHUNK)
        chunks = track(self.read(), progress=self.progress, label="Losses", total=total)
        return _checked(chunks, self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "progress": False}


def _pair(chunk: tuple[Any, ...]) -> tuple[Any, Any]:
    if len(chunk) != 2:
        raise ValueError(
            f"losses must yield arrays, or pairs of losses and weights, got "
            f"{len(chunk)} values"
        )
    return chunk[0], chunk[1]


def _checked(
    chunks: Iterable[np.ndarray | tuple[Any, ...]], dtype: Any
) -> Iterator[Chunk]:
    start, weighted = 0, None
    for chunk in chunks:
        values, weights = _pair(chunk) if isinstance(chunk, tuple) else (chunk, None)
        if weighted not in (None, weights is not None):
            raise ValueError("losses must yield weights with all chunks or with none")
        weighted = weights is not None
        kind = _float_type(np.asarray(values).dtype)
        if start and np.result_type(kind, dtype) != dtype:
            raise ValueError(
                f"losses must be of one type in all chunks, got {np.dtype(kind)} after "
                f"{np.dtype(dtype)}"
            )
        losses = as_losses("losses", values, start=start, dtype=dtype)
        if weights is not None:
            weights = _as_weights("weights", weights, len(losses))
            weights = _whole("weights", weights, None)
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


def _whole(name: str, weights: np.ndarray, units: int | None) -> np.ndarray:
    """Return weights as whole numbers, int64: rounded, where they are not, to `units`.

    Raises:
        ValueError: If they are not, and `units` is None; or if they exceed 2^62.
    """
    total = weights.sum(dtype=np.float64)
    if weights.dtype.kind not in "iub" and np.any(weights != np.floor(weights)):
        if units is None:
            raise ValueError(f"{name} of losses in chunks must be whole numbers")
        weights = np.rint(weights.astype(np.float64) * (units / total))
    elif total > MOST:
        raise ValueError(f"{name} must add up to at most 2^62, got {total:g}")
    return weights.astype(np.int64)


def _float_type(dtype: Any) -> Any:
    narrow = jnp.issubdtype(dtype, jnp.floating) and np.dtype(dtype).itemsize <= 4
    return np.float32 if narrow else np.float64
