"""Detection of bad samples by low values."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import as_array, check_finite, check_same_length
from jaxsel._results.types import Values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Detection:
    """Share of bad samples found when inspecting from the lowest value up.

    Attributes:
        inspected: `[n + 1]`, share of the samples inspected, from 0 to 1.
        found: `[n + 1]`, share of the bad ones among them, from 0 to 1.
        auc: Probability that a bad sample has a lower value than a good one, ties
            counted half: the area under the ROC curve. 0.5 is chance.
        found_at_bad: Share found when inspecting exactly as many as are bad.
    """

    inspected: np.ndarray
    found: np.ndarray
    auc: float
    found_at_bad: float

    def __repr__(self) -> str:
        return (
            f"Detection(n={len(self.found) - 1}, auc={self.auc:.4g}, "
            f"found_at_bad={self.found_at_bad:.4g})"
        )


def detection_curve(values: Values | npt.ArrayLike, is_bad: npt.ArrayLike) -> Detection:
    """Inspect the lowest values first, and count how many bad samples turn up.

    Among equal values the order of inspection is random, and the result is the
    mean over all orders. Costs one sort.

    Args:
        values: `Values`, or an array of shape `[n]`.
        is_bad: `[n]` of bool: which samples are bad, some and not all.

    Returns:
        The curve with its summaries.

    Raises:
        TypeError: If `is_bad` is not boolean.
        ValueError: If shapes differ, a value is not finite, or all or none are bad.
    """
    v = np.asarray(
        as_array("values", values.values if isinstance(values, Values) else values),
        np.float64,
    )
    bad = np.asarray(is_bad)
    if v.ndim != 1:
        raise ValueError(f"values must have shape [n], got {v.shape}")
    if bad.dtype != bool:
        raise TypeError(f"is_bad must be boolean, got dtype {bad.dtype}")
    check_same_length("values", v, "is_bad", bad)
    check_finite("values", v)
    n, n_bad = len(v), int(bad.sum())
    if not 0 < n_bad < n:
        raise ValueError(f"is_bad must mark some samples, not all, got {n_bad} of {n}")
    _, tie, size = np.unique(v, return_inverse=True, return_counts=True)
    bad_at = np.bincount(tie, weights=bad)
    good_at = size - bad_at
    good_above = n - n_bad - np.cumsum(good_at)
    auc = np.sum(bad_at * (good_above + good_at / 2)) / (n_bad * (n - n_bad))
    # The mean over the orders of a tie grows linearly across it.
    ends, counts = (np.append(0, np.cumsum(a)) for a in (size, bad_at))
    share_found = np.interp(np.arange(n + 1), ends, counts) / n_bad
    return Detection(
        inspected=np.arange(n + 1) / n,
        found=share_found,
        auc=float(auc),
        found_at_bad=float(share_found[n_bad]),
    )
