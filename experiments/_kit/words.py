"""Sentences about measured differences, worded by sign and significance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def spread(x: np.ndarray) -> tuple[float, float | None]:
    """Return mean and standard deviation over seeds; the latter None for one seed."""
    return float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else None


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of a mean over seeds, `[seeds]`, two at least."""
    return float(values.std(ddof=1) / len(values) ** 0.5)


def significant_sign(differences: np.ndarray) -> int:
    """Return the sign of a mean over seeds, or 0 where it is not significant.

    By a paired t-test at 5 %. A single seed is never significant.

    Args:
        differences: `[seeds]`, of two figures of the same seed.
    """
    from scipy.stats import t

    n, mean = len(differences), differences.mean()
    if n < 2:
        return 0
    margin = t.ppf(0.975, n - 1) * standard_error(differences)
    return 0 if abs(mean) < margin or not mean else int(np.sign(mean))


def averaged(form: str, *columns: np.ndarray) -> str:
    """Give means over seeds, and for how many they are defined if not for all.

    Args:
        form: Format of a mean, such as ".0%".
        *columns: `[seeds]` each, NaN where undefined.
    """
    known: np.ndarray = np.all(np.isfinite(np.stack(columns)), axis=0)
    if not known.any():
        return "undefined"
    text = " and ".join(f"{column[known].mean():{form}}" for column in columns)
    if known.all():
        return text
    return f"{text} (defined for {known.sum()} of {len(known)} seeds)"


def compared(name: str, a: np.ndarray, other: str, b: np.ndarray) -> str:
    """Describe how two accuracies compare over the same runs, in percentage points.

    Args:
        name: Name of the method that reached `a`.
        a: `[runs]`, fractions; NaN where undefined.
        other: Name of the method that reached `b`.
        b: `[runs]`, of the same runs.

    Returns:
        A clause without a full stop, with the standard error of the mean difference.
        A difference without a `significant_sign` counts as none.
    """
    points = 100 * (np.asarray(a) - np.asarray(b))
    points = points[np.isfinite(points)]
    if not len(points):
        return f"{name} and {other} cannot be compared: one of them is undefined"
    mean = points.mean()
    if len(points) < 2:
        return f"{name} is {mean:+.1f} points from {other} in the only run"
    error = standard_error(points)
    if not significant_sign(points):
        difference = f"{mean:+.1f} ± {error:.1f} points"
        return f"{name} and {other} cannot be told apart ({difference})"
    where = "above" if mean > 0 else "below"
    return f"{name} is {abs(mean):.1f} ± {error:.1f} points {where} {other}"


def finding(
    names: str, a: np.ndarray, others: str, b: np.ndarray, figure: str, form: str
) -> str:
    """Say in a heading which of two does better, or that this cannot be told.

    Args:
        names: Name, a plural, for the methods with figures `a`.
        a: `[seeds]`, higher is better; NaN where undefined.
        others: Name, a plural, for the methods with figures `b`.
        b: `[seeds]`, of the same seeds.
        figure: Name of the quantity compared.
        form: Format of a mean, such as ".0%".

    Returns:
        The heading, with the means. Without a `significant_sign` it cannot be told.
    """
    both = np.stack([a, b])
    a, b = both[:, np.isfinite(both).all(0)]
    if not len(a):
        return f"{names} and {others} cannot be compared: {figure} is undefined"
    sign = significant_sign(a - b)
    means = f"{a.mean():{form}} {'against' if sign else 'and'} {b.mean():{form}}"
    if sign:
        how = "better" if sign > 0 else "worse"
        return f"{names} do {how} than {others}: {means} {figure}"
    seeds = "1 seed" if len(a) == 1 else f"{len(a)} seeds"
    return f"{names} and {others} cannot be told apart by {seeds}: {means} {figure}"


def listed(items: Sequence[str]) -> str:
    """Join by commas and an "and"."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def sentence(*clauses: str) -> str:
    """Join clauses by semicolons, with a capital and a full stop."""
    text = "; ".join(clauses)
    return text[0].upper() + text[1:] + "."
