"""The scale of the columns of a table."""

from __future__ import annotations

import numpy as np

_LOOKED_AT = 2048  # rows
_FAR = 16  # standard deviations, from which on float32 loses more than four bits


def mean_and_scale(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation, 1 if that is 0, of each column."""
    mean = x.mean(axis=0, dtype=np.float64)
    scale = x.std(axis=0, dtype=np.float64)
    scale[scale == 0] = 1
    return mean, scale


def standardized(x: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the columns of x, less their mean, over their scale, as float32."""
    return ((x - mean) / scale).astype(np.float32)


def origin(x: np.ndarray) -> np.ndarray:
    """Return the number to subtract from each column before it becomes float32, `[d]`.

    It is a number of the first row where the column lies far from zero, such as times
    in seconds: equal differences then stay equal. It is zero for all other columns.
    """
    zero = np.zeros(x.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):  # too large for float32 anyway
        # A sample of rows rules most columns out; half of `_FAR` allows for its error.
        sample = x[:: -(-len(x) // _LOOKED_AT)].astype(np.float64)
        likely = np.flatnonzero(np.abs(sample.mean(0)) > _FAR / 2 * sample.std(0))
        columns = x[:, likely].astype(np.float64)
        scale = columns.std(axis=0)
        far = (np.abs(columns.mean(axis=0)) > _FAR * scale) & (scale > 0)
    zero[likely[far]] = columns[0, far]
    return zero
