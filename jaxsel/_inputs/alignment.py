"""Two tables that belong together: columns by name, rows by label.

`check_pair` is the door of everything that takes training and validation points.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxsel._devices.mesh import is_on, whole

from .checks import check_features, is_readable, show_labels
from .frames import columns_of, select
from .usual_mistakes import doubt_columns


class Pair(NamedTuple):
    """Checked features of training and validation points.

    Attributes:
        x: `[n, d]`.
        x_val: `[m, d]`, its columns in the order of x.
        row_labels: The index of x, if it is a table with an index other than 0, 1, ...
    """

    x: np.ndarray | jax.Array
    x_val: np.ndarray | jax.Array
    row_labels: tuple[Any, ...] | None


def check_pair(
    x: Any,
    y: Any,
    x_val: Any,
    y_val: Any,
    *,
    mesh: jax.sharding.Mesh | None = None,
    names: tuple[str, str] = ("y", "y_val"),
) -> Pair:
    """Check features, match the columns of tables by name, and compare row orders.

    Arrays that are spread over several devices are gathered to the host.

    Args:
        x: Training features, `[n, d]`.
        y: Labels or targets, of which the row order is compared with that of x.
        x_val: Validation features, `[m, d]`.
        y_val: Their labels or targets.
        mesh: Devices over which an x that is spread stays there.
        names: Names of y and y_val in errors.

    Raises:
        TypeError: If features are not numbers, or are being traced.
        ValueError: If shapes, columns or row orders do not fit, or entries are not
            finite.
    """
    index, stays = None, False
    if not {type(x), type(y), type(x_val), type(y_val)} <= {np.ndarray, np.memmap}:
        check_row_order("x", x, names[0], y)
        check_row_order("x_val", x_val, names[1], y_val)
        index, stays = row_index(x), is_on(x, mesh)
        x_val = whole(align_columns(x, x_val))
        x = x if stays else whole(x)
    features = check_features("x", x, in_place=stays)
    x_val = check_features("x_val", x_val)
    if features.shape[1] != x_val.shape[1]:
        raise ValueError(
            "x and x_val must have the same number of features, got "
            f"{features.shape[1]} and {x_val.shape[1]}"
        )
    if isinstance(features, np.ndarray) or is_readable(features):
        doubt_columns("x", np.asarray(features), x)
    return Pair(features, x_val, index)


def align_columns(
    x: Any, x_val: Any, *, names: tuple[str, str] = ("x", "x_val")
) -> Any:
    """Reorder the columns of x_val to match x, if both have column names.

    Args:
        x: A table, or anything else, which has no column names.
        x_val: A table, or anything else.
        names: Names of the two in errors.

    Raises:
        ValueError: If their columns differ.
    """
    ours, theirs = columns_of(x), columns_of(x_val)
    if ours is None or theirs is None or ours == theirs:
        return x_val
    lacking = [name for name in ours if name not in theirs]
    further = [name for name in theirs if name not in ours]
    if lacking or further or len(set(ours)) < max(len(ours), len(theirs)):
        name, name_val = names
        raise ValueError(
            f"{name} and {name_val} must have the same columns, each once, but {name} "
            f"has {show_labels(ours)} and {name_val} has {show_labels(theirs)}"
            + (f"; {name_val} lacks {show_labels(lacking)}" if lacking else "")
            + (f"; {name} lacks {show_labels(further)}" if further else "")
            + ": select them by name, or pass to_numpy() of both to go by position"
        )
    return select(x_val, ours)


def align(
    x: Any,
    y: Any,
    x_val: Any,
    y_val: Any,
    *,
    names: tuple[str, str] = ("x_val", "y_val"),
) -> Any:
    """Return x_val as `align_columns` does; check the rows' order of both, too."""
    check_row_order("x", x, "y", y)
    check_row_order(names[0], x_val, names[1], y_val)
    return align_columns(x, x_val, names=("x", names[0]))


def check_row_order(name: str, table: Any, other_name: str, other: Any) -> None:
    """Refuse two tables with equal row labels in different orders.

    Raises:
        ValueError: If the orders differ.
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


def _row_labels(table: Any) -> Any:
    """Return a table's index, or None if it has none (`list.index` is a method)."""
    index = getattr(table, "index", None)
    return index if hasattr(index, "equals") else None
