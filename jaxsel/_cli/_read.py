"""Read inputs of the command line: samples, labels and values.

Arrays in `.npy` files are memory-mapped, and so are those in `.npz` files that are
stored without compression, as `np.savez` does.
"""

from __future__ import annotations

import argparse
import math
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxsel._files.npy import DAMAGED, map_array
from jaxsel._inputs.checks import check_finite
from jaxsel._inputs.texts import is_gap
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel._results.types import Values
from jaxsel.data import Dataset, load

from ._messages import check_file, contents_of, why_not
from ._tables import (
    OTHER_TABLES,
    TABLES,
    choose_columns,
    listing,
    named_as_asked,
    numbers,
    read_frame,
)

# Of a path, columns of features and the labels: features [n, d], and their names.
Encode = Callable[[str, Any, "np.ndarray | None"], tuple[np.ndarray, tuple[str, ...]]]

ARRAYS = (".npz", ".npy")
STREAMED = (".array_record", ".arrayrecord", ".zarr")
"""Suffixes of files that are read a chunk at a time, as folders are."""

# The version in "name:1.0.0:train" belongs to the name.
_NAME_AND_SPLIT = re.compile(r"(\w+(?:/[\w.-]+)?(?::\d+\.\d+\.\d+)?):(.+)")


def check_table_options(args: argparse.Namespace, *sources: str | None) -> None:
    """Refuse options for tables where no source can be one.

    Raises:
        ValueError: If there is such an option.
    """
    named = [source for source in sources if source is not None]
    for source in named:
        path, suffix = Path(source), Path(source).suffix.lower()
        if suffix in TABLES or (suffix not in ARRAYS and path.exists()):
            return
    used = [
        f"--{name.replace('_', '-')}"
        for name in ("label_column", "id_column", "columns", "drop")
        if getattr(args, name, None)
    ]
    if used:
        raise ValueError(
            f"{', '.join(used)} must be left out without a table, got "
            f"{' and '.join(named)}"
        )


class Table(NamedTuple):
    """Columns and rows of a table, as they were read.

    Attributes:
        x: Features, `[n, d]`.
        y: Labels, `[n]`, or None.
        names: Names of the features.
        ids: Names of the samples, `[n]`, or None.
        rows: Their rows in the file, `[n]`; None if all were read.
        class_names: Names of labels 0 and 1 that stand for False and True, or None.
    """

    x: np.ndarray
    y: np.ndarray | None
    names: tuple[str, ...]
    ids: np.ndarray | None
    rows: np.ndarray | None
    class_names: tuple[str, ...] | None = None


def read_samples(
    source: str,
    *,
    labels: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    encode: Encode | None = None,
    drop_unlabelled: bool | None = None,
    x_key: str = "x",
    y_key: str = "y",
    data_dir: str | None = None,
    progress: bool = False,
) -> Dataset:
    """Read features and labels from a file or a prepared data set.

    Args:
        source: An `.npz` file with arrays `x_key` and `y_key`; an `.npy` file of
            features; a `.csv`, `.tsv` or `.parquet` file; or `name:split` for
            `jaxsel.data.load`. Only the last gives a data set with a name.
        labels: File with the labels, `.npy` or `.npz` (array `y_key`), instead of those
            in `source`.
        label_column: Column of a table that holds the labels; the others are features.
        id_column: Column of a table that names the samples; no feature.
        columns: Columns of a table to take as features, in this order; None takes all.
        drop: Columns of a table to leave out. Not used where `columns` are given.
        encode: Makes features of columns, as `Encoding` does. If None they must be
            numeric: which code a category gets would decide who is near.
        drop_unlabelled: Whether to leave out rows of a table without a label; then
            `extras["row"]` of the result has the rows that are left. None where the
            command has no such option.
        x_key: Array of an `.npz` file that holds the features.
        y_key: Array of an `.npz` file that holds the labels.
        data_dir: Folder of prepared data sets.
        progress: Whether to show a bar while a data set is loaded.

    Raises:
        FileNotFoundError: If there is no such file, or the data set is not prepared.
        ValueError: If a named column or array is missing, or has a wrong shape.
        TypeError: If a column that should be a feature is not numeric.
        ImportError: If a table is to be read and pandas or pyarrow is missing.
    """
    suffix = Path(source).suffix.lower()
    if drop_unlabelled and (suffix not in TABLES or label_column is None):
        raise ValueError(
            "--drop-unlabelled is for tables with --label-column, and "
            f"{source} has none"
        )
    if Path(source).is_dir() or suffix in STREAMED:
        raise ValueError(
            f"{source} must be one file that fits in memory, or NAME:SPLIT: only VAL "
            "of `jaxsel value` may be a folder of .npy or parquet files, zarr, or "
            "array_record"
        )
    if suffix not in ARRAYS + TABLES:
        match = _NAME_AND_SPLIT.fullmatch(source)
        if suffix in OTHER_TABLES:
            raise ValueError(
                f"{source} must be saved as CSV or parquet first: {suffix} is not read"
            )
        if match is None and Path(source).exists():
            raise ValueError(
                f"{source} must end in {', '.join(ARRAYS + TABLES)}, by which its kind "
                "is known: rename it"
            )
        if match is None:
            raise ValueError(
                f"{source!r} is neither a file ending in {', '.join(ARRAYS + TABLES)} "
                "nor NAME:SPLIT of a prepared data set, such as digits:train"
            )
        if labels is not None:
            raise ValueError(f"{source} has labels: {labels} must not be given for it")
        try:
            return load(match[1], split=match[2], data_dir=data_dir, progress=progress)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error

    y = names = ids = rows = class_names = None
    if suffix in TABLES:
        if labels is None and label_column is None:
            has = listing(read_frame(source).columns)
            raise ValueError(
                f"{source} needs --label-column, which of its columns holds the "
                f"labels: {has}"
            )
        if labels is not None and label_column is not None:
            raise ValueError(
                f"the labels of {source} must come from --label-column {label_column} "
                f"or from {labels}, not from both: leave one out"
            )
        x, y, names, ids, rows, class_names = read_table(
            source,
            label_column=label_column,
            id_column=id_column,
            columns=columns,
            drop=drop,
            encode=encode,
            drop_unlabelled=drop_unlabelled,
        )
    elif suffix == ".npy" and labels is None:
        raise ValueError(
            f"{source} holds features only: give its labels in a file (--train-labels, "
            "--val-labels; --labels elsewhere)"
        )
    else:
        x = read_array(source, x_key)
    if y is None:
        y = read_array(source if labels is None else labels, y_key)
    if x.ndim < 2:
        raise ValueError(
            f"{source} must have features of shape [n, d] or [n, ...], got {x.shape}"
        )
    try:
        extras = {} if rows is None else {"row": rows}
        return Dataset(
            x=x,
            y=y,
            ids=ids,
            feature_names=names,
            class_names=class_names,
            extras=extras,
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{source}: {error}") from error


def paired_features(
    train: Dataset,
    val: Dataset,
    *,
    standardize: bool = False,
    names: tuple[str, str] = ("TRAIN", "VAL"),
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of both, which messages name, on one scale.

    They are `[n, d]` and `[m, d]`.

    Features of prepared data sets come from `Dataset.as_features`. Features of files
    are flattened, and with `standardize` each column is centred and divided by its
    standard deviation in `train`.

    Raises:
        ValueError: If only one is a prepared data set, or they differ in width.
    """
    if bool(train.name) != bool(val.name):
        raise ValueError(
            f"{' and '.join(names)} must both be files, or both prepared data sets, "
            "whose features are scaled in a way of their own"
        )
    if train.name:
        if standardize:
            raise ValueError("--standardize is for files: data sets are scaled already")
        x, x_val = train.as_features(), val.as_features(fit_on=train)
    else:
        x, x_val = (a.reshape(len(a), math.prod(a.shape[1:])) for a in (train.x, val.x))
    if x.shape[1] != x_val.shape[1]:
        raise ValueError(
            f"{' and '.join(names)} must have the same number of features, got "
            f"{x.shape[1]} and {x_val.shape[1]}"
        )
    if standardize:
        for name, part in zip(names, (x, x_val), strict=True):
            check_finite(name, part)
        base, other = (Dataset(x=a, y=np.arange(len(a))) for a in (x, x_val))
        x, x_val = base.as_features(), other.as_features(fit_on=base)
    return x, x_val


def read_array(
    path: str, key: str, *, remedy: str = "see --x-key and --y-key"
) -> np.ndarray:
    """Read the array of an `.npy` file, or the one named `key` of an `.npz` file.

    Args:
        path: The file.
        key: Name of the array; not used for `.npy`.
        remedy: What to do where no array is called so.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no array file, holds Python objects or has no such array.
    """
    check_file(path)
    if Path(path).suffix.lower() not in ARRAYS:
        raise ValueError(f"{path} must be a file ending in {' or '.join(ARRAYS)}")
    try:
        if Path(path).suffix.lower() == ".npy":
            return map_array(path)
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if key in names:
                return _read_member(archive, path, f"{key}.npy")
    except DAMAGED as error:
        raise ValueError(
            f"{path} cannot be read as arrays: {why_not(path, error)}"
        ) from error
    raise ValueError(f"{path} has no array {key!r}, but {', '.join(names)}: {remedy}")


def read_table(
    path: str,
    *,
    label_column: str | None = None,
    id_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    encode: Encode | None = None,
    drop_unlabelled: bool | None = None,
    keep_unlabelled: bool = False,
) -> Table:
    """Read a table; arguments and errors as for `read_samples`.

    With `keep_unlabelled`, rows without a label have NaN for it.
    """
    apart = (label_column, id_column)
    frame = read_frame(path, [name for name in apart if name is not None])
    frame = named_as_asked(path, frame, (*apart, *drop, *(columns or ())))
    features = choose_columns(path, frame, apart=apart, columns=columns, drop=drop)
    y = rows = class_names = None
    if label_column is not None:
        labels = _with_gaps(frame[label_column])
        gaps = bool(labels.isna().any())
        if drop_unlabelled and gaps:
            rows = np.flatnonzero(labels.notna())
            doubt(
                f"{len(frame) - len(rows)} of {len(frame)} rows of {path} have no "
                "label, and are left out"
            )
            frame, labels = frame.iloc[rows], labels.iloc[rows]
        if keep_unlabelled and gaps:
            y = labels.to_numpy(object)
        else:
            y = _read_label(path, labels, frame[label_column], drop_unlabelled)
            if labels.dtype in ("bool", "boolean"):
                class_names = ("False", "True")
        # Gaps, whose rows are left out, made floats of whole numbers.
        if gaps and y.dtype.kind == "f" and (y == np.round(y)).all():
            y = y.astype(np.int64)
    if encode is None:
        x, names = numbers(path, frame[features]), tuple(features)
    else:
        x, names = encode(path, frame[features], y)
    ids = None if id_column is None else read_ids(path, frame[id_column])
    return Table(x, y, names, ids, rows, class_names)


def read_ids(path: str, column: Any) -> np.ndarray:
    """Return the names of samples, `[n]`: whole numbers, or else texts.

    Raises:
        ValueError: If one is missing.
    """
    empty = column.index[column.isna()]
    if len(empty):
        raise ValueError(
            f"{path} must have an id in every row, but {column.name!r} is empty in row "
            f"{empty[0]}: fill it in, or do without --id-column"
        )
    ids = column.to_numpy()
    return ids if ids.dtype.kind in "iu" else ids.astype(str).astype(object)


def read_values(path: str) -> Values:
    """Read a file that `Values.save` wrote.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds something else, or is damaged.
    """
    check_file(path)
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path} must be an .npz file that `jaxsel value --out` wrote, and is "
            f"{contents_of(path)}"
        )
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


def _with_gaps(column: Any) -> Any:
    """Take blank labels, and "NA" and such among numbers, for missing ones."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        return column
    present = column.dropna()
    if not all(isinstance(label, str) for label in present):
        return column
    gaps = [label for label in present.unique() if not label.strip()]
    signs = [label for label in present.unique() if is_gap(label)]
    others = present[~present.isin(signs)]
    numeric: Any = pd.to_numeric(others, errors="coerce")
    if len(signs) > len(gaps) and len(numeric) and numeric.notna().all():
        return pd.to_numeric(column.where(~column.isin(signs)))
    return column.where(~column.isin(gaps)) if gaps else column


def _read_label(
    path: str, column: Any, written: Any, drop_unlabelled: bool | None
) -> np.ndarray:
    """Return labels, `[n]`.

    Args:
        path: Path of the table.
        column: The labels; missing ones are gaps.
        written: The labels as they stand in the table.
        drop_unlabelled: The option, which errors name; None if there is none.

    Raises:
        ValueError: If one is missing.
    """
    import pandas as pd

    empty = np.flatnonzero(column.isna())
    if empty.size:
        text = written.iloc[empty[0]]
        what = repr(text) if isinstance(text, str) and text.strip() else "empty"
        raise ValueError(
            f"{path} must have a label in every row, but {column.name!r} is {what} in "
            f"row {column.index[empty[0]]} ({empty.size} of {len(column)} rows): fill "
            "these in, or leave the rows out"
            + ("" if drop_unlabelled is None else " with --drop-unlabelled")
        )
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    if not pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(object)
    integral = pd.api.types.is_integer_dtype(column) or pd.api.types.is_bool_dtype(
        column
    )
    return column.to_numpy(np.int64 if integral else np.float64)
