"""Chunks of candidates: read, converted and filled up one at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import AXIS
from jaxsel._inputs.checks import as_type
from jaxsel._inputs.chunk import chunk_rows, chunk_slices
from jaxsel._inputs.read_ahead import read_ahead
from jaxsel._inputs.rows import RowChunk, Rows
from jaxsel.neighbors import Metric

from ._stream import LARGEST, MOST, Codes, Stream, subtract

# Most entries of a chunk's features, and of its distances, on each device: on
# a CPU 25 MB of features, below which malloc hands out the same pages again.
_ENTRIES = {"cpu": (6 * 2**20, 2**22)}
_ENTRIES_ELSEWHERE = 2**26, 2**26
_ALIGNMENT = 64


class Part(NamedTuple):
    """A chunk, in its form on the devices.

    Attributes:
        features: `[rows, d]`; or flat, where they are read in place: `rows * d` entries
            from `shift` on. Filled up with zeros.
        codes: Classes, `[rows]`, or None.
    """

    features: Any
    codes: np.ndarray | None


class Loaded(NamedTuple):
    """A loaded chunk.

    Attributes:
        chunk: Which one.
        part: Its candidates.
        shift: Where they begin in `part`, if it is flat.
        filled: How many of its rows are candidates.
    """

    chunk: Chunk
    part: Part
    shift: np.int32
    filled: np.int32


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Candidates `start` to `stop` of a stream, filled up to `rows` when loaded.

    Attributes:
        state: Where the pass goes on after them: the `state` of `RowChunk`.
        given: The candidates, where they came from an iterator.
        in_place: Whether to hand NumPy features to the device without copying them.
        mesh: Devices of several processes, each of which reads its own rows; or None.
    """

    stream: Stream
    start: int
    stop: int
    rows: int
    state: dict[str, Any]
    given: RowChunk | None = None
    in_place: bool = False
    mesh: jax.sharding.Mesh | None = None

    def load(self) -> Loaded:
        """Read the chunk."""
        filled, shift = self.stop - self.start, 0
        if self.mesh is not None:
            part = self._local(self.mesh)
        elif (flat := self._unconverted()) is not None:
            codes = self.stream.codes
            if isinstance(codes, Codes):
                labels = codes.labels.read(self.start, self.stop)
                codes = codes.of(labels, self.start)
            elif codes is not None:
                codes = codes[self.start : self.stop]
            codes = None if codes is None else _fill(codes, self.rows)
            part = Part(jax.device_put(flat, may_alias=True), codes)
        else:
            raw, codes = self._read(self.start, self.stop)
            if codes is not None:
                codes = _fill(codes, self.rows)
            x = self.stream.features
            if self.in_place and not isinstance(x, jax.Array):
                whole = x if isinstance(x, np.ndarray) else None
                flat, shift = self._flat(raw, whole)
                features = jax.device_put(flat, may_alias=True)
            else:
                features = _fill(self._floats(raw), self.rows)
            part = Part(features, codes)
        return Loaded(self, part, np.int32(shift), np.int32(filled))

    def _unconverted(self) -> np.ndarray | None:
        """Read features into an aligned buffer; None if they need a conversion."""
        x, codes = self.stream.features, self.stream.codes
        if not (self.in_place and isinstance(x, Rows)) or self.given is not None:
            return None
        dtype = np.dtype(self.stream.float_type)
        both = isinstance(codes, Codes) and codes.with_features
        if (both and not x.source.labels_apart) or x.dtype != dtype:
            return None
        d, spare = self.stream.d, _ALIGNMENT // dtype.itemsize
        size, filled = self.rows * d + spare, (self.stop - self.start) * d
        # JAX on a CPU aliases NumPy memory only from a multiple of 64 bytes on.
        room = np.empty(size + spare, dtype)
        first = -room.ctypes.data % _ALIGNMENT // dtype.itemsize
        flat = room[first : first + size]
        x.read_into(self.start, self.stop, flat[:filled].reshape(-1, d))
        flat[filled:] = 0
        return flat

    def _read(self, start: int, stop: int) -> tuple[Any, np.ndarray | None]:
        """Return features as they are, and classes, of candidates of this chunk."""
        x, codes = self.stream.features, self.stream.codes
        if self.given is not None:
            rows = slice(start - self.start, stop - self.start)
            raw, labels = self.given.features[rows], self.given.labels
            labels = None if labels is None else labels[rows]
        elif isinstance(codes, Codes) and codes.with_features and isinstance(x, Rows):
            raw, labels = x.read_both(start, stop)
        else:
            raw = x[start:stop]
            is_read = isinstance(codes, Codes)
            labels = codes.labels.read(start, stop) if is_read else None
        if not isinstance(codes, Codes):
            return raw, None if codes is None else codes[start:stop]
        if labels is None:
            raise TypeError("labels must come with the features, got none")
        return raw, codes.of(labels, start)

    def _local(self, mesh: jax.sharding.Mesh) -> Part:
        """Return arrays split over processes; each reads only its own rows."""
        split = jax.NamedSharding(mesh, jax.P(AXIS))
        read = functools.lru_cache(maxsize=None)(self._filled)

        def take(index: Any, which: int) -> Any:
            start, stop, _ = index[0].indices(self.rows)
            return read(start, stop)[which]

        features = jax.make_array_from_callback(
            (self.rows, self.stream.d), split, functools.partial(take, which=0)
        )
        if self.stream.codes is None:
            return Part(features, None)
        codes: Any = jax.make_array_from_callback(
            (self.rows,), split, functools.partial(take, which=1)
        )
        return Part(features, codes)

    def _filled(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return rows `first` to `last` of the chunk, zeros where it has none."""
        start, stop = (min(self.start + row, self.stop) for row in (first, last))
        if start == stop:
            features = np.zeros((0, self.stream.d), self.stream.float_type)
            codes = None if self.stream.codes is None else np.zeros(0, np.int32)
        else:
            raw, codes = self._read(start, stop)
            features = np.asarray(self._floats(raw))
        size = last - first
        return _fill(features, size), None if codes is None else _fill(codes, size)

    def _floats(self, part: Any) -> np.ndarray | jax.Array:
        if self.stream.centre_here and self.stream.centre is not None:
            part = subtract(part, self.stream.centre)
        if isinstance(part, jax.Array):
            return part.astype(self.stream.float_type)
        return as_type(part, self.stream.float_type)

    def _flat(self, raw: np.ndarray, features: np.ndarray | None) -> tuple[Any, int]:
        """Return the features as a flat array that JAX on a CPU takes without a copy.

        For that it must begin on a whole multiple of 64 bytes. Arrays mostly do not,
        so it begins up to 63 bytes before the chunk does. Copying took a fifth of the
        time of a search.

        Args:
            raw: Those of this chunk.
            features: All of them, if they are in memory or mapped.
        """
        dtype, d = np.dtype(self.stream.float_type), raw.shape[1]
        size, spare = self.rows * d, _ALIGNMENT // dtype.itemsize
        if features is not None and features.dtype == dtype and _is_plain(features):
            flat = np.asarray(features).reshape(-1)
            first = self.start * d
            shift = flat[first:].ctypes.data % _ALIGNMENT // dtype.itemsize
            begin = first - shift
            if begin >= 0 and begin + size + spare <= flat.size:
                return flat[begin : begin + size + spare], shift
        part = np.asarray(self._floats(raw)).reshape(-1)
        return _fill(part, size + spare), 0

    def refuse(self) -> NoReturn:
        """Raise the error for non-finite or too large features, naming the row."""
        raw, _ = self._read(self.start, self.stop)
        part = np.asarray(raw, np.float64)
        bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
        first = self.start + int(bad[0]) if bad.size else None
        row = self.start + int(np.abs(part).max(axis=1).argmax())
        refuse(self.stream.metric, first, row, self.stream.features)


def refuse(
    metric: Metric, bad: int | None, large: int, features: Any = None
) -> NoReturn:
    """Raise the error for candidates with NaN, infinity or too large numbers.

    Args:
        metric: "l2" or "cosine".
        bad: The first that has NaN or infinity, or None.
        large: The row with the largest absolute value.
        features: Where they are, if these are rows of a source.
    """
    place = ""
    if isinstance(features, Rows):
        row = large if bad is None else bad
        place = features.source.place(features.begin + row)
    if bad is not None:
        raise ValueError(
            f"features must be finite, but row {bad} has NaN or infinity{place}"
        )
    if metric == "cosine":
        raise ValueError(
            f"features must fit float32, but row {large}{place} has larger absolute "
            "values; rescale features"
        )
    raise ValueError(
        "features must have squares that fit float32: absolute values up to "
        f"{LARGEST:g}, but row {large}{place} has larger ones; rescale "
        "features and hard_features"
    )


def rows_at_once(stream: Stream, *, chunk_size: int | None, devices: int) -> int:
    """Return the rows of a chunk; shorter chunks are padded to it."""
    limits = _ENTRIES.get(jax.default_backend(), _ENTRIES_ELSEWHERE)
    most = max(1, min(limits[0] // stream.d, limits[1] // len(stream.queries)))
    n = stream.n if not stream.is_iterator else chunk_size or most * devices
    return chunk_rows(n, 1, chunk_size=chunk_size, devices=devices, entries=most)


def load_chunks(
    stream: Stream,
    rows: int,
    *,
    mesh: jax.sharding.Mesh | None,
    start: Mapping[str, Any] | None = None,
) -> Generator[Loaded, None, None]:
    """Read a stream in chunks of one shape, the last one shorter before padding.

    Rows of a source are read ahead by a thread: close this if the loop may be left.

    Args:
        stream: The candidates.
        rows: How many a chunk has.
        mesh: Devices that share them, or None.
        start: The `state` of the last chunk that was used, to go on after it.
    """
    x = stream.features
    spread_out = mesh is not None and not _is_here(mesh)
    make = functools.partial(
        Chunk,
        stream,
        rows=rows,
        in_place=mesh is None and jax.default_backend() == "cpu",
        mesh=mesh if spread_out and isinstance(x, Rows) else None,
    )
    state = dict(start or {"row": 0})
    if isinstance(x, Rows) and x.n is None:
        chunks = _iterated(x, make, rows, state)
    else:
        first = int(state["row"])
        chunks = (
            make(
                first + part.start, first + part.stop, state={"row": first + part.stop}
            )
            for part in chunk_slices(stream.n - first, rows)
        )
    loaded = (chunk.load() for chunk in chunks)
    pending = read_ahead(loaded, 1) if isinstance(x, Rows) else loaded
    with contextlib.closing(pending):
        yield from pending
    for source in (x, stream.codes.labels if isinstance(stream.codes, Codes) else None):
        if isinstance(source, Rows):
            source.source.verify()


def _iterated(
    x: Rows, make: Callable[..., Chunk], rows: int, state: Mapping[str, Any]
) -> Iterator[Chunk]:
    for part in x.chunks(rows, start=state, ahead=0, check=False):
        if part.stop > MOST:
            raise ValueError(f"features must have at most {MOST} rows, got more")
        yield make(part.start, part.stop, state=part.state, given=part)


def _is_plain(features: np.ndarray) -> bool:
    return features.flags.c_contiguous and features.flags.aligned


def _is_here(mesh: jax.sharding.Mesh) -> bool:
    """Return whether this process has all devices of a mesh."""
    return jax.NamedSharding(mesh, jax.P()).is_fully_addressable


def _fill(array: Any, length: int) -> Any:
    """Append zeros until there are `length` entries on the first axis."""
    missing = length - len(array)
    if not missing:
        return array
    shape = (missing, *array.shape[1:])
    if isinstance(array, jax.Array):
        return jnp.concatenate([array, jnp.zeros(shape, array.dtype)])
    return np.concatenate([array, np.zeros(shape, array.dtype)])
