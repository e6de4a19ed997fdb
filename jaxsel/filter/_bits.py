"""Floats as integers in the same order, to split an interval evenly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_PLACES = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}


def to_place(values: npt.NDArray[np.floating], *, wide: bool = True) -> np.ndarray:
    """Return each float's place: neighbours differ by one; -0.0 counts as 0.0.

    Args:
        values: float32 or float64, without NaN.
        wide: Whether to return int64, rather than integers of the floats' size.
    """
    kind = _PLACES[values.dtype]
    # Adding 0.0 makes 0.0 of -0.0, and a copy that may be viewed.
    bits = (values + 0.0).view(kind)
    if bits.size and bits.min() < 0:  # as sign and magnitude: mirror negative floats
        bits = np.where(bits < 0, np.iinfo(kind).min - bits, bits)
    return bits.astype(np.int64) if wide else bits


def to_float(places: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the floats at places: the inverse of `to_place`."""
    kind = _PLACES[dtype]
    bits = np.asarray(places, np.int64).astype(kind)
    return np.where(bits < 0, np.iinfo(kind).min - bits, bits).view(dtype)


def split(low: int, high: int, parts: int) -> np.ndarray:
    """Return places strictly between two, which cut the interval about evenly.

    All places between if there are fewer than `parts`.
    """
    inside = high - low - 1
    cuts = min(inside, parts - 1)
    steps = np.arange(1, cuts + 1)
    if (inside + 1) * cuts >= 1 << 63:  # as between two float64: take Python's integers
        steps = steps.astype(object)
    return (low + steps * (inside + 1) // (cuts + 1)).astype(np.int64)
