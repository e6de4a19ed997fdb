"""Arrays in `.npy` files, read row by row as they were at the start.

A memory-mapped file that is cut during a run ends the process without a word, and one
that is saved again is read on. Here reads are calls that fail, and each of them sees
whether the file is still the one that was checked.
"""

from __future__ import annotations

import math
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel._files.npy import DAMAGED

from ._handshake import Refused, SessionError

_DAMAGED = (*DAMAGED, OSError)


class ArrayFile:
    """An array in a file; slices and arrays of rows of it are read when asked for.

    Args:
        name: Of the setting, for errors.
        path: The file.

    Attributes:
        shape, dtype: Of the array.

    Raises:
        Refused: If it is no `.npy` file with one array, or is damaged.
    """

    def __init__(self, name: str, path: Path):
        if not path.is_file():
            raise Refused(f"{name} must be a file", f"{path}: there is none")
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise Refused(f"{name} must be an .npy file", f"{path}: {error}") from None
        weakref.finalize(self, os.close, self._file)
        self._path, self._about = path, _about(os.fstat(self._file))
        self._whole: np.ndarray | None = None
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            if not isinstance(mapped, np.memmap):
                mapped.close()
                raise ValueError("several arrays")
            self.shape, self.dtype = mapped.shape, mapped.dtype
            self._start = int(mapped.offset)
            if not mapped.flags.c_contiguous:  # its rows are no pieces of the file
                self._whole = np.load(path, allow_pickle=False)
        except _DAMAGED as error:
            raise Refused(f"{name} must be an .npy file", f"{path}: {error}") from None
        self.check()

    @property
    def ndim(self) -> int:
        """Number of its axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Read rows: a slice of step 1, or row numbers.

        Raises:
            SessionError: If the file was changed since it was opened.
        """
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        rows = np.asarray(rows, np.int64)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows must be from 0 to {len(self) - 1}, got {rows}")
        if self._whole is not None:
            return self._whole[rows]
        shape = len(rows), *self.shape[1:]
        size = self.dtype.itemsize * math.prod(shape[1:])
        if not size * len(rows):
            return np.empty(shape, self.dtype)
        content, offset = bytearray(size * len(rows)), 0
        data = memoryview(content)
        starts = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
        for first, length in zip(
            rows[starts], np.diff(starts, append=len(rows)), strict=True
        ):
            place, end = self._start + int(first) * size, offset + int(length) * size
            while offset < end:
                read = os.preadv(self._file, [data[offset:end]], place)
                if not read:
                    self._refuse()
                offset, place = offset + read, place + read
        self.check()
        return np.frombuffer(content, self.dtype).reshape(shape)

    def check(self) -> None:
        """Raise if the file is not the one that was opened, unchanged."""
        try:
            now = _about(self._path.stat())
        except OSError:
            now = None
        if now != self._about or _about(os.fstat(self._file)) != self._about:
            self._refuse()

    def _refuse(self) -> Any:
        raise SessionError(
            f"{self._path} was changed during the run: put back what was there, with "
            "its time, or start anew"
        )


def _about(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
