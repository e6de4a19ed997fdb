"""Differences between two ways to choose, as measurements and in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments._kit.claims import Measured
from experiments._kit.words import standard_error


def compared(
    key: str, values: np.ndarray, what: str, *, unit: str = "points", **about: Any
) -> Measured:
    """Measure a mean of differences, and give it in hundredths.

    Args:
        key: Of the claim.
        values: Differences, `[seeds]`, fractions; seeds with NaN are left out.
        what: Names the two ways.
        unit: Of a hundredth.
        **about: Further fields of `Measured`.
    """
    text = f"{what}: {points(values)} {unit}"
    return Measured(key=key, values=defined(values), said=text, **about)


def points(differences: np.ndarray) -> str:
    """Give a mean over seeds in hundredths, with its standard error."""
    known = 100 * defined(differences)
    if not len(known):
        return "undefined"
    error = f" ± {standard_error(known):.1f}" if len(known) > 1 else ""
    return f"{known.mean():+.1f}{error}"


def defined(values: np.ndarray) -> np.ndarray:
    """Drop NaN and infinite values."""
    return values[np.isfinite(values)]
