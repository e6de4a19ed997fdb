"""Steps and bends of a table's columns, for a model that has straight lines only."""

from __future__ import annotations

import numpy as np

_MOST = 32  # columns of numbers that a table has; embeddings and pictures have more
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def with_hinges(x: np.ndarray) -> np.ndarray:
    """Add to each column of numbers its ranks, and hinges at some of its quantiles.

    Columns of two values are left as they are, and so is all of `x` where it has more
    than 32 of others: then it is no table. What is added varies as much as the column.

    Args:
        x: Features, `[n, d]`.

    Returns:
        `[n, d + e]`.
    """
    from scipy import stats

    numbers = [j for j in range(x.shape[1]) if _has_three(x[:, j])]
    if not numbers or len(numbers) > _MOST:
        return x
    added: list[np.ndarray] = []
    for column in x[:, numbers].T.astype(np.float64):
        spread = column.std()
        edges = np.unique(np.quantile(column, _QUANTILES))
        bends = [np.maximum(column - edge, 0) for edge in edges]
        for new in (stats.rankdata(column), *bends):
            if (own := new.std()) > 0:
                added.append((new - new.mean()) * (spread / own))
    return np.column_stack([x, *added]).astype(x.dtype)


def _has_three(column: np.ndarray) -> bool:
    """Return whether a column has more than two values."""
    low, high = column.min(), column.max()
    return bool(((column != low) & (column != high)).any())
