"""Claims on proxies, the paper's and ours, each with its test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments.selectformer.sources import NAMES
from experiments.values.judge import (
    Claim,
    Evidence,
    Finding,
    above,
    settle,
    untested,
    within,
)
from jaxsel.demo.words import standard_error

from .run import Proxies, ProxyPool

TWO = "paper, 2 phases"
OURS = "probe"
LEAD = 0.2
"""Rank correlation by which ours should be above the paper's two phases."""

UNTESTED = (
    (
        "Accuracies of Tables 1 to 6",
        "they are of transformers that are fine-tuned on each purchase, and of other "
        "data",
    ),
    (
        "37, 51 and 131 hours, where MPCFormer takes 279, 388 and 998",
        "hours of BERT are counted in the report on secure costs, not run",
    ),
    ("CIFAR-100 needs three layers", "no pool here has a hundred classes"),
)
"""Claims of the paper on which these pools do not bear, and why."""

NEAR = 0.5
"""Points of accuracy within which a choice is as good as the target's own."""


def judged(result: Proxies) -> list[Claim]:
    """Judge the paper's claims and ours, each of both together by Holm's method."""
    found: list[Finding] = []
    for name, pool in result.pools.items():
        found += _of(result, name, pool)
    lead = np.mean([_lead(result, pool) for pool in result.pools.values()], axis=0)
    where = f"mean of {len(result.pools)} pools"
    found.append(_finding("ours", _LEADS, where, "", lead - LEAD, above, LEAD))
    for family, point, text in (
        ("the paper's", TWO, "Its two phases are above a random choice"),
        ("ours", OURS, "The linear probe is above a random choice"),
    ):
        gains = [_gain(result, pool, point) for pool in result.pools.values()]
        mean = np.mean(gains, axis=0)
        found.append(_finding(family, text, where, "points", mean, above))
    order = ("the paper's", "ours")
    found.sort(key=lambda one: order.index(one.family))
    found += [
        Finding("none", text, "", "", "", untested(why)) for text, why in UNTESTED
    ]
    return settle(found)


_LEADS = (
    f"The linear probe's rank correlation is {LEAD:g} above that of the paper's phases"
)


def _of(result: Proxies, name: str, pool: ProxyPool) -> list[Finding]:
    where = f"{NAMES[name]}, {pool.n.mean():,.0f} samples"
    gain: Callable[[str], np.ndarray] = lambda point: _gain(result, pool, point)
    oracle = pool.beyond(pool.ideal)[:, 0, 0]
    theirs, ours = gain(TWO), gain(OURS)
    last = result.points.index(TWO)
    most = pool.beyond(pool.bought)[:, -1, last]
    near = lambda differences: within(differences, NEAR)
    rows = [
        ("the paper's", "Its two phases are above a random choice", theirs, above),
        ("the paper's", "So they are with a budget of 40 %", most, above),
        (
            "the paper's",
            f"They are as good as the target's own choice, within {NEAR:g} points",
            theirs - oracle,
            near,
        ),
        (
            "the paper's",
            "They are above the last phase alone",
            theirs - gain("paper, 1 phase"),
            above,
        ),
        (
            "the paper's",
            "They are above MPCFormer's parts in the same two phases",
            theirs - gain("MPCFormer"),
            above,
        ),
        (
            "the paper's",
            "They are above Bolt's softmax in the same two phases",
            theirs - gain("Bolt"),
            above,
        ),
        ("ours", "The linear probe is above a random choice", ours, above),
        ("ours", "It is above the paper's two phases", ours - theirs, above),
        (
            "ours",
            f"It is as good as the target's own choice, within {NEAR:g} points",
            ours - oracle,
            near,
        ),
    ]
    found = [
        _finding(family, text, where, "points", values, test)
        for family, text, values, test in rows
    ]
    lead = _lead(result, pool) - LEAD
    return [*found, _finding("ours", _LEADS, where, "", lead, above, LEAD)]


def _finding(
    family: str,
    text: str,
    where: str,
    unit: str,
    values: np.ndarray,
    test: Callable[[np.ndarray], Evidence],
    bound: float = 0.0,
) -> Finding:
    error = f" ± {standard_error(values):.2f}" if len(values) > 1 else ""
    return Finding(
        family=family,
        text=text,
        where=where,
        scale="",
        measured=f"{values.mean() + bound:+.2f}{error} {unit}".rstrip(),
        evidence=test(values),
    )


def _gain(result: Proxies, pool: ProxyPool, point: str) -> np.ndarray:
    """Return points of accuracy beyond a random fifth, `[S]`."""
    return pool.beyond(pool.bought)[:, 0, result.points.index(point)]


def _lead(result: Proxies, pool: ProxyPool) -> np.ndarray:
    """Return ours less the paper's rank correlation, `[S]`."""
    at = pool.spearman[:, [result.points.index(name) for name in (OURS, TWO)]]
    return at[:, 0] - at[:, 1]
