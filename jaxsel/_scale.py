"""The scale of the columns of a table."""

from __future__ import annotations

import numpy as np


def mean_and_scale(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation, 1 if that is 0, of each column."""
    mean = x.mean(axis=0, dtype=np.float64)
    scale = x.std(axis=0, dtype=np.float64)
    scale[scale == 0] = 1
    return mean, scale


def standardized(x: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the columns of x, less their mean, over their scale, as float32."""
    return ((x - mean) / scale).astype(np.float32)
