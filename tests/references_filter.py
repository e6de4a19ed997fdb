"""A slow, obvious loss threshold: every candidate, in fractions."""

from fractions import Fraction

import numpy as np


def ks_distance(a, b):
    """Return the largest gap between the distribution functions of two samples."""
    return max(
        abs(
            Fraction(int(np.sum(a <= x)), len(a))
            - Fraction(int(np.sum(b <= x)), len(b))
        )
        for x in np.concatenate([a, b])
    )


def threshold(benchmark, losses):
    """Return the loss up to which the kept ones are nearest, and the distance."""
    distances = {
        float(t): ks_distance(benchmark, losses[losses <= t]) for t in np.unique(losses)
    }
    best = min(distances, key=lambda t: (distances[t], t))
    return best, distances[best]
