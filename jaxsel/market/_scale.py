"""Samples on one scale: centred, and divided by their spread."""

from __future__ import annotations

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """Centre and spread of samples: of each column of a table, else of all numbers.

    Missing numbers, NaN, do not count, and are at the centre.
    """

    mean: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> Scale:
        axis = 0 if x.ndim == 2 else None
        of_mean, of_spread = np.mean, np.std
        gaps = np.isnan(x) if x.dtype.kind == "f" else np.zeros(1, bool)
        if gaps.any():
            of_mean, of_spread = np.nanmean, np.nanstd
            x = np.where(gaps.all(axis=axis), 0, x)  # a column without any number
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.asarray(of_spread(x, axis=axis, dtype=np.float64))
            mean = np.asarray(of_mean(x, axis=axis, dtype=np.float64))
        return cls(mean=mean, spread=np.where(spread > 0, spread, 1))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return samples as rows, `[n, d]` float32."""
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = ((x - self.mean) / self.spread).astype(np.float32)
        if x.dtype.kind == "f":
            scaled[np.isnan(x)] = 0
        return scaled.reshape(len(x), math.prod(x.shape[1:]))
