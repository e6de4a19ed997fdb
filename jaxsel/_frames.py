"""Columns and labels as tables have them: by name, in any order, as objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def names_of(value: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns; None of anything else."""
    names = getattr(value, "columns", None)
    if names is None or isinstance(value, np.ndarray):
        return None
    names = tuple(names)
    return names if names and all(isinstance(name, str) for name in names) else None


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
