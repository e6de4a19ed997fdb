"""Tests of differences between hits on the same held-out samples.

Hits are bool arrays `[s, h]`: whether each of h samples is right under each of s seeds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

_ERRORS = 2.0  # standard errors over seeds that a difference must exceed


def sign_flip(a: np.ndarray, b: np.ndarray) -> float:
    """Return the exact two-sided p-value of a paired sign-flip test of hits `[s, h]`.

    The statistic is the sum of the samples' differences. Differences of one size m
    contribute m (2 B - c), where c is their number and B binomial: the distribution is
    the convolution of s of them.
    """
    sums = a.sum(axis=0, dtype=np.int64) - b.sum(axis=0, dtype=np.int64)
    density, total = np.ones(1), 0
    for size in range(1, len(a) + 1):
        count = int(np.sum(np.abs(sums) == size))
        part = np.zeros(2 * size * count + 1)  # of the sums -size * count and up
        part[:: 2 * size] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        density, total = np.convolve(density, part), total + size * count
    values = np.arange(-total, total + 1)
    return float(min(1.0, density[np.abs(values) >= abs(int(sums.sum()))].sum()))


def steady(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether seeds agree: the difference exceeds its error over them."""
    differences = a.mean(axis=1) - b.mean(axis=1)
    if len(differences) < 2:
        return True
    stderr = differences.std(ddof=1) / len(differences) ** 0.5
    return bool(abs(differences.mean()) > _ERRORS * stderr)


def paired_stderr(a: np.ndarray, b: np.ndarray) -> float:
    """Return the standard error of the mean difference over samples and seeds."""
    differences = a.astype(np.float64) - b
    parts = differences.mean(axis=0), differences.mean(axis=1)
    return float(sum(d.var(ddof=1) / len(d) for d in parts if len(d) > 1) ** 0.5)


def holm(p: Sequence[float]) -> np.ndarray:
    """Return p-values corrected for their number by Holm's method."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(
        1, np.maximum.accumulate((len(p) - np.arange(len(p))) * np.asarray(p)[order])
    )
    return adjusted
