"""Rows in files: the protocol of file formats, and `.npy` files."""

from __future__ import annotations

import contextlib
import io
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jaxsel._files.npy import DAMAGED
from jaxsel._inputs.rows import Block, Source


class Stamp:
    """Size and time of change of a file, by which a change is noticed."""

    def __init__(self, path: Path):
        self.path = path
        self.found = self._now()

    def _now(self) -> tuple[int, int]:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path} is not there") from None
        return status.st_size, status.st_mtime_ns

    def check(self) -> None:
        """Raise if the file has changed or is gone."""
        try:
            now = self._now()
        except FileNotFoundError:
            raise ValueError(f"{self.path} has vanished since it was opened") from None
        if now != self.found:
            raise ValueError(
                f"{self.path} has changed since it was opened: size and time of change "
                f"(ns) were {self.found}, and are {now}"
            )

    @property
    def about(self) -> list[Any]:
        return [os.fspath(self.path), *self.found]


class File(Protocol):
    """One file of rows.

    Attributes:
        stamp: Its path, size and time of change, by which changes are noticed.
        n: Number of rows; may be 0.
        row_shape: Shape of the features of a row.
        dtype: Their type.
        label_dtype: Type of the labels, or None.
    """

    stamp: Stamp
    n: int
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    label_dtype: str | None

    def read(self, start: int, stop: int, *, features: bool, labels: bool) -> Block:
        """Return rows from `start` to `stop`; a part not asked for may be empty."""
        ...

    def read_into(self, start: int, stop: int, out: np.ndarray) -> None:
        """Write the features of some rows to an array."""
        ...

    def close(self) -> None:
        """Let go of the file, which the next read opens again."""
        ...


class Files(Source):
    """Rows of one file after the other. One file is open at a time."""

    def __init__(self, kind: str, files: Sequence[File]):
        first = next((file for file in files if file.n), files[0])
        for file in files:
            for name in ("row_shape", "dtype", "label_dtype"):
                expected, theirs = getattr(first, name), getattr(file, name)
                if expected != theirs and (file.n or name != "row_shape"):
                    raise ValueError(
                        "all files must hold rows of one shape and type, but "
                        f"{first.stamp.path} has {name} {expected} and "
                        f"{file.stamp.path} has {theirs}"
                    )
        self.files = files
        self.ends = np.cumsum([file.n for file in files])
        self.n = int(self.ends[-1])
        self.row_shape, self.dtype = first.row_shape, first.dtype
        self.has_labels = first.label_dtype is not None
        self.about: Mapping[str, Any] = {
            "kind": kind,
            "files": [file.stamp.about for file in files],
            "n": self.n,
            "shape": list(self.row_shape),
            "dtype": str(self.dtype),
            "labels": first.label_dtype,
        }
        self._open: File | None = None
        self._lock = threading.Lock()  # a file has one position

    def read(self, start: int, stop: int) -> Block:
        return self._read(start, stop, features=True, labels=self.has_labels)

    def read_features(self, start: int, stop: int) -> np.ndarray:
        return self._read(start, stop, features=True, labels=False).features

    def read_into(self, start: int, stop: int, out: np.ndarray) -> None:
        with self._lock:
            for file, first, last in self._parts(start, stop):
                file.read_into(first, last, out[: last - first])
                out = out[last - first :]

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        if not self.has_labels:
            return super().read_labels(start, stop)
        labels = self._read(start, stop, features=False, labels=True).labels
        assert labels is not None
        return labels

    def _read(self, start: int, stop: int, *, features: bool, labels: bool) -> Block:
        with self._lock:
            blocks = [
                file.read(first, last, features=features, labels=labels)
                for file, first, last in self._parts(start, stop)
            ]
        if len(blocks) == 1:
            return blocks[0]
        feature_parts, label_parts = zip(*blocks, strict=True)
        return Block(
            np.concatenate(feature_parts) if features else feature_parts[0],
            np.concatenate(label_parts) if labels else None,
        )

    def _parts(self, start: int, stop: int) -> Iterator[tuple[File, int, int]]:
        """Yield the files that hold some rows, each with its own of them."""
        index = int(np.searchsorted(self.ends, start, side="right"))
        while start < stop:
            file = self.files[index]
            before = int(self.ends[index]) - file.n
            last = min(stop, int(self.ends[index]))
            if file.n:
                if self._open is not None and self._open is not file:
                    self._open.close()
                self._open = file
                yield file, start - before, last - before
            start, index = last, index + 1

    def place(self, row: int) -> str:
        if len(self.files) == 1:
            return ""
        with self._lock:
            ((file, first, _),) = self._parts(row, row + 1)
        return f" (row {first} of {file.stamp.path})"

    def verify(self) -> None:
        for file in self.files:
            file.stamp.check()


class NpyFile:
    """The array of an `.npy` file, read by range.

    Not memory-mapped: pages of a map count as the process's memory, and a file that is
    cut short while it is mapped ends the process.
    """

    def __init__(self, path: Path):
        self.stamp = Stamp(path)
        with path.open("rb") as file:
            shape, self._fortran, self.dtype = _read_header(path, file)
            self._offset = file.tell()
        if not shape:
            raise ValueError(f"{path} must hold rows, got a single number")
        self.n, self.row_shape = shape[0], shape[1:]
        self.label_dtype: str | None = None
        if self._fortran and len(shape) > 2:
            raise ValueError(
                f"{path} is in Fortran order and has {len(shape)} axes: save it again "
                "with numpy.ascontiguousarray"
            )
        expected = self._offset + math.prod(shape) * self.dtype.itemsize
        size = self.stamp.found[0]
        if size < expected:
            raise ValueError(
                f"{path} is cut short: an array of shape {shape} and type {self.dtype} "
                f"takes {expected} bytes, and it has {size}"
            )

    def read(self, start: int, stop: int, *, features: bool, labels: bool) -> Block:
        del features, labels
        rows = np.empty((stop - start, *self.row_shape), self.dtype)
        self.read_into(start, stop, rows)
        return Block(rows, None)

    def read_into(self, start: int, stop: int, out: np.ndarray) -> None:
        """Write some rows to an array in C order."""
        self.stamp.check()
        try:
            with self.stamp.path.open("rb", buffering=0) as file:
                if not self._fortran or out.ndim == 1:
                    self._fill(file, out, start * math.prod(self.row_shape))
                else:
                    column = np.empty(stop - start, self.dtype)
                    for j in range(out.shape[1]):
                        self._fill(file, column, j * self.n + start)
                        out[:, j] = column
        except OSError as error:
            raise ValueError(f"{self.stamp.path} cannot be read: {error}") from error
        self.stamp.check()

    def close(self) -> None:
        """Do nothing: the file is open during a read only."""

    def _fill(self, file: io.FileIO, array: Any, entry: int) -> None:
        """Read entries of the file, from one on, into an array."""
        if not array.nbytes:
            return
        unread = memoryview(array.reshape(-1)).cast("B")
        file.seek(self._offset + entry * self.dtype.itemsize)
        while unread and (count := file.readinto(unread)):
            unread = unread[count:]
        if unread:
            raise ValueError(f"{self.stamp.path} was cut short while it was read")


def _read_header(path: Path, file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(file)
        if min(shape, default=0) < 0:
            raise ValueError(f"its header has the shape {shape}")
    except DAMAGED as error:
        raise ValueError(f"{path} is no .npy file, or is damaged: {error}") from error
    if dtype.hasobject:
        raise ValueError(
            f"{path} holds Python objects: save numbers, and texts with astype(str)"
        )
    return shape, fortran, dtype


class Tree:
    """Sizes and times of change of all files in a folder, and those below it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.found = self._now()

    def _now(self) -> dict[str, tuple[int, int]]:
        statuses: dict[str, tuple[int, int]] = {}
        for place, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(place, name)
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(path)
                    statuses[path] = status.st_size, status.st_mtime_ns
        return statuses

    def check(self) -> None:
        """Raise if a file of the folder has changed, appeared or vanished."""
        now = self._now()
        differ = [k for k in self.found | now if self.found.get(k) != now.get(k)]
        if differ:
            raise ValueError(
                f"{self.folder} has changed since it was opened: {min(differ)} is "
                f"{'no longer there' if min(differ) not in now else 'another'}"
            )

    @property
    def about(self) -> list[Any]:
        return [[path, *status] for path, status in sorted(self.found.items())]
