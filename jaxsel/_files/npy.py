"""Array files of NumPy, read without pickles; malformed files raise ValueError."""

from __future__ import annotations

import os
import struct
import tokenize
import zipfile
import zlib

import numpy as np

DAMAGED = (
    ValueError,
    EOFError,
    FloatingPointError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    SyntaxError,
    TypeError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions that NumPy raises for a damaged file: a header is a Python literal, so
those of its tokenizer and parser are among them."""


def map_array(path: str | os.PathLike[str]) -> np.ndarray:
    """Map the array of an `.npy` file.

    Raises:
        OSError: If it can't be opened.
        ValueError: If it is no such file, was damaged, or holds Python objects; names
            the file.
    """
    try:
        with np.errstate(over="raise"):  # a size that wraps around could be small
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGED as error:
        raise ValueError(f"{os.fspath(path)} is no .npy file: {error}") from error
    if not isinstance(mapped, np.ndarray):
        mapped.close()
        raise ValueError(f"{os.fspath(path)} is no .npy file: it holds several arrays")
    return mapped


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read all arrays of an `.npz` file, by name.

    Raises:
        OSError: If it can't be opened.
        ValueError: As `map_array`.
    """
    try:
        # Opened here: np.load does not close a file that it cannot read.
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (AttributeError, *DAMAGED) as error:  # without names: a single array
        raise ValueError(f"{os.fspath(path)} is no .npz file: {error}") from error
