"""Differences between two ways to choose, tested and in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments.values.judge import Evidence, Finding
from jaxsel.demo.words import standard_error


def compare(
    family: str,
    text: str,
    where: str,
    scale: str,
    differences: np.ndarray,
    test: Callable[[np.ndarray], Evidence],
    what: str,
    unit: str = "points",
) -> Finding:
    """Test a mean of differences, and give it in hundredths.

    Args:
        family: Of the claim.
        text: The claim.
        where: On which data.
        scale: How much of it.
        differences: `[seeds]`, fractions; NaN where undefined.
        test: Of the differences that are defined.
        what: Whose difference it is.
        unit: Of a hundredth.
    """
    said = f"{what}: {points(differences)} {unit}"
    return Finding(family, text, where, scale, said, tested(differences, test))


def points(differences: np.ndarray) -> str:
    """Give a mean over seeds in hundredths, with its standard error."""
    known = 100 * _known(differences)
    if not len(known):
        return "undefined"
    error = f" ± {standard_error(known):.1f}" if len(known) > 1 else ""
    return f"{known.mean():+.1f}{error}"


def tested(differences: np.ndarray, test: Callable[[np.ndarray], Evidence]) -> Evidence:
    """Test those that are defined; fewer than two decide nothing."""
    known = _known(differences)
    return test(known) if len(known) > 1 else Evidence(1.0, 1.0)


def _known(values: np.ndarray) -> np.ndarray:
    return np.asarray(values)[np.isfinite(values)]
