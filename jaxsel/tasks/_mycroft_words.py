"""Sentences about measured differences, worded by what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def compared(name: str, a: np.ndarray, other: str, b: np.ndarray) -> str:
    """Say how two accuracies compare over the same runs, in percentage points.

    Args:
        name: What `a` belongs to.
        a: `[runs]`, fractions.
        other: What `b` belongs to.
        b: `[runs]`, of the same runs.

    Returns:
        A clause without a full stop. A difference within two standard errors of its
        mean counts as none.
    """
    points = 100 * (np.asarray(a) - np.asarray(b))
    mean = points.mean()
    if len(points) < 2:
        return f"{name} is {mean:+.1f} points from {other} in the only run"
    error = points.std(ddof=1) / len(points) ** 0.5
    if abs(mean) < 2 * error or not mean:
        difference = f"{mean:+.1f} ± {error:.1f} points"
        return f"{name} and {other} cannot be told apart ({difference})"
    where = "above" if mean > 0 else "below"
    return f"{name} is {abs(mean):.1f} ± {error:.1f} points {where} {other}"


def trend(name: str, steps: np.ndarray, by_step: np.ndarray) -> str:
    """Say at which checkpoint something is highest, and what the last one gives.

    Args:
        name: What is looked at.
        steps: `[C]`.
        by_step: `[runs, C]`, fractions.
    """
    means = by_step.mean(0)
    best, last = int(means.argmax()), len(means) - 1
    if best == last:
        return (
            f"{name} is best at the last checkpoint, {steps[last]} steps, with "
            f"{means[last]:.1%}, and has {means[0]:.1%} at the first"
        )
    return (
        f"{name} is best after {steps[best]} of {steps[last]} steps with "
        f"{means[best]:.1%}, and has {means[last]:.1%} at the end"
    )


def listed(items: Sequence[str]) -> str:
    """Join by commas and an "and"."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def sentence(*clauses: str) -> str:
    """Join clauses by semicolons, with a capital and a full stop."""
    text = "; ".join(clauses)
    return text[0].upper() + text[1:] + "."
