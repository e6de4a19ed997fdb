"""Read what the command line is given: samples, labels and values.

Arrays in `.npy` files are memory-mapped, and so are those in `.npz` files that are
stored without compression, as `np.savez` does.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel._types import Values
from jaxsel.data import Dataset, load

ARRAYS = (".npz", ".npy")
TABLES = (".csv", ".parquet")
STREAMED = (".array_record", ".arrayrecord", ".zarr")
"""What is read a chunk at a time, besides folders."""

# The version in "name:1.0.0:train" belongs to the name.
_NAME_AND_SPLIT = re.compile(r"(\w+(?:/[\w.-]+)?(?::\d+\.\d+\.\d+)?):(.+)")


def read_samples(
    source: str,
    *,
    labels: str | None = None,
    label_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    x_key: str = "x",
    y_key: str = "y",
    data_dir: str | None = None,
    progress: bool = False,
) -> Dataset:
    """Read features and labels from a file or a prepared data set.

    Args:
        source: An `.npz` file with arrays `x_key` and `y_key`; an `.npy` file of
            features; a `.csv` or `.parquet` file; or `name:split` for
            `jaxsel.data.load`. Only the last gives a data set with a name.
        labels: File with the labels, `.npy` or `.npz` (array `y_key`), instead of those
            in `source`.
        label_column: Column of a table that holds the labels; the others are features.
        columns: Columns of a table to take as features, in this order; None takes all.
            They must be numeric: which code a category gets would decide who is near.
        drop: Columns of a table to leave out. Not used where `columns` are given.
        x_key: Array of an `.npz` file that holds the features.
        y_key: Array of an `.npz` file that holds the labels.
        data_dir: Where data sets were prepared.
        progress: Whether to show a bar while a data set is loaded.

    Raises:
        FileNotFoundError: If there is no such file, or the data set is not prepared.
        ValueError: If what was asked for is not in it, or has a wrong shape.
        TypeError: If a column that should be a feature is not numeric.
        ImportError: If a table is to be read and pandas or pyarrow is missing.
    """
    suffix = Path(source).suffix.lower()
    if Path(source).is_dir() or suffix in STREAMED:
        raise ValueError(
            f"{source} must be one file that fits in memory, or NAME:SPLIT: only VAL "
            "of `jaxsel value` may be a folder of .npy or parquet files, zarr, or "
            "array_record"
        )
    if suffix not in ARRAYS + TABLES:
        match = _NAME_AND_SPLIT.fullmatch(source)
        if match is None:
            raise ValueError(
                f"{source!r} is neither a file ending in {', '.join(ARRAYS + TABLES)} "
                "nor NAME:SPLIT of a prepared data set"
            )
        if labels is not None:
            raise ValueError(f"{source} has labels: {labels} must not be given for it")
        return load(match[1], split=match[2], data_dir=data_dir, progress=progress)

    y = names = None
    if suffix in TABLES:
        if (labels is None) == (label_column is None):
            raise ValueError(
                f"the labels of {source} must come from one of its columns "
                "(--label-column) or from a file, and not from both"
            )
        x, y, names = read_table(
            source, label_column=label_column, columns=columns, drop=drop
        )
    elif suffix == ".npy" and labels is None:
        raise ValueError(f"{source} holds features only: give its labels in a file")
    else:
        x = read_array(source, x_key)
    if y is None:
        y = read_array(source if labels is None else labels, y_key)
    if x.ndim < 2:
        raise ValueError(
            f"{source} must have features of shape [n, d] or [n, ...], got {x.shape}"
        )
    try:
        return Dataset(x=x, y=y, feature_names=names)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{source}: {error}") from error


def paired_features(
    train: Dataset, val: Dataset, *, standardize: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of both on one scale, `[n, d]` and `[m, d]`.

    Those of prepared data sets come from `Dataset.as_features`. Those of files are
    taken as they are, images and such flattened, unless `standardize`: then each column
    is centred and divided by its standard deviation in `train`.

    Raises:
        ValueError: If only one is a prepared data set, or they differ in width.
    """
    if bool(train.name) != bool(val.name):
        raise ValueError(
            "TRAIN and VAL must both be files, or both prepared data sets, whose "
            "features are scaled in a way of their own"
        )
    if train.name:
        if standardize:
            raise ValueError("--standardize is for files: data sets are scaled already")
        x, x_val = train.as_features(), val.as_features(fit_on=train)
    else:
        x, x_val = (a.reshape(len(a), math.prod(a.shape[1:])) for a in (train.x, val.x))
    if x.shape[1] != x_val.shape[1]:
        raise ValueError(
            "TRAIN and VAL must have the same number of features, got "
            f"{x.shape[1]} and {x_val.shape[1]}"
        )
    if standardize:
        base, other = (Dataset(x=a, y=np.arange(len(a))) for a in (x, x_val))
        x, x_val = base.as_features(), other.as_features(fit_on=base)
    return x, x_val


def read_array(path: str, key: str) -> np.ndarray:
    """Read the array of an `.npy` file, or the one named `key` of an `.npz` file.

    Args:
        path: The file.
        key: Name of the array; not used for `.npy`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no array file, holds Python objects or has no such array.
    """
    _check_file(path)
    if Path(path).suffix.lower() not in ARRAYS:
        raise ValueError(f"{path} must be a file ending in {' or '.join(ARRAYS)}")
    try:
        if Path(path).suffix.lower() == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if key in names:
                return _read_member(archive, path, f"{key}.npy")
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is damaged, not an array file, or holds Python objects (save "
            "texts with astype(str))"
        ) from error
    raise ValueError(
        f"{path} has no array {key!r}, but {', '.join(names)}: see --x-key and --y-key"
    )


def read_table(
    path: str,
    *,
    label_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...]]:
    """Read a `.csv` or `.parquet` file; arguments and errors as for `read_samples`.

    Returns:
        Features `[n, d]`, the labels `[n]` or None, and the names of the features.
    """
    is_csv = path.lower().endswith(".csv")
    try:
        import pandas as pd

        if not is_csv:
            import pyarrow  # noqa: F401
    except ImportError as error:
        needs = "pandas" if is_csv else "pandas and pyarrow"
        raise ImportError(
            f"reading {path} needs {needs}: pip install 'jaxsel[data]'"
        ) from error
    _check_file(path)
    try:
        frame = pd.read_csv(path, low_memory=False) if is_csv else pd.read_parquet(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    frame.columns = [str(name) for name in frame.columns]

    label = () if label_column is None else (label_column,)
    if columns is None:
        features = [c for c in frame.columns if c not in (*label, *drop)]
    else:
        features, drop = list(columns), ()
    missing = [c for c in (*label, *drop, *features) if c not in frame.columns]
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(frame.columns)}"
        )
    wrong = [c for c in features if not pd.api.types.is_numeric_dtype(frame[c])]
    if wrong:
        raise TypeError(
            f"{path} must have numeric features, but not so "
            f"{', '.join(map(repr, wrong))}: encode such columns first, or leave them "
            "out with --drop"
        )
    x = frame[features].to_numpy(np.float64, na_value=np.nan)
    y = None if label_column is None else _read_label(path, frame[label_column])
    return x, y, tuple(features)


def read_values(path: str) -> Values:
    """Read what `Values.save` wrote.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds something else, or is damaged.
    """
    _check_file(path)
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is damaged, or no .npz file")
    return Values.load(path)


def _read_member(archive: zipfile.ZipFile, path: str, name: str) -> np.ndarray:
    """Map an array of an `.npz` file where it lies, or read it if it can't be."""
    info = archive.getinfo(name)
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0) and info.compress_type == zipfile.ZIP_STORED:
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
            if not dtype.hasobject and math.prod(shape):
                with open(path, "rb") as file:
                    # The central directory may state other lengths than this header.
                    file.seek(info.header_offset)
                    lengths = struct.unpack("<HH", file.read(30)[26:])
                offset = info.header_offset + 30 + sum(lengths) + member.tell()
                order = "F" if fortran else "C"
                return np.memmap(path, dtype, "r", offset, shape, order)
    with archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _read_label(path: str, column: Any) -> np.ndarray:
    import pandas as pd

    empty = np.flatnonzero(column.isna())
    if empty.size:
        raise ValueError(
            f"{path} must have a label in every row, but {column.name!r} is empty in "
            f"row {empty[0]} ({empty.size} of {len(column)} rows)"
        )
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    if not pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(object)
    whole = pd.api.types.is_integer_dtype(column) or pd.api.types.is_bool_dtype(column)
    return column.to_numpy(np.int64 if whole else np.float64)


def _check_file(path: str) -> None:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not there, or is not a file")
