"""Theorems 3 and 4: count broken bounds, and compare the values."""

from __future__ import annotations

import functools

import numpy as np

from experiments._kit.judge import COUNTED, FAILS, HOLDS, Finding
from jaxsel.report import Table

from .bounds import (
    SIZES,
    STABLE,
    Differences,
    constant_learner,
    private_cases,
    stable_cases,
)

_FAMILY = "bounds"
_SLACK = 1e-9  # of a bound: rounding
_PRIVATE = "Theorem 3, a private majority vote"
_STABLE = "Theorem 4, a mean and a clipped sum"


@functools.cache
def _every_private() -> Differences:
    """Join the cases of `private_cases`, in series of `SIZES`."""
    parts = private_cases().values()
    return Differences(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("n", "loo", "shapley", "loo_bound", "shapley_bound")
        )
    )


def bound_findings() -> list[Finding]:
    """Count the cases that break a bound, as printed, and compare both values."""
    private, stable = _every_private(), stable_cases()
    scale = f"{SIZES[0]} to {SIZES[-1]} points, exact values"
    ratio = _series(private.loo) / _series(private.shapley)
    # Of a handful of votes one decides or none does; the claim is about growing sets.
    middle = len(SIZES) // 2
    less = int((ratio[:, -1] < 1).sum())
    falls = int((ratio[:, -1] < ratio[:, middle]).sum())
    series = len(ratio)
    value, bound = constant_learner(SIZES[0])
    count = functools.partial(_counted, scale=scale)
    return [
        count(
            "Two leave-one-out values differ by no more than ε′(N − 1)",
            _PRIVATE,
            *_broken(private.loo, private.loo_bound),
        ),
        count(
            "Two Shapley values differ by no more than the mean of ε′",
            _PRIVATE,
            *_broken(private.shapley, private.shapley_bound),
        ),
        count(
            "No leave-one-out value is above ε′(N − 1), as Theorem 3 is printed",
            "Theorem 3, a learner that ignores its data but for their number",
            f"a value of {value:.0f}, and a bound of {bound:.0f}",
            value <= bound,
        ),
        count(
            "On many points leave-one-out values differ less than Shapley values",
            _PRIVATE,
            f"of {series} series, leave-one-out differs less at N = {SIZES[-1]} in "
            f"{less}, and its ratio to Shapley has fallen since N = {SIZES[middle]} in "
            f"{falls}",
            less == series,
        ),
        count(
            "Two leave-one-out values differ by no more than C / (N − 1)",
            _STABLE,
            *_broken(stable.loo, stable.loo_bound),
        ),
        count(
            "Two Shapley values differ by no more than C (1 + log(N − 1)) / (N − 1)",
            _STABLE,
            *_broken(stable.shapley, stable.shapley_bound),
        ),
    ]


def bound_table() -> Table:
    """Tabulate the differences and bounds of stable learners at some sizes."""
    cases = stable_cases()
    columns = (cases.loo, cases.loo_bound, cases.shapley, cases.shapley_bound)
    names = np.repeat(STABLE, len(SIZES))
    return Table(
        columns=("Learner", "N", "Leave-one-out", "Bound", "Shapley", "Bound"),
        rows=[
            (str(name), int(n), *map(float, row))
            for name, n, row in zip(names, cases.n, np.stack(columns, 1), strict=True)
            if n in SIZES[::3]
        ],
        formats=("", ",d", *(".4f" for _ in columns)),
        caption="Theorem 4: the largest difference of two values, and the bound on it "
        "as printed, for the mean of N points and for their sum, cut off at -1 and 1 "
        "and divided by N + 1.",
    )


def _counted(text: str, where: str, measured: str, kept: bool, scale: str) -> Finding:
    verdict = HOLDS if kept else FAILS
    place = where.partition(",")[0]
    return Finding(_FAMILY, text, where, scale, measured, verdict, COUNTED, place=place)


def _broken(differences: np.ndarray, bounds: np.ndarray) -> tuple[str, bool]:
    ratio = differences / bounds
    broken = int((ratio > 1 + _SLACK).sum())
    return (
        f"{broken} of {len(ratio)} cases are above it; the largest is "
        f"{ratio.max():.2f} times the bound",
        not broken,
    )


def _series(cases: np.ndarray) -> np.ndarray:
    return cases.reshape(-1, len(SIZES))
