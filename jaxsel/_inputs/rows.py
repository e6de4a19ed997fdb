"""Rows of a source that need not fit in memory: read by range, by index, in chunks."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from .checks import check_count, check_finite
from .chunk import chunk_slices
from .read_ahead import read_ahead
from .show import brief

if TYPE_CHECKING:
    import numpy.typing as npt


class Block(NamedTuple):
    """Some rows: features `[b, ...]`, and labels `[b]` or None."""

    features: np.ndarray
    labels: np.ndarray | None


@brief
class RowChunk(NamedTuple):
    """Consecutive rows of a pass.

    Attributes:
        start: Number of the first of them.
        features: `[b, ...]`.
        labels: `[b]`, or None where the source has none.
        state: Position of the pass after them, for `Rows.chunks(start=...)`: a mapping
            that JSON can hold.
    """

    start: int
    features: np.ndarray
    labels: np.ndarray | None
    state: dict[str, Any]

    @property
    def stop(self) -> int:
        """Number of the row after the last."""
        return self.start + len(self.features)


class Source(abc.ABC):
    """A source of rows; each kind of file has its own.

    Attributes:
        n: Number of rows, or None if only a pass can tell.
        row_shape: Shape of the features of one row.
        dtype: Their type.
        has_labels: Whether rows have labels.
        labels_apart: Whether labels are in other files than features, so that reading
            both costs two reads.
        about: A description by which a checkpoint recognises other data.
    """

    n: int | None
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    has_labels: bool
    labels_apart: bool = False
    about: Mapping[str, Any]

    @abc.abstractmethod
    def read(self, start: int, stop: int) -> Block:
        """Return rows `start` to `stop`, which exist."""

    def read_features(self, start: int, stop: int) -> np.ndarray:
        return self.read(start, stop).features

    def read_into(self, start: int, stop: int, out: np.ndarray) -> None:
        """Write the features of rows to an array of their shape and type."""
        out[...] = self.read_features(start, stop)

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        labels = self.read(start, stop).labels
        if labels is None:
            raise TypeError("these rows have no labels: name them in open_rows")
        return labels

    def chunks(
        self, chunk_size: int, begin: int, end: int | None, state: Mapping[str, Any]
    ) -> Iterator[RowChunk]:
        """Yield rows `begin + state["row"]` to `end`, numbered from `begin`."""
        length = (self.n or 0) if end is None else end
        first = begin + state["row"]
        for part in chunk_slices(length - first, chunk_size):
            rows = self.read(first + part.start, first + part.stop)
            start = state["row"] + part.start
            yield RowChunk(start, *rows, {"row": start + len(rows.features)})

    def place(self, row: int) -> str:
        """Return where a row is, for errors, such as " (row 3 of part-1.npy)"."""
        del row
        return ""

    def verify(self) -> None:  # noqa: B027 - of many sources nothing can be said
        """Raise a ValueError if the source has changed since it was opened."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Features `[n, ...]`, and labels, of a source that need not fit in memory.

    Made by `jaxsel.data.open_rows`. Functions that work in one pass take it where they
    take arrays: `jaxsel.retrieve`, `filter.streamed_losses`, `streamed_values`. Others
    read it whole, as `np.asarray(rows)` does. Slices, numbers and arrays of numbers
    index it, and each index reads its rows anew.

    Attributes:
        source: The source that it reads from.
        begin: Number of its first row in the source; not 0 after `shard`.
        end: Number after its last row in the source; None if only a pass can tell.
    """

    source: Source
    begin: int = 0
    end: int | None = None

    @property
    def n(self) -> int | None:
        """Number of rows; None for iterators, where only a pass can tell."""
        return None if self.end is None else self.end - self.begin

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the features, `[n, ...]`."""
        return (len(self), *self.source.row_shape)

    @property
    def ndim(self) -> int:
        """Number of axes of the features."""
        return 1 + len(self.source.row_shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the features."""
        return self.source.dtype

    @property
    def about(self) -> dict[str, Any]:
        """Description of the data: paths, sizes, times of change, shape, type."""
        return {**self.source.about, "begin": self.begin, "end": self.end}

    @property
    def labels(self) -> Rows:
        """The labels alone, `[n]`.

        Raises:
            TypeError: If the source has none.
        """
        if not self.source.has_labels:
            raise TypeError(
                "these rows have no labels: say where they are, as in "
                "open_rows(..., labels=...)"
            )
        return Rows(LabelsOf(self.source), self.begin, self.end)

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, (self.n or "?", *self.source.row_shape)))
        name = self.source.about.get("kind", "?")
        return f"Rows({name}, [{sizes}], {self.dtype})"

    def __len__(self) -> int:
        return self._known("len")

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> np.ndarray:
        del copy
        if self.end is not None:
            features = self.read(0, len(self))
        else:
            parts = [part.features for part in self.chunks(4096, check=False)]
            features = np.concatenate(parts)
        return features if dtype is None else features.astype(dtype, copy=False)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return the features of a row, a slice of rows, or rows by their numbers."""
        n = self._known("indexing")
        if isinstance(rows, slice):
            start, stop, step = rows.indices(n)
            if step == 1:
                return self.read(start, max(start, stop))
            return self.take(np.arange(start, stop, step))
        # A tuple would mean several axes.
        index = np.asarray(None if isinstance(rows, tuple) else rows)
        if index.dtype == bool and index.shape == (n,):
            index = np.flatnonzero(index)
        if not index.size and index.ndim == 1:
            index = index.astype(np.int64)
        if index.dtype.kind not in "iu" or index.ndim > 1:
            raise TypeError(
                "rows must be indexed by a slice, a number, an array of numbers or a "
                f"mask of shape ({n},), got {rows!r}"
            )
        features = self.take(index.reshape(-1))
        return features if index.ndim else features[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the features of rows `start` to `stop`, `[stop - start, ...]`.

        Raises:
            ValueError: If there are no such rows, or the source has changed.
        """
        n = self._known("read")
        if not 0 <= start <= stop <= n:
            raise ValueError(
                f"start and stop must be 0 to {n}, in this order, got {start} and "
                f"{stop}"
            )
        if start == stop:
            return np.empty((0, *self.source.row_shape), self.dtype)
        return self.source.read_features(self.begin + start, self.begin + stop)

    def read_into(self, start: int, stop: int, out: np.ndarray) -> None:
        """Write the features of rows, which exist, to an array of their type."""
        self.source.read_into(self.begin + start, self.begin + stop, out)

    def read_both(self, start: int, stop: int) -> Block:
        """Return features and labels of rows `start` to `stop`, which exist."""
        return self.source.read(self.begin + start, self.begin + stop)

    def take(self, indices: npt.ArrayLike) -> np.ndarray:
        """Return the features of rows by their numbers, in the order asked for.

        Reads them in the order of the source, consecutive ones together.

        Args:
            indices: `[m]`; negative ones count from the end.

        Raises:
            IndexError: If there is no such row.
        """
        n = self._known("take")
        rows = np.asarray(indices, np.int64).reshape(-1)
        if rows.size and not (-n <= rows.min() and rows.max() < n):
            wrong = rows[(rows < -n) | (rows >= n)][0]
            raise IndexError(f"indices must be rows from 0 to {n - 1}, got {wrong}")
        features = np.empty((len(rows), *self.source.row_shape), self.dtype)
        if not len(rows):
            return features
        order, back = np.unique(rows % n, return_inverse=True)
        ends = np.flatnonzero(np.diff(order) != 1) + 1
        runs = (
            self.read(int(run[0]), int(run[-1]) + 1) for run in np.split(order, ends)
        )
        return np.concatenate([*runs])[back.reshape(-1)]

    def chunks(
        self,
        chunk_size: int,
        *,
        start: int | Mapping[str, Any] = 0,
        ahead: int = 1,
        check: bool = True,
    ) -> Generator[RowChunk, None, None]:
        """Read all rows once, in order, a chunk at a time.

        A thread reads the next chunks meanwhile. It ends with the pass, and when the
        generator is closed, as by `contextlib.closing`. Memory for `ahead` chunks and
        the two at work.

        Args:
            chunk_size: Rows in each chunk; the last one may have fewer.
            start: Row to begin with, or the `state` of the last chunk that was used.
                With a state, an iterator of grain goes on where it was; other
                iterators are read again up to there.
            ahead: Most chunks that the thread may hold; 0 reads without a thread.
            check: Whether to refuse NaN and infinity.

        Yields:
            Chunks of features and labels, with their first row and the next state.

        Raises:
            ValueError: If a number is out of range, if a feature is NaN or infinite,
                or if the source changed since it was opened; at the end of the pass at
                the latest.
        """
        chunk_size = check_count("chunk_size", chunk_size)
        ahead = check_count("ahead", ahead, minimum=0)
        state = _as_state(start, self.n)
        checked = self._checked(chunk_size, state, check)
        with contextlib.closing(read_ahead(checked, ahead)) as chunks:
            yield from chunks

    def shard(self, index: int | None = None, count: int | None = None) -> Rows:
        """Return one of `count` parts of nearly equal size, of consecutive rows.

        Row 0 of the part is row `begin` of the source.

        Args:
            index: Number of the part, from 0 on; `jax.process_index()` if None.
            count: Number of parts; `jax.process_count()` if None.

        Raises:
            ValueError: If a number is out of range, or there are fewer rows than parts.
            TypeError: If only a pass can tell how many rows there are.
        """
        count = jax.process_count() if count is None else check_count("count", count)
        index = jax.process_index() if index is None else index
        index = check_count("index", index, minimum=0)
        if index >= count:
            raise ValueError(f"index must be below count = {count}, got {index}")
        n = self._known("shard")
        if count > n:
            raise ValueError(f"count must be at most {n}, one row a part, got {count}")
        cut = [self.begin + n * part // count for part in (index, index + 1)]
        return Rows(self.source, *cut)

    def _known(self, what: str) -> int:
        if self.end is None:
            raise TypeError(
                f"{what} needs to know how many rows there are, and an iterator does "
                "not say: pass a source with a length, such as a grain.MapDataset, or "
                "use chunks"
            )
        return self.end - self.begin

    def _checked(
        self, chunk_size: int, state: Mapping[str, Any], check: bool
    ) -> Iterator[RowChunk]:
        last = state["row"]
        for chunk in self.source.chunks(chunk_size, self.begin, self.end, state):
            if check:
                self._check_finite(chunk)
            yield chunk
            last = chunk.stop
        if not last:
            raise ValueError(f"{self!r} must not be empty, got no rows")
        self.source.verify()

    def _check_finite(self, chunk: RowChunk) -> None:
        """Refuse NaN and infinity, naming the row, and where it is."""
        try:
            check_finite("features", chunk.features)
        except ValueError:
            rows = np.asarray(chunk.features, np.float64).reshape(
                len(chunk.features), -1
            )
            bad = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
            row = chunk.start + bad
            raise ValueError(
                f"features must be finite, but row {row} has NaN or infinity"
                f"{self.source.place(self.begin + row)}"
            ) from None


class LabelsOf(Source):
    """The labels of another source, as rows of their own."""

    def __init__(self, source: Source):
        self.source, self.n = source, source.n
        self.row_shape, self.has_labels = (), False
        self.about = {**source.about, "labels only": True}

    @property
    def dtype(self) -> np.dtype[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.n is not None:
            return self.source.read_labels(0, 1).dtype
        chunk = next(iter(self.source.chunks(1, 0, None, {"row": 0})))
        return np.asarray(chunk.labels).dtype

    def read(self, start: int, stop: int) -> Block:
        return Block(self.source.read_labels(start, stop), None)

    def chunks(
        self, chunk_size: int, begin: int, end: int | None, state: Mapping[str, Any]
    ) -> Iterator[RowChunk]:
        if self.n is not None:
            yield from super().chunks(chunk_size, begin, end, state)
            return
        for chunk in self.source.chunks(chunk_size, begin, end, state):
            yield chunk._replace(features=np.asarray(chunk.labels), labels=None)

    def place(self, row: int) -> str:
        return self.source.place(row)

    def verify(self) -> None:
        self.source.verify()


def in_step(features: Any, labels: Rows) -> bool:
    """Return whether features and labels are of the same rows, so one read has both."""
    return (
        isinstance(features, Rows)
        and isinstance(labels.source, LabelsOf)
        and labels.source.source is features.source
        and (labels.begin, labels.end) == (features.begin, features.end)
    )


def _as_state(start: int | Mapping[str, Any], n: int | None) -> Mapping[str, Any]:
    """Return a state of `RowChunk` for a row number or a state."""
    if isinstance(start, Mapping):
        if "row" not in start:
            raise ValueError(
                f"start must be a row or the state of a chunk, got {dict(start)!r}"
            )
        state = dict(start)
    else:
        state = {"row": start}
    row = check_count("start", state["row"], minimum=0)
    if n is not None and row > n:
        raise ValueError(f"start must be at most n = {n}, got {row}")
    return state | {"row": row}
