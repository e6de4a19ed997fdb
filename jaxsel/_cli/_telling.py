"""Columns of a table by which a reader can judge a label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_BINS = 10  # quantiles of a column of numbers
_KINDS = 50  # categories beyond which a column is no category
_LEAST = 0.05  # association below which a column tells nothing


def telling_columns(
    frame: pd.DataFrame, labels: np.ndarray, *, apart: tuple[str | None, ...], most: int
) -> dict[str, np.ndarray]:
    """Choose the columns that are associated most with the labels.

    By Cramér's V of the labels and a column's categories, or its deciles.

    Args:
        frame: The table as read, with a row for each label.
        labels: `[n]`.
        apart: Columns not to choose: label, id, text.
        most: Most columns to choose.

    Returns:
        Values as in the file by name, the most telling column first.
    """
    import pandas as pd
    from scipy.stats import contingency

    strength: dict[str, float] = {}
    for name in frame.columns:
        column: Any = frame[name]
        if name in apart or column.dtype == object and not _are_plain(column):
            continue
        if pd.api.types.is_numeric_dtype(column.dtype) and column.nunique() > _BINS:
            ranks = column.astype(np.float64).rank(pct=True)
            column = np.ceil(ranks * _BINS)
        codes, kinds = pd.factorize(column, use_na_sentinel=False)
        if 1 < len(kinds) <= _KINDS:
            counts = pd.crosstab(codes, labels).to_numpy()
            v = float(contingency.association(counts, method="cramer"))
            if v >= _LEAST:
                strength[name] = v
    best = sorted(strength, key=lambda name: -strength[name])[:most]
    return {name: frame[name].to_numpy() for name in best}


def _are_plain(column: pd.Series) -> bool:
    """Return whether all cells can be categories."""
    return bool(column.map(lambda cell: cell.__hash__ is not None).all())
