"""Open files, folders and objects as rows that are read a chunk at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel._inputs.checks import check_numeric
from jaxsel._inputs.row_paths import ALLOWED, is_zarr_group, listed, zarr_version
from jaxsel._inputs.rows import Rows, Source
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel.tables import TableEncoder

from ._row_files import File, Files, NpyFile, Stamp, Tree
from ._row_objects import Arrays, Iterated, Key, Paired, Records
from ._row_parquet import ParquetFile

Path_ = str | os.PathLike[str]


def open_rows(
    source: Any,
    *,
    features: Key | Sequence[str] | TableEncoder | None = None,
    labels: Any = None,
    decode: Callable[[Any], Any] | None = None,
    batched: bool = False,
) -> Rows:
    """Open features, and labels, that are read a chunk at a time, not whole.

    | source | `features` | `labels` |
    |---|---|---|
    | an `.npy` file, or a folder or list of them | – | file, array or rows |
    | parquet, likewise | columns or encoder; all but the labels' if None | a column |
    | zarr (2 or 3), an array or a group | name in the group | name in the group |
    | array_record, likewise; needs `decode` | key of a record | key of a record |
    | an array that reads slices (h5py, zarr, memmap) | – | file, array or rows |
    | records with `len` and numbers (grain, TFDS) | key of a record | key of a record |
    | an iterable, read anew (grain, torch) | key of an element | key of an element |

    Files of a folder come in the order of their names, of which numbers count as
    numbers (part2 before part10), those of a list in its order, each after the other. A
    column of lists gives `[n, d]`, several columns `[n, d]` in their order; one column
    by its name alone gives `[n]`. A `TableEncoder` makes numbers of columns with
    categories, dates or gaps, chunk by chunk. Other rows have the type that the source
    has.

    Opening reads headers, or some rows where there are none. Memory: O(1) in n.

    Args:
        source: Path, list of paths, or object.
        features: Which part of the source is the features; of parquet, or the
            encoder that makes them.
        labels: Place of the labels, one a row, if there are any.
        decode: From a record or element to an array, or to a dict or tuple with the
            keys `features` and `labels`.
        batched: Whether an element of an iterator has several rows; for records,
            whether they take an array of numbers and return that many rows.

    Returns:
        `Rows`.

    Raises:
        FileNotFoundError: If a path is not there.
        ValueError: If a source is empty, damaged, cut short, or holds files of several
            kinds, shapes or types; if it has no such column or key; or if labels and
            features differ in number.
        TypeError: If features are not numeric, or the source is none of these.
        ImportError: If a package is missing; says which.
    """
    if isinstance(source, Rows):
        raise TypeError("source is open already, got Rows")
    paths = _paths(source)
    if isinstance(features, TableEncoder) and not (
        paths and listed(paths)[0] == "parquet"
    ):
        raise ValueError("features must be a TableEncoder for parquet files only")
    options: dict[str, Any] = {"features": features, "labels": labels, "decode": decode}
    if paths is not None:
        opened = _open_paths(paths, **options, batched=batched)
    elif _is_array(source):
        _refuse_keys("an array", features=features, decode=decode)
        opened = Arrays(f"an array of {type(source).__module__.split('.')[0]}", source)
        opened = _with_labels(opened, labels)
    elif hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        kind = type(source).__name__
        opened = Records(kind, source, **options, batched=_flag(batched))
    elif isinstance(source, Iterable):
        kind = type(source).__name__
        opened = Iterated(kind, source, **options, batched=_flag(batched))
    else:
        raise TypeError(
            f"source must be {ALLOWED}; an array; or have __getitem__ and __len__, or "
            f"__iter__, got {type(source).__name__}"
        )
    check_numeric("features", np.empty(0, opened.dtype))
    if opened.n == 0:
        raise ValueError(f"{opened.about['kind']} must not be empty, got no rows")
    if 0 in opened.row_shape:
        raise ValueError(
            f"{opened.about['kind']} must not be empty, got rows of shape "
            f"{opened.row_shape}"
        )
    return Rows(opened, 0, opened.n)


def _open_paths(
    paths: list[Path], features: Any, labels: Any, decode: Any, batched: bool
) -> Source:
    kind, files = listed(paths)
    if batched:
        raise ValueError("batched must be False for files, got True")
    if kind == "zarr":
        _refuse_keys("zarr", decode=decode)
        return _open_zarr(paths[0], features, labels)
    folder = paths != files
    if kind == "npy":
        _refuse_keys("an .npy file", features=features, decode=decode)
        opened = _files("npy", [NpyFile(file) for file in files])
        return _with_labels(opened, labels, folder=folder)
    if kind == "parquet":
        _refuse_keys("parquet", decode=decode)
        column = labels if labels is None or isinstance(labels, str) else None
        _check_columns(features)
        parts = [ParquetFile(file, features, column) for file in files]
        opened = _files("parquet", parts)
        if column is not None:
            return opened
        return _with_labels(opened, labels, folder=folder)
    stamps = [Stamp(file) for file in files]
    try:
        from array_record.python.array_record_data_source import ArrayRecordDataSource
    except ImportError as error:
        raise ImportError(
            f"reading {files[0]} needs array_record: pip install 'jaxsel[stream]'"
        ) from error
    try:
        records = ArrayRecordDataSource([os.fspath(file) for file in files])
        len(records)
    except (ValueError, RuntimeError, OSError) as error:
        raise ValueError(
            f"{files[0]} is no array_record file, or is damaged: {error}"
        ) from error
    return Records(
        "array_record",
        records,
        files=stamps,
        features=features,
        labels=labels,
        decode=decode,
        batched=False,
    )


def _files(kind: str, files: Sequence[File]) -> Files:
    opened = Files(kind, files)
    if not opened.n:
        raise ValueError(f"{files[0].stamp.path} must not be empty, got no rows")
    return opened


def _open_zarr(path: Path, features: Any, labels: Any) -> Source:
    """Open an array of a folder; its files are watched from its first chunk on."""
    for name, key in (("features", features), ("labels", labels)):
        if key is not None and not isinstance(key, str) and name == "features":
            raise TypeError(f"{name} must be a name in the group, got {key!r}")
    features_array = _zarr_array(path if features is None else path / features)
    inside = isinstance(labels, str) and bool(zarr_version(path / labels))
    if inside:
        return Paired(features_array, _zarr_array(path / labels))
    return _with_labels(features_array, labels)


def _zarr_array(path: Path) -> Source:
    import tensorstore as ts  # comes with orbax

    version = zarr_version(path)
    if not version:
        raise ValueError(f"{path} is no zarr array")
    if is_zarr_group(path):
        names = sorted(p.name for p in path.iterdir() if zarr_version(p))
        raise ValueError(
            f"{path} is a group, of {', '.join(names) or 'nothing'}: name the array to "
            "read, as in open_rows(..., features=...)"
        )
    spec = {
        "driver": "zarr3" if version == 3 else "zarr",
        "kvstore": {"driver": "file", "path": os.fspath(path)},
    }
    tree = Tree(path)
    try:
        array = ts.open(spec, read=True, open=True).result()
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read by TensorStore: {error}; zarr.open may, and its "
            "arrays are sources, too"
        ) from error
    return Arrays(f"zarr array {path}", array, tree.about, tree.check)


def _with_labels(features: Source, labels: Any, *, folder: bool = False) -> Source:
    """Add labels from a file, an array, or other rows.

    Args:
        features: The features.
        labels: The labels, or None.
        folder: Whether the features are files of a folder, which has no order.
    """
    if labels is None:
        return features
    if isinstance(labels, Rows):
        rows = labels
        if rows.begin or rows.end != rows.source.n:
            raise ValueError("labels must be whole rows, got a shard of some")
        return Paired(features, rows.source)
    paths = _paths(labels)
    if paths is not None:
        paired = Paired(features, _open_paths(paths, None, None, None, False))
    else:
        paired = Paired(features, Arrays("labels", np.asarray(labels)))
    _check_order(paired, folder)
    return paired


def _check_order(paired: Paired, folder: bool) -> None:
    """Refuse files of other lengths than their labels', and doubt a folder's order.

    Raises:
        ValueError: If as many files of labels do not have their rows.
    """
    if not isinstance(paired.features, Files):
        return
    files = paired.features.files
    others = paired.names.files if isinstance(paired.names, Files) else ()
    if len(files) == len(others):
        for file, other in zip(files, others, strict=True):
            if file.n != other.n:
                raise ValueError(
                    "labels must have the rows of features in each of as many files, "
                    f"got {other.n} in {other.stamp.path} for {file.n} in "
                    f"{file.stamp.path}"
                )
        return
    names = [str(file.stamp.path) for file in files]
    if folder and names != sorted(names):
        shown = ", ".join(Path(name).name for name in names[:3])
        doubt(
            f"files are read in the order of the numbers in their names, {shown}, ...: "
            "see that the labels are in this order, too"
        )


def _paths(source: Any) -> list[Path] | None:
    """Return the absolute paths of a source of files, or None for another source."""
    many = source if isinstance(source, (list, tuple)) else [source]
    if not many or not all(isinstance(path, (str, os.PathLike)) for path in many):
        return None
    return [Path(path).absolute() for path in many]


def _is_array(source: Any) -> bool:
    return all(hasattr(source, name) for name in ("shape", "dtype", "__getitem__"))


def _flag(batched: Any) -> bool:
    if not isinstance(batched, (bool, np.bool_)):
        raise TypeError(f"batched must be True or False, got {batched!r}")
    return bool(batched)


def _check_columns(features: Any) -> None:
    if isinstance(features, TableEncoder):
        if not features.columns:
            raise ValueError("features must be fitted: call fit(train)")
        return
    names = [features] if isinstance(features, str) else features
    if names is not None and not (
        isinstance(names, Sequence) and names and all(isinstance(n, str) for n in names)
    ):
        raise TypeError(f"features must be names of columns, got {features!r}")


def _refuse_keys(kind: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} must be None for {kind}, got {value!r}")
