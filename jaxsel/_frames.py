"""Data frames as inputs: columns by name, in any order, of types of their own.

They are known by what they have, so that no table library need be installed.
"""

from __future__ import annotations

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


def frame_array(table: Any) -> np.ndarray | None:
    """Return the numbers of a data frame as one array.

    Booleans count as 0 and 1, missing numbers as NaN. None of anything else, and where
    a column holds others.

    Args:
        table: Of pandas, polars or Arrow, or anything.
    """
    if not columns_of(table):
        return None
    found: list[np.ndarray] = []
    for column in _columns(table):
        array = _numbers(column)
        if array is None:
            return None
        found.append(array)
    return np.column_stack(found)


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


def _numbers(column: Any) -> np.ndarray | None:
    """Return a column as numbers, NaN where one is missing; None if it has others."""
    array = np.asarray(column)
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind != "O":
        return None
    found = np.empty(len(array))
    for i, value in enumerate(array):
        if isinstance(value, numbers.Real):
            found[i] = float(value)
        elif _is_missing(value):
            found[i] = math.nan
        else:
            return None
    return found


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
