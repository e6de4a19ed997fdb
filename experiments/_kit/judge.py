"""Verdicts on claims: paired t-tests over seeds, with Holm's correction."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments._kit.words import listed, standard_error

HOLDS, FAILS, OPEN = "holds", "does not hold", "can't be told"
UNTESTED = "not tested here"
LEVEL = 0.05
TESTED, COUNTED, NONE = "t-test", "none, counted", "none"
"""Kind of test: t-tests over seeds, counted cases, or none."""


class Evidence(NamedTuple):
    """P-values for and against a claim, two-sided.

    Attributes:
        holds: For the claim.
        fails: Against it.
        tests: Number of t-tests these were joined from.
        n: Number of seeds; 0 if unknown.
    """

    holds: float
    fails: float
    tests: int = 1
    n: int = 0

    @property
    def p(self) -> float:
        """Return the smaller p-value."""
        return min(self.holds, self.fails)


@dataclasses.dataclass(frozen=True)
class Finding:
    """A claim with its evidence, before correction for other claims.

    Attributes:
        family: Claims of one family are corrected together.
        text: The claim.
        where: The data.
        scale: Number of points, and features or models.
        measured: Figures that it is judged by.
        evidence: P-values; or the verdict, where cases were counted or nothing was
            tested, see `untested`.
        test: One of `TESTED` and `COUNTED`; `NONE` where nothing was tested.
        if_fails: Said after the figures if the claim does not hold.
        place: Place in the paper.
        differs: Differences from the paper.
    """

    family: str
    text: str
    where: str
    scale: str
    measured: str
    evidence: Evidence | str
    test: str = TESTED
    if_fails: str = ""
    place: str = ""
    differs: str = ""


@dataclasses.dataclass(frozen=True)
class Claim:
    """A judged claim of the paper, with its measurement, test and verdict.

    Attributes:
        text: The claim.
        where: The data.
        scale: Number of points, and features or models: a verdict is about these only,
            not about the paper's.
        measured: Figures that it was judged by.
        test: The tests, the number of seeds, and the number of claims they are
            corrected for; or that there was none.
        p: Its p-value, for or against the claim, times Holm's factor; None where
            nothing was tested.
        verdict: `HOLDS`, `FAILS`, `OPEN`, or `UNTESTED` with the reason.
        place: Place in the paper; "" if not given.
        differs: Differences from the paper.
    """

    text: str
    where: str
    scale: str
    measured: str
    test: str
    p: float | None
    verdict: str
    place: str = ""
    differs: str = ""


def settle(findings: Sequence[Finding]) -> list[Claim]:
    """Judge claims at 5 % for all tests of a family together, by Holm's method."""
    ps: list[float | None] = [None] * len(findings)
    families: dict[str, dict[int, float]] = {}
    for i, finding in enumerate(findings):
        if isinstance(finding.evidence, Evidence):
            families.setdefault(finding.family, {})[i] = finding.evidence.p
    for raw in families.values():
        for i, p in zip(raw, holm([*raw.values()]), strict=True):
            ps[i] = p
    sizes = {family: len(raw) for family, raw in families.items()}
    verdicts = [
        verdict(finding.evidence, p) for finding, p in zip(findings, ps, strict=True)
    ]
    return [
        Claim(
            text=finding.text,
            where=finding.where,
            scale=finding.scale,
            measured=finding.measured + (finding.if_fails if outcome == FAILS else ""),
            test=_test(finding, sizes.get(finding.family, 0)),
            p=p,
            verdict=outcome,
            place=finding.place,
            differs=finding.differs,
        )
        for finding, p, outcome in zip(findings, ps, verdicts, strict=True)
    ]


def tally(claims: Sequence[Claim]) -> str:
    """Count the verdicts."""
    counts = Counter(
        UNTESTED if claim.verdict.startswith(UNTESTED) else claim.verdict
        for claim in claims
    )
    words = {
        HOLDS: "hold",
        FAILS: "do not hold",
        OPEN: "can't be told",
        UNTESTED: "are not tested here",
    }
    return listed([f"{counts[v]} {words[v]}" for v in words if counts[v]])


def _test(finding: Finding, family: int) -> str:
    """Describe the test of a claim, and the size of its family for Holm's method."""
    if isinstance(finding.evidence, str):
        return NONE if finding.evidence.startswith(UNTESTED) else finding.test
    tests, n = finding.evidence.tests, finding.evidence.n
    text = finding.test if tests == 1 else f"{tests} {finding.test}s"
    if n:
        text += f", {n} seed{'s' if n > 1 else ''}"
    return text + (f", Holm of {family}" if family > 1 else "")


def untested(reason: str) -> str:
    """Return the verdict on a claim that is not tested, with the reason."""
    return f"{UNTESTED}, because {reason}"


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple tests by Holm's method."""
    order = np.argsort(ps, kind="stable")
    factors = np.arange(len(ps), 0, -1)
    adjusted = np.empty(len(ps))
    # Step-down: no adjusted p-value is below the one of a smaller p-value.
    adjusted[order] = np.maximum.accumulate(np.asarray(ps)[order] * factors)
    return np.minimum(adjusted, 1).tolist()


def verdict(evidence: Evidence | str, p: float | None = None) -> str:
    """Return the verdict on evidence at the 5 % level.

    Args:
        evidence: P-values, or a verdict already.
        p: The smaller p-value, adjusted; as it is if None.
    """
    if isinstance(evidence, str):
        return evidence
    if (evidence.p if p is None else p) > LEVEL:
        return OPEN
    return HOLDS if evidence.holds < evidence.fails else FAILS


def above(differences: np.ndarray, bound: float = 0.0) -> Evidence:
    """Test that a mean of differences is above a bound, by Student's t.

    Args:
        differences: `[seeds]`. Fewer than two decide nothing.
        bound: A mean exactly at it decides nothing.
    """
    from scipy.stats import t

    n = len(differences)
    gap = float(np.mean(differences)) - bound if n > 1 else 0.0
    if gap == 0:
        return Evidence(1.0, 1.0, n=n)
    error = standard_error(differences)
    p = 2 * float(t.sf(abs(gap) / error, n - 1)) if error else 0.0
    return Evidence(p, 1.0, n=n) if gap > 0 else Evidence(1.0, p, n=n)


def below(differences: np.ndarray, most: float) -> Evidence:
    """Test that a mean is below a bound."""
    return above(-np.asarray(differences), -most)


def within(differences: np.ndarray, margin: float) -> Evidence:
    """Test that a mean is equivalent to zero, within a margin."""
    # Two one-sided tests (TOST). The mean leaves the margin on one side at most, so at
    # most one of the `fails` is below 1, and their minimum needs no correction.
    low, high = above(differences, -margin), below(differences, margin)
    holds, fails = max(low.holds, high.holds), min(low.fails, high.fails)
    return Evidence(holds, fails, tests=2, n=low.n)


def every(parts: Sequence[Evidence]) -> Evidence:
    """Join the tests of a claim of several parts.

    It holds if each part does, and fails with one of them, at 5 % for all parts.
    """
    # Intersection-union for `holds`, which needs no correction; Bonferroni for `fails`.
    least = min(part.fails for part in parts)
    return Evidence(
        max(part.holds for part in parts),
        min(1.0, len(parts) * least),
        tests=sum(part.tests for part in parts),
        n=parts[0].n,
    )


def best(figures: Mapping[str, np.ndarray], name: str) -> Evidence:
    """Test that a method is above all others.

    Args:
        figures: `[seeds]` by method, higher is better.
        name: The method.
    """
    return groups(figures, [name], [m for m in figures if m != name])


def beaten_by(figures: Mapping[str, np.ndarray], name: str) -> list[str]:
    """Return the methods that are significantly above another, at 5 % together."""
    others = [m for m in figures if m != name]
    ps = [len(others) * above(figures[m] - figures[name]).holds for m in others]
    return [m for m, p in zip(others, ps, strict=True) if p <= LEVEL]


def groups(
    figures: Mapping[str, np.ndarray], upper: list[str], lower: list[str]
) -> Evidence:
    """Test that each of `upper` is above each of `lower`."""
    return every([above(figures[a] - figures[b]) for a in upper for b in lower])


def gap(name: str, a: np.ndarray, other: str, b: np.ndarray) -> str:
    """Format the difference of two means with its standard error, in points."""
    points = 100 * (np.asarray(a) - np.asarray(b))
    error = f" ± {standard_error(points):.1f}" if len(points) > 1 else ""
    return f"{name} less {other}: {points.mean():+.1f}{error} points"
