"""Columns of a table for the default model: on one scale, with steps and bends."""

from __future__ import annotations

import numpy as np

_MOST = 32  # columns of numbers that a table has; embeddings and pictures have more
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_SPREAD = 10  # times fewer columns hold the variance of units that don't compare


def on_one_scale(x: np.ndarray) -> np.ndarray:
    """Standardise the columns of a table; columns of two values keep a range of 1.

    Embeddings and pictures, which have more than 32 columns of numbers, stay as they
    are: directions of little variance are noise there. They are standardised where a
    tenth of the columns holds the variance, as in wide tables of unlike units.

    Args:
        x: Features, `[n, d]`, finite; other shapes are returned as they are.

    Returns:
        `[n, d]` float32. Centred in float64, so that a column around 1e9 keeps its
        digits.
    """
    if x.ndim != 2:
        return x.astype(np.float32, copy=False)
    wide = x.astype(np.float64, copy=False)
    # Halves, since the range of two numbers may exceed float64.
    low, high = wide.min(axis=0) / 2, wide.max(axis=0) / 2
    reach = np.where(high > low, high - low, 1)
    unit = (wide / 2 - low) / reach
    spread = unit.std(axis=0)
    numbers = _has_three(x)
    if numbers.sum() > _MOST:
        variance = (spread * (reach / reach.max())) ** 2
        held_by = variance.sum() ** 2 / max((variance**2).sum(), np.finfo(float).tiny)
        if held_by * _SPREAD >= np.count_nonzero(spread):
            return x.astype(np.float32, copy=False)
    scale = np.where(numbers & (spread > 0), spread, 1)
    return ((unit - unit.mean(axis=0)) / scale).astype(np.float32)


def with_hinges(x: np.ndarray) -> np.ndarray:
    """Add to each column of numbers its ranks, and hinges at some of its quantiles.

    Columns of two values are left as they are, and so is all of `x` where it has more
    than 32 of others: then it is no table. New columns vary as much as the original.

    Args:
        x: Features, `[n, d]`.

    Returns:
        `[n, d + e]`.
    """
    from scipy import stats

    numbers = np.flatnonzero(_has_three(x))
    if not 0 < len(numbers) <= _MOST:
        return x
    added: list[np.ndarray] = []
    for column in x[:, numbers].T.astype(np.float64):
        spread = column.std()
        edges = np.unique(np.quantile(column, _QUANTILES))
        bends = [np.maximum(column - edge, 0) for edge in edges]
        for new in (stats.rankdata(column), *bends):
            if (deviation := new.std()) > 0:
                added.append((new - new.mean()) * (spread / deviation))
    return np.column_stack([x, *added]).astype(x.dtype)


def _has_three(x: np.ndarray) -> np.ndarray:
    """Return which columns have more than two values, `[d]`."""
    low, high = x.min(axis=0), x.max(axis=0)
    return ((x != low) & (x != high)).any(axis=0)
