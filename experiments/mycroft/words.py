"""Sentences about trends, and means of finite values."""

from __future__ import annotations

import numpy as np

from experiments._kit.words import significant_sign


def known_mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Return means over the finite values; NaN where there are none."""
    known = np.isfinite(values)
    count, total = known.sum(axis), np.where(known, values, 0).sum(axis)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def trend(name: str, steps: np.ndarray, by_step: np.ndarray) -> str:
    """Say at which checkpoint a measure is highest, and its value at the last.

    Args:
        name: The measure, for a reader.
        steps: `[C]`.
        by_step: `[runs, C]`, fractions; runs with a NaN are left out.

    Returns:
        A clause without a full stop. Checkpoints whose difference has no
        `significant_sign` count as equally good.
    """
    by_step = by_step[np.isfinite(by_step).all(axis=1)]
    if not len(by_step):
        return f"{name} is undefined at some checkpoint of every run"
    means = by_step.mean(0)
    worst, best, last = int(means.argmin()), int(means.argmax()), len(means) - 1
    only = ", in the only run" if len(by_step) < 2 else ""
    if only:
        ahead = lambda other: means[best] > means[other]
    else:
        ahead = lambda other: (
            significant_sign(by_step[:, best] - by_step[:, other]) != 0
        )
    if best != last and ahead(last):
        return (
            f"{name} is best after {steps[best]} of {steps[last]} steps with "
            f"{means[best]:.1%}, and has {means[last]:.1%} at the end{only}"
        )
    if not ahead(worst):
        return (
            f"{name} does not depend on the checkpoint ({means.min():.1%} to "
            f"{means.max():.1%}){only}"
        )
    if best == last:
        return (
            f"{name} is best at the last checkpoint, {steps[last]} steps, with "
            f"{means[last]:.1%}, and has {means[0]:.1%} at the first{only}"
        )
    return (
        f"{name} is lowest after {steps[worst]} of {steps[last]} steps with "
        f"{means[worst]:.1%}, and has {means[last]:.1%} at the end, which cannot be "
        f"told apart from the best, {means[best]:.1%} after {steps[best]}{only}"
    )
