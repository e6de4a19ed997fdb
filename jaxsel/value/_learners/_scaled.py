"""Columns in a scale of their own, with the penalty that they have there."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_TIDY = 1e-3  # penalty of a column of variance 1, below which float32 is not enough
_SAME = 16 * np.finfo(np.float64).eps  # deviation of a constant column, relative
_MOST = 1e30  # penalty, far below what overflows


class Scaled(NamedTuple):
    """Centred and scaled columns.

    Attributes:
        x: A column of ones last, `[n, p]` float64.
        mean: Subtracted from the columns, float32 numbers, `[d]`.
        factor: Of the centred columns, `[d]`; a power of 2 if `raw`.
        penalty: Of coefficients of x, `[p]`: zero for the last.
        raw: True if float32 does not suffice to find the optimum.
    """

    x: np.ndarray
    mean: np.ndarray
    factor: np.ndarray
    penalty: np.ndarray
    raw: bool


def is_raw(deviation: np.ndarray, l2: float) -> bool:
    """Return whether float32 does not suffice for columns of these deviations."""
    return bool(l2 < _TIDY * np.max(deviation) ** 2)


def standardise(x: Any, l2: float, *, alike: bool = False) -> Scaled:
    """Scale columns `[n, d]` to variance 1, and the penalty along with them.

    Args:
        x: Features.
        l2: Penalty on the squared coefficients of the features as they are.
        alike: Whether all columns are scaled by one factor, so that their deviation is
            on average between 1/6 and 6.
    """
    x = np.asarray(x, np.float64)
    # Rounded to float32: learners store it so, and shift intercepts by the very number
    # that was subtracted here.
    mean = x.mean(0).astype(np.float32).astype(np.float64)
    centred = x - mean
    deviation = centred.std(0)
    constant = deviation <= _SAME * np.abs(x).max(0)
    deviation = np.where(constant, 0.0, deviation)
    raw = is_raw(deviation, l2)
    if alike:  # to a power of 32: columns that are near that are as good as they are
        usual = max(float(np.mean(deviation**2)) ** 0.5, 1e-30)
        power = float(np.log2(usual))
        deviation = np.full(len(deviation), 32.0 ** round(power / 5))
    factor = 1 / np.where(deviation > 0, deviation, 1.0)
    if raw:
        # Products with powers of two have no rounding: float64 keeps all its digits.
        factor = 2.0 ** np.round(np.log2(factor))
    penalty = np.append(np.minimum(l2 * factor**2, _MOST), 0.0)
    rows = np.append(centred * factor, np.ones((len(x), 1)), axis=1)
    return Scaled(rows, mean, factor, penalty, raw)


def widened(array: jax.Array) -> jax.Array:
    """Return floats as float64, where that is enabled, and all else as it is."""
    floats = jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(jnp.float64) if floats else array


def narrowed(array: jax.Array) -> jax.Array:
    """Return floats as float32, and all else as it is."""
    floats = jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(jnp.float32) if floats else array


def scaled_rows(x: jax.Array, mean: jax.Array, factor: jax.Array) -> jax.Array:
    """Standardise raw columns exactly, in float64, and append ones, `[n, p]`."""
    rows = (widened(x) - widened(mean)[None]) * widened(factor)[None]
    return jnp.pad(rows, ((0, 0), (0, 1)), constant_values=1)
