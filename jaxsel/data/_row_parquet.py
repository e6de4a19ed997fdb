"""Rows of parquet files, read batch by batch within their row groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel._inputs.frames import is_index
from jaxsel._inputs.rows import Block
from jaxsel._inputs.usual_mistakes import no_doubts
from jaxsel.tables import TableEncoder

from ._row_files import Stamp

_ENTRIES = 2**20  # numbers that are decoded together
# Through a buffer, a column of a row group is not read whole. Checksums are verified
# where a file has them.
_OPTIONS: dict[str, Any] = {
    "buffer_size": 1 << 20,
    "pre_buffer": False,
    "page_checksum_verification": True,
}


class ParquetFile:
    """Columns of a parquet file. Reading on from where the last read ended is fast.

    Elsewhere a read begins at the row group that holds its first row.
    """

    def __init__(
        self,
        path: Path,
        features: str | Sequence[str] | TableEncoder | None,
        label_column: str | None,
    ):
        self._encoder: TableEncoder | None = None
        if isinstance(features, TableEncoder):
            self._encoder, features = features, features.columns
        pa, pq = _arrow(path)
        self.stamp, self._errors = Stamp(path), (pa.lib.ArrowException, OSError)
        self._label = label_column
        with self._naming(), self._opened(pq) as file:
            schema = file.schema_arrow
            counts = [
                file.metadata.row_group(i).num_rows
                for i in range(file.metadata.num_row_groups)
            ]
            self._columns = self._choose(schema.names, features)
            kinds = [schema.field(name).type for name in self._columns]
            if self._encoder is None:
                for name, kind in zip(self._columns, kinds, strict=True):
                    _check_numeric(path, name, kind, pa)
            self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            self.n = int(self._starts[-1])
            self.label_dtype: str | None = None
            if label_column is not None:
                self.label_dtype = str(schema.field(label_column).type)
            self.dtype = np.dtype(np.float64)
            if self._encoder is None:
                self.dtype = np.result_type(*(_numpy_type(kind) for kind in kinds))
            # The name of one column of numbers gives `[n]`, a list of names `[n, d]`.
            self._flat = isinstance(features, str) and not _is_list(kinds[0], pa)
        self._pq, self._pa, self._widths = pq, pa, dict[str, int]()
        self._file: Any = None
        self._rest: Iterator[Block] = iter(())
        self._held: Block | None = None
        self._next = 0  # the row that comes first in `_held`, and then in `_rest`
        self._batch = 64
        self._checked = False
        self.row_shape = self._shape()
        self._batch = max(1, min(2**16, _ENTRIES // max(1, *self.row_shape, 1)))
        self.close()

    def read(self, start: int, stop: int, *, features: bool, labels: bool) -> Block:
        del features, labels
        self.stamp.check()
        with self._naming():
            return self._rows(start, stop)

    def read_into(self, start: int, stop: int, out: np.ndarray) -> None:
        """Write the features of some rows to an array."""
        out[...] = self.read(start, stop, features=True, labels=False).features

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._held, self._rest = None, None, iter(())

    def _rows(self, start: int, stop: int) -> Block:
        if (
            self._file is None
            or start < self._next
            or self._group(start) > self._group(self._next)
        ):
            self._seek(start)
        parts: list[Block] = []
        while self._next < stop:
            if self._held is None:
                self._held = next(self._rest, None)
            if self._held is None:
                raise ValueError(f"{self.stamp.path} has fewer rows than it says")
            have = len(self._held.features)
            skip = min(have, max(0, start - self._next))
            end = min(have, stop - self._next)
            if end > skip:
                parts.append(Block(*(_cut(part, skip, end) for part in self._held)))
            self._held = (
                Block(*(_cut(part, end, have) for part in self._held))
                if end < have
                else None
            )
            self._next += end
        if len(parts) == 1:
            return parts[0]
        feature_parts, names = zip(*parts, strict=True)
        return Block(
            np.concatenate(feature_parts),
            None if names[0] is None else np.concatenate(names),
        )

    def _group(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _seek(self, row: int) -> None:
        self.close()
        group = self._group(row)
        self._file = self._opened(self._pq)
        self._next = int(self._starts[group])
        names = [*self._columns, *([] if self._label is None else [self._label])]
        batches = self._file.iter_batches(
            batch_size=self._batch,
            row_groups=list(range(group, len(self._starts) - 1)),
            columns=list(dict.fromkeys(names)),
        )
        self._rest = self._decoded(batches, self._next)

    def _decoded(self, batches: Iterator[Any], first: int) -> Iterator[Block]:
        for batch in batches:
            if self._encoder is not None:
                features = self._encoded(self._encoder, batch, first)
            else:
                columns = [self._numbers(batch, name, first) for name in self._columns]
                features = columns[0][:, 0] if self._flat else np.hstack(columns)
            labels = None
            if self._label is not None:
                labels = self._labels(batch.column(self._label), first)
            yield Block(np.ascontiguousarray(features, self.dtype), labels)
            first += len(features)

    def _encoded(self, encoder: TableEncoder, batch: Any, first: int) -> np.ndarray:
        """Return the columns of a batch as an encoder makes them, `[b, d]`."""
        try:
            with no_doubts() if self._checked else contextlib.nullcontext():
                features = encoder.transform(batch.select(self._columns))
            self._checked = True  # warn of the first batch only
            return features
        except ValueError as error:
            last = first + batch.num_rows - 1
            raise ValueError(
                f"{self.stamp.path}, rows {first} to {last}: {error}"
            ) from error

    def _numbers(self, batch: Any, name: str, first: int) -> np.ndarray:
        """Return a column of a batch, `[b, width]`."""
        column = batch.column(name)
        self._check_whole(column, name, first)
        if not _is_list(column.type, self._pa):
            return column.to_numpy(zero_copy_only=False)[:, None]
        inner = column.flatten()
        if not self._pa.types.is_fixed_size_list(column.type):
            lengths = column.value_lengths().to_numpy()
            width = self._widths.setdefault(name, int(lengths[0]))
            if (lengths != width).any():
                bad = int(np.flatnonzero(lengths != width)[0])
                raise ValueError(
                    f"{self.stamp.path} must have lists of one length, {width}, in "
                    f"column {name!r}, but row {first + bad} has {lengths[bad]} numbers"
                )
        self._check_whole(inner, name, first, len(inner) // len(column))
        return inner.to_numpy(zero_copy_only=False).reshape(len(column), -1)

    def _labels(self, column: Any, first: int) -> np.ndarray:
        self._check_whole(column, self._label or "", first)
        if self._pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        values = column.to_numpy(zero_copy_only=False)
        return values.astype(str) if values.dtype == object else values

    def _check_whole(self, column: Any, name: str, first: int, each: int = 1) -> None:
        """Raise if there are nulls in the numbers of rows, `each` of them in a row."""
        if column.null_count:
            bad = int(
                np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]
            )
            raise ValueError(
                f"{self.stamp.path} must have no nulls, but column {name!r} is null in "
                f"row {first + bad // each}"
            )

    def _shape(self) -> tuple[int, ...]:
        if self._flat or not self.n:
            return ()
        with self._naming():
            self._seek(0)
            self._held = next(self._rest)
        return self._held.features.shape[1:]

    def _choose(
        self, names: list[str], features: str | Sequence[str] | None
    ) -> list[str]:
        if features is None:
            wanted = [n for n in names if n != self._label and not is_index(n)]
        else:
            wanted = [features] if isinstance(features, str) else list(features)
        label = [] if self._label is None else [self._label]
        missing = [name for name in (*wanted, *label) if name not in names]
        if missing or not wanted:
            absent = ", ".join(map(repr, missing)) or "to take as features"
            raise ValueError(
                f"{self.stamp.path} has no column {absent}; it has {', '.join(names)}"
            )
        return wanted

    def _opened(self, pq: Any) -> Any:
        return pq.ParquetFile(self.stamp.path, **_OPTIONS)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Name the file in pyarrow's errors, which don't."""
        try:
            yield
        except self._errors as error:
            raise ValueError(
                f"{self.stamp.path} is no parquet file, or is damaged: {error}"
            ) from error


def _cut(part: np.ndarray | None, start: int, stop: int) -> Any:
    return None if part is None else part[start:stop]


def _is_list(kind: Any, pa: Any) -> bool:
    types = pa.types
    return (
        types.is_fixed_size_list(kind)
        or types.is_list(kind)
        or types.is_large_list(kind)
    )


def _numpy_type(kind: Any) -> np.dtype[Any]:
    return np.dtype(getattr(kind, "value_type", kind).to_pandas_dtype())


def _check_numeric(path: Path, name: str, kind: Any, pa: Any) -> None:
    inner = kind.value_type if _is_list(kind, pa) else kind
    types = pa.types
    if not (
        types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)
    ):
        raise TypeError(
            f"{path} must have numeric features, but column {name!r} holds {kind}: "
            "name the columns to take, as in open_rows(..., features=[...])"
        )


def _arrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            f"reading {path} needs pyarrow: pip install 'jaxsel[stream]'"
        ) from error
    return pa, pq
