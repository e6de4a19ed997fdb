"""Verdicts on claims: paired tests over seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from ._mycroft_words import standard_error

HOLDS, FAILS, OPEN = "holds", "does not hold", "can't be told"


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper's, beside what was measured.

    Attributes:
        text: The claim.
        where: On which data.
        measured: Figures that it was judged by.
        verdict: One of `HOLDS`, `FAILS` and `OPEN`.
    """

    text: str
    where: str
    measured: str
    verdict: str


def interval(values: np.ndarray, *, tests: int = 1) -> tuple[float, float]:
    """Return a 95 % confidence interval of a mean over seeds, by Student's t.

    Args:
        values: `[seeds]`. A single one tells nothing: the interval has no end.
        tests: How many are made at once (Bonferroni).
    """
    from scipy.stats import t

    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return -np.inf, np.inf
    margin = float(t.ppf(1 - 0.025 / tests, n - 1)) * standard_error(values)
    return mean - margin, mean + margin


def above(differences: np.ndarray, least: float = 0.0, *, tests: int = 1) -> str:
    """Judge that a mean of differences is above a bound.

    Args:
        differences: `[seeds]`.
        least: The bound. Exactly at it, nothing is told.
        tests: See `interval`.
    """
    low, high = interval(differences, tests=tests)
    return HOLDS if low > least else FAILS if high < least else OPEN


def below(differences: np.ndarray, most: float) -> str:
    """Judge that a mean is below a bound."""
    return above(-np.asarray(differences), -most)


def within(differences: np.ndarray, margin: float) -> str:
    """Judge that a mean is as good as zero: no further from it than a margin."""
    low, high = interval(differences)
    if -margin < low and high < margin:
        return HOLDS
    return FAILS if low > margin or high < -margin else OPEN


def every(verdicts: list[str]) -> str:
    """Judge a claim of several parts: it fails with one of them."""
    if FAILS in verdicts:
        return FAILS
    return OPEN if OPEN in verdicts else HOLDS


def best(figures: Mapping[str, np.ndarray], name: str) -> str:
    """Judge that a method is above all others.

    It holds if each paired test tells so; it fails if one tells the opposite, at 5 %
    for all tests together.

    Args:
        figures: `[seeds]` by method, higher is better.
        name: The method.
    """
    gaps = [figures[name] - other for m, other in figures.items() if m != name]
    if all(above(gap) == HOLDS for gap in gaps):
        return HOLDS
    worse = any(above(gap, tests=len(gaps)) == FAILS for gap in gaps)
    return FAILS if worse else OPEN


def beaten_by(figures: Mapping[str, np.ndarray], name: str) -> list[str]:
    """Return which methods are told to be above another, at 5 % for all together."""
    gaps = {m: other - figures[name] for m, other in figures.items() if m != name}
    return [m for m, gap in gaps.items() if above(gap, tests=len(gaps)) == HOLDS]


def groups(
    figures: Mapping[str, np.ndarray], upper: list[str], lower: list[str]
) -> str:
    """Judge that each of some methods is above each of others."""
    pairs = [figures[a] - figures[b] for a in upper for b in lower]
    if all(above(gap) == HOLDS for gap in pairs):
        return HOLDS
    failed = any(above(gap, tests=len(pairs)) == FAILS for gap in pairs)
    return FAILS if failed else OPEN


def gap(name: str, a: np.ndarray, other: str, b: np.ndarray) -> str:
    """Give two means and the standard error of their difference, in points."""
    points = 100 * (np.asarray(a) - np.asarray(b))
    error = f" ± {standard_error(points):.1f}" if len(points) > 1 else ""
    return f"{name} less {other}: {points.mean():+.1f}{error} points"
