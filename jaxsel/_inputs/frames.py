"""Data frames as inputs: columns by name, in any order, of types of their own.

Frames are recognised by their attributes (duck typing): no table library is needed.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

_HEAD = 64  # rows that tell whether a column has lists


def columns_of(table: Any) -> list[Any] | None:
    """Return the labels of the columns of a pandas, polars or Arrow table.

    None of anything else.
    """
    kind = type(table)  # an object's own attributes may be its columns
    if not hasattr(kind, "columns") or hasattr(kind, "collect"):  # lazy: not read yet
        return None
    if callable(kind.columns):  # an oracle of gradients, which computes some
        return None
    if hasattr(kind, "column_names"):  # Arrow, whose `columns` are the data
        return list(table.column_names)
    return list(table.columns)


def names_of(value: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's features; None of anything else."""
    names = feature_labels(value)
    texts = bool(names) and all(isinstance(name, str) for name in names or ())
    return tuple(names) if names and texts else None


def select(table: Any, names: Sequence[Any]) -> Any:
    """Return the columns of these labels, in this order."""
    if hasattr(type(table), "iloc"):
        return table[list(names)]
    return table.select(list(names))


def frame_array(table: Any) -> np.ndarray | None:
    """Return the numbers of a data frame as one array.

    Booleans count as 0 and 1, missing numbers as NaN. None of anything else, and where
    a column holds others.

    Args:
        table: A table of pandas, polars or Arrow, or anything else.
    """
    if not columns_of(table):
        return None
    arrays: list[np.ndarray] = []
    for label, column in zip(columns_of(table) or (), _columns(table), strict=True):
        array = _numbers(column)
        if array is None:
            array = vectors(np.asarray(column), f"column {label!r}")
        if array is None:
            return None
        arrays.append(array)
    return np.column_stack(arrays)


def feature_labels(table: Any) -> list[Any] | None:
    """Return a label for each column of `frame_array`; None if it gives none.

    A column of lists of numbers has one for each place, such as "emb[0]".
    """
    names = columns_of(table)
    if names is None:
        return None
    labels: list[Any] = []
    for label, column in zip(names, _columns(table), strict=True):
        head = column.iloc[:_HEAD] if hasattr(column, "iloc") else column[:_HEAD]
        width = _width(np.asarray(head))
        labels += [label] if width is None else places(label, width)
    return labels


def places(label: Any, width: int) -> list[str]:
    """Name the columns that a column of lists becomes."""
    return [f"{label}[{j}]" for j in range(width)]


def is_index(label: Any) -> bool:
    """Tell whether a column is an index without a name that pandas wrote to a file."""
    return isinstance(label, str) and label.startswith("__index_level_")


def spread_lists(frame: Any, name: str) -> Any:
    """Give each place of lists of numbers a column of its own.

    Args:
        frame: A pandas data frame; returned as it is if no column has such lists.
        name: The frame's name in errors.

    Raises:
        ValueError: If lists of a column differ in length.
    """
    import pandas as pd

    parts: list[Any] = []
    spread = False
    for label in frame.columns:
        column = frame[label]
        values = None
        if column.dtype == object or "list" in str(column.dtype):
            values = vectors(column.to_numpy(object), f"column {label!r} of {name}")
        if values is None:
            parts.append(column)
            continue
        names = places(label, values.shape[1])
        parts.append(pd.DataFrame(values, index=frame.index, columns=names))
        spread = True
    return pd.concat(parts, axis=1) if spread else frame


def vectors(column: np.ndarray, name: str) -> np.ndarray | None:
    """Return lists of numbers that are all of one length as an array, `[n, width]`.

    Args:
        column: Objects, `[n]`; or numbers `[n, width]`, which stay as they are.
        name: The column's name in errors.

    Returns:
        The numbers, float64 unless all are of one type; a missing list is NaN
        throughout. None if there are other objects, or no lists.

    Raises:
        ValueError: If lengths differ; names the row.
    """
    if column.ndim == 2 and column.dtype.kind in "biuf":
        return column
    width = _width(column)
    if width is None:
        return None
    rows = list[np.ndarray]()
    for i, value in enumerate(column):
        if _is_missing_list(value):
            rows.append(np.full(width, math.nan))
            continue
        row = np.asarray(value)
        if row.ndim != 1 or row.dtype.kind not in "biuf":
            row = _numbers(row) if row.ndim == 1 else None
        if row is None:
            return None
        if len(row) != width:
            raise ValueError(
                f"{name} must have lists of one length, but row {i} has {len(row)} "
                f"numbers, and the first list {width}"
            )
        rows.append(row)
    return np.stack(rows)


def _width(column: np.ndarray) -> int | None:
    """Return the length of the first list of a column; None if it has none."""
    if column.ndim == 2:
        return column.shape[1]
    if column.dtype != object:
        return None
    first = next((value for value in column if not _is_missing_list(value)), None)
    if not _is_list(first):
        return None
    array = np.asarray(first)
    return array.shape[0] if array.ndim == 1 and array.dtype.kind in "biufO" else None


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray)) or (
        hasattr(value, "__array__") and hasattr(value, "__len__")
    )


def _is_missing_list(value: Any) -> bool:
    return not _is_list(value) and is_missing(value)


def foreign_columns(table: Any) -> str | None:
    """Name the columns of a data frame that are no numbers; None of anything else."""
    labels = columns_of(table)
    if labels is None:
        return None
    foreign = [
        repr(label)
        for label, column in zip(labels, _columns(table), strict=True)
        if _numbers(column) is None
        and vectors(np.asarray(column), f"column {label!r}") is None
    ]
    more = f" and {len(foreign) - 4} more" if foreign[4:] else ""
    return ", ".join(foreign[:4]) + more


def gapped_columns(table: Any) -> list[Any]:
    """Return the labels of a data frame's columns of numbers that have gaps."""
    labels = columns_of(table) or ()
    gapped: list[Any] = []
    for label, column in zip(labels, _columns(table) if labels else (), strict=True):
        array = _numbers(column)
        if array is not None and array.dtype.kind == "f" and np.isnan(array).any():
            gapped.append(label)
    return gapped


def _columns(table: Any) -> Iterator[Any]:
    if hasattr(type(table), "iloc"):
        for j in range(table.shape[1]):
            yield table.iloc[:, j]
    elif hasattr(type(table), "get_columns"):
        yield from table.get_columns()
    else:
        yield from table.columns


def _numbers(column: Any) -> np.ndarray | None:
    """Return a column as numbers, NaN where one is missing; None if it has others."""
    array = np.asarray(column)
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind != "O":
        return None
    values = np.empty(len(array))
    for i, value in enumerate(array):
        if isinstance(value, numbers.Real):
            values[i] = float(value)
        elif is_missing(value):
            values[i] = math.nan
        else:
            return None
    return values


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas.NA."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def without_label(labels: np.ndarray) -> np.ndarray:
    """Return the indices of missing labels, of labels read as objects."""
    return np.flatnonzero([is_missing(label) for label in labels])


def in_order(
    name: str,
    x: np.ndarray,
    names: Sequence[str] | None,
    columns: Sequence[str] | None,
    *,
    of: str = "the request",
) -> np.ndarray:
    """Reorder a table's columns to match a list of their names.

    Args:
        name: The table's name in errors.
        x: The table, `[n, d]`.
        names: Its columns' names; None if not known: then it stays as it is.
        columns: The names in the order wanted; x stays as it is if None.
        of: Name, in errors, of the source of that order.

    Raises:
        ValueError: If the names differ, or the order is unclear.
    """
    if names is None or columns is None or tuple(names) == tuple(columns):
        return x
    if sorted(names) != sorted(columns) or len(set(names)) < len(names):
        raise ValueError(
            f"{name} must have the columns of {of}, {', '.join(columns)}, each once; "
            f"got {', '.join(names)}"
        )
    return x[:, [list(names).index(column) for column in columns]]


def plain_labels(y: np.ndarray) -> np.ndarray:
    """Return labels that were read as objects as texts of fixed length."""
    return y.astype(str) if y.dtype == object else y
