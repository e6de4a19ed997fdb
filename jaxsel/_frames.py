"""Data frames as inputs: columns by name, in any order, of types of their own.

They are known by what they have, so that no table library need be installed.
"""

from __future__ import annotations

import decimal
import math
import numbers
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


def columns_of(table: Any) -> list[Any] | None:
    """Return the labels of the columns of a pandas, polars or Arrow table.

    None of anything else.
    """
    kind = type(table)  # an object's own attributes may be its columns
    if not hasattr(kind, "columns"):
        return None
    if hasattr(kind, "column_names"):  # Arrow, whose `columns` are the data
        return list(table.column_names)
    return list(table.columns)


def names_of(value: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns; None of anything else."""
    names = columns_of(value)
    texts = bool(names) and all(isinstance(name, str) for name in names or ())
    return tuple(names) if names and texts else None


def select(table: Any, names: Sequence[Any]) -> Any:
    """Return the columns of these labels, in this order."""
    if hasattr(type(table), "iloc"):
        return table[list(names)]
    return table.select(list(names))


def frame_array(table: Any, name: str = "x") -> np.ndarray | None:
    """Return the numbers of a data frame as one array.

    Booleans count as 0 and 1, missing numbers as NaN; a column of arrays of one length
    counts as so many columns. None of anything else, and where a column holds others.

    Args:
        table: Of pandas, polars or Arrow, or anything.
        name: Names the table in errors.

    Raises:
        TypeError: If the arrays in a column have different lengths.
    """
    if not columns_of(table):
        return None
    parts: list[np.ndarray] = []
    for column in _columns(table):
        array = _numbers(column, name)
        if array is None:
            return None
        parts.append(array)
    return np.column_stack(parts)


def foreign_columns(table: Any) -> str | None:
    """Name the columns of a data frame that are no numbers; None of anything else."""
    labels = columns_of(table)
    if labels is None:
        return None
    foreign = [
        repr(label)
        for label, column in zip(labels, _columns(table), strict=True)
        if _numbers(column) is None
    ]
    more = f" and {len(foreign) - 4} more" if foreign[4:] else ""
    return ", ".join(foreign[:4]) + more


def _columns(table: Any) -> Iterator[Any]:
    if hasattr(type(table), "iloc"):
        for j in range(table.shape[1]):
            yield table.iloc[:, j]
    elif hasattr(type(table), "get_columns"):
        yield from table.get_columns()
    else:
        yield from table.columns


def _numbers(column: Any, name: str = "x") -> np.ndarray | None:
    """Return a column as numbers, NaN where one is missing; None if it has others."""
    array = np.asarray(column)
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind != "O":
        return None
    rows = stack_rows(name, array)
    return numbers_or_nan(array) if rows is None else rows


def numbers_or_nan(objects: np.ndarray) -> np.ndarray | None:
    """Return objects of any shape as float64, NaN where a number is missing.

    None if one is neither a number nor missing.
    """
    array = np.empty(objects.shape)
    flat = array.reshape(-1)
    for i, value in enumerate(objects.reshape(-1)):
        if isinstance(value, numbers.Real | decimal.Decimal):
            flat[i] = float(value)
        elif _is_missing(value):
            flat[i] = math.nan
        else:
            return None
    return array


def plain_numbers(objects: np.ndarray) -> np.ndarray | None:
    """Return objects that are all numbers in NumPy's type for them.

    None if one is not, is missing, or would be rounded.
    """
    items = objects.reshape(-1).tolist()
    if not items or not all(isinstance(item, numbers.Real) for item in items):
        return None
    array = np.array(items)
    if array.dtype.kind not in "biuf" or np.isnan(array).any():
        return None
    if array.dtype.kind == "f" and any(
        isinstance(item, numbers.Integral) and int(value) != int(item)
        for item, value in zip(items, array.tolist(), strict=True)
    ):
        return None
    return array.reshape(objects.shape)


def stack_rows(name: str, rows: np.ndarray) -> np.ndarray | None:
    """Stack a column of arrays or lists, one a sample, to `[n, ...]`.

    Args:
        name: Names the samples in errors.
        rows: `[n]`, objects.

    Returns:
        The array; None if row 0 is no array or list, or one holds other than numbers.

    Raises:
        TypeError: If rows have different lengths, or one is none.
    """
    if not len(rows) or not _is_row(rows[0]):
        return None
    arrays: list[np.ndarray] = []
    for i, row in enumerate(rows):
        if not _is_row(row):
            raise TypeError(
                f"{name} must have an array in each row, but row {i} has {row!r:.40}"
            )
        array = _row_numbers(row)
        if array is None:
            return None
        if arrays and array.shape != arrays[0].shape:
            raise TypeError(
                f"{name} must have rows of one length, but row {i} has "
                f"{_show_shape(array)}, and row 0 {_show_shape(arrays[0])}"
            )
        arrays.append(array)
    return np.stack(arrays)


def _is_row(value: Any) -> bool:
    return isinstance(value, list | tuple) or (
        hasattr(value, "__array__") and getattr(value, "shape", ()) != ()
    )


def _row_numbers(row: Any) -> np.ndarray | None:
    """Return the numbers of one row; None if it holds others, or is ragged."""
    if hasattr(row, "detach"):
        row = row.detach().cpu()
    try:
        array = np.asarray(row)
    except ValueError:
        return None
    if array.dtype == object:
        return numbers_or_nan(array)
    return (
        array
        if array.dtype.kind in "biuf" or array.dtype.type.__module__ == "ml_dtypes"
        else None
    )


def _show_shape(array: np.ndarray) -> str:
    return str(len(array)) if array.ndim == 1 else str(array.shape)


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas.NA."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def without_label(labels: np.ndarray) -> np.ndarray:
    """Return the rows whose label is missing, of labels read as objects."""
    return np.flatnonzero([_is_missing(label) for label in labels])


def in_order(
    name: str,
    x: np.ndarray,
    names: Sequence[str] | None,
    columns: Sequence[str] | None,
    *,
    of: str = "the request",
) -> np.ndarray:
    """Return a table's columns in the order of others of the same names.

    Args:
        name: What errors call the table.
        x: The table, `[n, d]`.
        names: Its columns' names; None if not known: then it stays as it is.
        columns: The names in the order wanted; None likewise.
        of: Whose order it is.

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
