"""Claims of papers as rows of data, one function that judges them, and their tables.

A paper's folder states its claims (`Stated`) and measures each on some data sets
(`Measured`); `judge` tests every measurement as its claim says. Headings count claims.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from experiments._kit.judge import (
    COUNTED,
    FAILS,
    HOLDS,
    OPEN,
    UNTESTED,
    Claim,
    Evidence,
    Finding,
    above,
    below,
    every,
    settle,
    untested,
    within,
)
from experiments._kit.words import listed
from jaxsel.report import Table

SHARE = "no verdict: a share"
"""Verdict on claims that something happens sometimes: a share without a test."""


@dataclasses.dataclass(frozen=True)
class SeedTest:
    """A test of differences by seed, two-sided, by Student's t.

    Attributes:
        kind: Whether their mean lies "above" or "below" a bound, or "within" it on both
            sides of 0; "counted", where a number of counterexamples decides; "share"
            gives a share without a verdict.
        bound: That bound.
    """

    kind: Literal["above", "below", "within", "counted", "share"]
    bound: float = 0.0

    def __call__(self, values: np.ndarray) -> Evidence | str:
        """Test the values of one data set.

        Args:
            values: Differences, `[seeds]`, or `[parts, seeds]`: then each part must
                hold. Of "counted", the counterexamples.
        """
        if self.kind == "share":
            return SHARE
        if self.kind == "counted":
            return FAILS if np.any(values) else HOLDS
        test = {"above": above, "below": below, "within": within}[self.kind]
        parts = [test(part, self.bound) for part in np.atleast_2d(values)]
        return parts[0] if len(parts) == 1 else every(parts)


ABOVE = SeedTest("above")
BELOW = SeedTest("below")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stated:
    """A claim.

    Attributes:
        text: The claim, in our words.
        where: Place in the paper; "ours" if it is not from the paper.
        measure: Figures that are compared.
        test: Test of these; None for a claim on which nothing here bears.
        differs: Differences from the paper that bear on it.
        because: Reason why it is not tested.
        family: Claims that are corrected together; each by itself if empty.
    """

    text: str
    where: str
    measure: str = ""
    test: SeedTest | None = None
    differs: str = ""
    because: str = ""
    family: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A measurement for a claim on one data set.

    Attributes:
        key: Key of the claim.
        where: The data.
        scale: Number of points, and features or models.
        values: Differences that its test takes, see `SeedTest`.
        said: The figures, in words.
        if_fails: Said after them if the claim does not hold.
        other: Reason why this data set can't test the claim; "" if it can.
        apart: Suffix of the family, for rows that are corrected apart from others.
    """

    key: str
    where: str
    values: np.ndarray
    said: str
    scale: str = ""
    if_fails: str = ""
    other: str = ""
    apart: str = ""


def judge(stated: Mapping[str, Stated], measured: Iterable[Measured]) -> list[Claim]:
    """Judge claims on all data sets, each family at 5 % together, by Holm's method.

    Rows come claim by claim, in the order in which these are stated; untested claims
    are last, with the reason.

    Args:
        stated: The claims, by key.
        measured: Their measurements.

    Raises:
        ValueError: If a measurement is of no claim, or a claim that should be tested
            has none and no reason.
    """
    rows = [*measured]
    unknown = {row.key for row in rows} - {*stated}
    if unknown:
        raise ValueError(f"measured must be of stated claims, got {sorted(unknown)}")
    tested: list[Finding] = []
    without_test: list[Finding] = []
    for key, claim in stated.items():
        of_claim = [row for row in rows if row.key == key]
        because = untested(claim.because)
        for row in of_claim:
            if claim.test is None:
                evidence = because
            else:
                evidence = untested(row.other) if row.other else claim.test(row.values)
            finding = _finding(key, claim, row.where, row.scale, row.said, evidence)
            finding = dataclasses.replace(
                finding, family=finding.family + row.apart, if_fails=row.if_fails
            )
            (without_test if claim.test is None else tested).append(finding)
        if not of_claim and claim.because:
            without_test.append(_finding(key, claim, "", "", "", because))
    return settle([*tested, *without_test])


def _finding(
    key: str, claim: Stated, where: str, scale: str, said: str, evidence: Evidence | str
) -> Finding:
    counted = claim.test is not None and claim.test.kind in ("counted", "share")
    return Finding(
        family=claim.family or key,
        text=claim.text,
        where=where,
        scale=scale,
        measured=said,
        evidence=evidence,
        test=COUNTED if counted else "t-test",
        place=claim.where,
        differs=claim.differs,
    )


def share_of(counts: np.ndarray, totals: np.ndarray, what: str) -> str:
    """Format a share with its 95 % interval over seeds.

    Args:
        counts: Number of cases where it happened, `[seeds]`.
        totals: Number of all cases, `[seeds]`.
        what: Noun for these cases.
    """
    from scipy.stats import t

    share = counts.sum() / totals.sum()
    text = f"{counts.sum():,.0f} of {totals.sum():,.0f} {what}: {share:.2%}"
    if len(counts) < 2:
        return f"{text}; one seed gives no interval"
    # Seeds are the independent draws: cases within a seed share its data.
    shares = counts / totals
    half = t.ppf(0.975, len(shares) - 1) * shares.std(ddof=1) / np.sqrt(len(shares))
    low, high = max(0.0, shares.mean() - half), min(1.0, shares.mean() + half)
    return f"{text}, 95 % interval over seeds {low:.2%} to {high:.2%}"


def by_claim(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """Return the rows of each claim, by its text."""
    rows: dict[str, list[Claim]] = {}
    for claim in claims:
        rows.setdefault(claim.text, []).append(claim)
    return rows


def tally(claims: Sequence[Claim]) -> str:
    """Count claims, not rows, by the settings in which they hold."""
    counts: dict[str, int] = dict.fromkeys(_WORDS, 0)
    for rows in by_claim(claims).values():
        counts[_whole(rows)] += 1
    parts = [
        f"{n} {_SINGLE[words] if n == 1 else words}" for words, n in counts.items() if n
    ]
    return listed(parts)


_EVERYWHERE, _SOME, _NOWHERE = (
    "hold in each setting",
    "hold in some settings",
    "hold in none",
)
_SHARES, _UNTESTED = "are shown as a share", "are not tested here"
_SINGLE = {
    _EVERYWHERE: "holds in each setting",
    _SOME: "holds in some settings",
    _NOWHERE: "holds in none",
    _SHARES: "is shown as a share",
    _UNTESTED: "is not tested here",
}
_WORDS = (*_SINGLE,)


def _whole(rows: Sequence[Claim]) -> str:
    verdicts = [row.verdict for row in rows if row.verdict in (HOLDS, FAILS, OPEN)]
    if not verdicts:
        return _SHARES if any(r.verdict == SHARE for r in rows) else _UNTESTED
    held = verdicts.count(HOLDS)
    return _EVERYWHERE if held == len(verdicts) else _SOME if held else _NOWHERE


def matrix(claims: Sequence[Claim], caption: str) -> Table:
    """Tabulate the number of settings in which each claim holds, fails or is open."""
    table: list[list[object]] = []
    for text, rows in by_claim(claims).items():
        verdicts = [row.verdict for row in rows]
        known = [v for v in verdicts if v in (HOLDS, FAILS, OPEN)]
        counts = [known.count(v) if known else None for v in (HOLDS, FAILS, OPEN)]
        note = rows[0].measured if SHARE in verdicts else ""
        missing = sum(verdict.startswith(UNTESTED) for verdict in verdicts)
        if not note and missing:
            note = f"in {missing}" if known else UNTESTED
        table.append([text, rows[0].place, *counts, note])
    notes = any(row[-1] for row in table)
    columns = ("Claim", "In the paper", "Holds in", "Fails in", "Open in", "No verdict")
    return Table(
        columns=columns if notes else columns[:-1],
        rows=[row if notes else row[:-1] for row in table],
        caption=f"{caption} Settings (data, noise or models) in which a claim holds, "
        "in which it does not hold, and in which that can't be told; "
        f"{tally(claims)}.",
    )


def averaged(n_seeds: int) -> str:
    """Describe the cells of a table; one seed alone has no standard error."""
    if n_seeds == 1:
        return "of one seed"
    return f"mean ± standard error over {n_seeds} paired seeds"


def claim_table(claims: Sequence[Claim], caption: str, *, n_seeds: int) -> Table:
    """Tabulate each claim on each data set with its measurement, test and verdict.

    Claims that are tested nowhere are left to `untested_table`.

    Args:
        claims: Result of `judge` or `settle`.
        caption: First sentence of the caption.
        n_seeds: Number of seeds; one alone has no standard error.
    """
    error = " ± is one standard error." if n_seeds > 1 else ""
    tests = (
        "t-tests are two-sided and paired by seed, at 5 % for all that is tested on "
        f"one family of claims (Holm; p is adjusted).{error}"
    )
    tested = any(c.p is not None for c in claims)
    return Table(
        columns=("Claim", "Data", "Measured", "Test", "p", "Verdict"),
        rows=[
            (
                c.text,
                f"{c.where}: {c.scale}" if c.scale else c.where,
                c.measured,
                c.test,
                None if c.p is None else "< 0.001" if c.p < 1e-3 else f"{c.p:.3f}",
                c.verdict,
            )
            for rows in by_claim(claims).values()
            for c in rows
            if _whole(rows) != _UNTESTED
        ],
        caption=f"{caption} {tests if tested else 'Nothing was tested.'} A verdict is "
        "about the data, sizes and models of its row.",
    )


def untested_table(claims: Sequence[Claim], caption: str = "") -> Table | None:
    """Tabulate claims that are not tested, with the reason; None if there are none."""
    groups = by_claim(claims).values()
    shown = [c for rows in groups if _whole(rows) == _UNTESTED for c in rows]
    if not shown:
        return None
    why = f"{UNTESTED}, because "
    any_figures = any(c.measured for c in shown)
    rows = [
        (
            c.text,
            c.place,
            c.verdict.removeprefix(why),
            f"{c.where}: {c.measured}" if c.measured else "",
        )
        for c in shown
    ]
    columns = "Claim", "In the paper", "Not tested here, because", "Figures"
    return Table(
        columns=columns if any_figures else columns[:-1],
        rows=rows if any_figures else [row[:-1] for row in rows],
        caption=caption or "Claims of the paper on which nothing here bears.",
    )


def differs_table(stated: Mapping[str, Stated], caption: str) -> Table:
    """Tabulate the test of each claim, and its differences from the paper."""
    return Table(
        columns=("Claim", "In the paper", "Judged by", "What differs here"),
        rows=[
            (claim.text, claim.where, claim.measure, claim.differs)
            for claim in stated.values()
            if claim.test is not None
        ],
        caption=caption,
    )
