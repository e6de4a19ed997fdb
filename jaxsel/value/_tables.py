"""Inputs as tables: their columns by name, their rows by label.

Tables are known by what they have, `columns` or `index`, so that no table library need
be installed.
"""

import warnings
from typing import Any

import numpy as np

from jaxsel._checks import caller_level, show_labels
from jaxsel._mesh import whole


def align_columns(x: Any, x_val: Any) -> Any:
    """Return x_val with its columns in the order of those of x, if both have names.

    Raises:
        ValueError: If they have other columns.
    """
    names, names_val = (_column_names(table) for table in (x, x_val))
    if names is None or names_val is None or names == names_val:
        return x_val
    lacking = [name for name in names if name not in names_val]
    further = [name for name in names_val if name not in names]
    if lacking or further or len(set(names)) < max(len(names), len(names_val)):
        raise ValueError(
            f"x and x_val must have the same columns, each once, but x has "
            f"{show_labels(names)} and x_val has {show_labels(names_val)}"
            + (f"; x_val lacks {show_labels(lacking)}" if lacking else "")
            + (f"; x lacks {show_labels(further)}" if further else "")
            + ": select them by name, or pass to_numpy() of both to go by position"
        )
    return x_val[names]


def check_row_order(name: str, table: Any, other_name: str, other: Any) -> None:
    """Refuse two tables whose rows have the same labels in different orders.

    Raises:
        ValueError: If they are.
    """
    rows, others = _row_labels(table), _row_labels(other)
    if rows is None or others is None or len(rows) != len(others):
        return
    if rows.equals(others) or not (rows.is_unique and others.is_unique):
        return
    if rows.difference(others, sort=False).empty:
        raise ValueError(
            f"{name} and {other_name} must have their rows in one order, but their "
            f"indices have the same labels in different orders: pass "
            f"{other_name}.loc[{name}.index], or {other_name}.to_numpy() if the "
            "positions are right"
        )


def row_index(x: Any) -> tuple[Any, ...] | None:
    """Return the labels of a table's rows, unless they are 0, 1, 2, ..."""
    rows = _row_labels(x)
    if rows is None or (
        rows.dtype.kind in "iu" and np.array_equal(rows, np.arange(len(rows)))
    ):
        return None
    return tuple(rows.tolist())


def warn_if_same(x: Any, y: Any, x_val: Any, y_val: Any) -> None:
    """Warn where validation samples are the training samples, labels included."""
    if x.shape != x_val.shape:
        return
    x = whole(x)
    if x is x_val or (
        np.array_equal(x[0], x_val[0]) and np.array_equal(np.asarray(x), x_val)
    ):
        if not np.array_equal(y, y_val):
            return
        warnings.warn(
            "x_val and y_val are x and y: each sample is its own nearest neighbour and "
            "vouches for its own label, so that values say little; validate on samples "
            "that are not in x",
            UserWarning,
            stacklevel=caller_level(),
        )


def _column_names(table: Any) -> list[Any] | None:
    columns = getattr(table, "columns", None)
    return None if columns is None else list(columns)


def _row_labels(table: Any) -> Any:
    """The index of a table; that of a list is a method."""
    index = getattr(table, "index", None)
    return index if hasattr(index, "equals") else None
