"""Measurements for each claim about tables and decision paths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments._kit.claims import Measured, share_of
from experiments.mycroft.comparing import compared, points

from .figures import Measures, classifier_means, measure
from .paths import BUDGET, OTHERS, SPLITS, WAYS, Paths
from .run import USEFUL, Tabular
from .select import AUTHORS, COVERING, DISTANCES, OURS, SELECTORS

MANY = 80
"""Samples at random beside Mycroft's five; the paper has 100, budgets here double."""

LITTLE = 0.02
"""F1 that a combination must add to count as an improvement."""

BEST = "decision tree"
"""The best classifier of the paper."""

READINGS = {
    "Mycroft": ("binning distance", "the least distance (Algorithm 4, and the code)"),
    "Mycroft with coverage": (
        "binning distance, covering",
        "all distances in Algorithm 3 (section 3.2)",
    ),
}
"""The paper's two ways from binning distances to a choice: names and rankings."""

ALIKE = {
    "both take the least distance": ("", ""),
    "both cover the hard samples": (COVERING, COVERING),
    "as published: the least of binning distances, the others cover": ("", COVERING),
}
"""How the binning distance and another one choose where they are compared."""

RANKED = {
    "binning by feature": "binning by feature",
    "Mycroft with coverage": "binning distance, covering",
}
"""Other rankings that are set beside Mycroft's, by name."""

_F1 = "points of F1"


def on_rows(result: Tabular) -> Iterator[Measured]:
    """Yield the measurements for the paper's claims on choosing rows of a table."""
    m = measure(result)
    for name, (ranking, how) in READINGS.items():
        yield from _reading(result, m, name, SELECTORS.index(ranking), how)
    score = lambda name: m.f1[:, SELECTORS.index(name), 0]
    first = score("binning distance")
    for tree, name in ((AUTHORS, "confidence"), (OURS, f"confidence, {OURS}")):
        about = _about(result, f"owners' trees: {tree}")
        what = "confidence less Mycroft"
        yield compared("confidence", score(name) - first, what, unit=_F1, **about)
    about = _about(result, "both take the least distance")
    further = score("total variation") - first
    what = "total variation less Mycroft"
    yield compared("total variation", further, what, unit=_F1, **about)
    if "XGBoost" in result.classifiers:
        yield _classifiers(result)
    everything, selector_index = result.everything, SELECTORS.index("binning distance")
    ahead = (result.f1[..., selector_index, 0] >= USEFUL) & (everything < USEFUL)
    counts = ahead.sum(axis=(1, 2))
    yield Measured(
        key="sometimes",
        values=counts,
        said=share_of(counts, np.full(len(ahead), ahead[0].size), "pairs"),
        **_about(result),
    )


def _reading(
    result: Tabular, m: Measures, name: str, at: int, how: str
) -> Iterator[Measured]:
    """Yield Mycroft beside random, by one way to choose."""
    random, about, what = SELECTORS.index("random"), _about(result, how), "less random"
    counts, f1, reached = m.found.sum(axis=1), m.f1[..., 0], m.reached[..., 0]
    useful, by_chance = counts[:, at], counts[:, random]
    for key, values, words, unit in (
        ("random", f1[:, at] - f1[:, random], f"{name} {what}", _F1),
        (
            "reached",
            reached[:, at] - reached[:, random],
            f"{name} {what}",
            "points of all pairs",
        ),
        (
            "useful",
            (useful - by_chance) / 100,
            f"{useful.mean():.1f} and {by_chance.mean():.1f}; difference",
            "owners",
        ),
    ):
        yield compared(f"{name}, {key}", values, words, unit=unit, **about)


def _classifiers(result: Tabular) -> Measured:
    """Set the decision tree beside the paper's other classifiers."""
    means = classifier_means(result)[..., 1]
    score = lambda name: means[:, result.classifiers.index(name)]
    leads = {name: score(BEST) - score(name) for name in ("XGBoost", "random forest")}
    words = ", less ".join(f"{name} {points(lead)}" for name, lead in leads.items())
    return Measured(
        key="classifiers",
        where=result.table.capitalize(),
        scale=f"{result.budgets[0]} samples by Mycroft",
        values=np.stack([*leads.values()]),
        said=f"tree less {words} {_F1}",
    )


def on_paths(result: Paths, tree: str = AUTHORS) -> Iterator[Measured]:
    """Yield the measurements of decision paths and combined choices.

    Args:
        result: Of all seeds.
        tree: One of `TREES`: how far the owners' trees were grown.
    """
    f1, about = _by_way(result), _cases(result, tree)
    for upper, lower in (("same path", "random"), ("Mycroft", "same path")):
        what, lead = (
            f"{upper[0].upper()}{upper[1:]} less {lower}",
            f1[upper] - f1[lower],
        )
        yield compared(f"{upper}, {lower}", lead, what, unit=_F1, **about)
    combined = result.means(result.combined)
    half, whole = SPLITS.index(max(SPLITS) // 2), SPLITS.index(max(SPLITS))
    about = _cases(result, tree, max(SPLITS))
    for i, name in enumerate(OTHERS):
        more = combined[:, i, half] - combined[:, i, whole]
        what = "combined less Mycroft alone"
        yield compared(f"combined, {name}", more, what, unit=_F1, **about)


def on_other_rows(result: Tabular) -> Iterator[Measured]:
    """Yield other distances, and how much five samples are worth on this table."""
    m = measure(result)
    score = lambda name: m.f1[:, SELECTORS.index(name), 0]
    mycroft = "binning distance"
    for name in DISTANCES:
        for how, (binned, theirs) in ALIKE.items():
            lead = score(name + theirs) - score(mycroft + binned)
            yield _beside(result, name, lead, how)
    for name, ranking in RANKED.items():
        yield _beside(result, name, score(ranking) - score(mycroft))
    for b in np.flatnonzero(result.budgets == MANY):
        gap = score(mycroft) - m.f1[:, SELECTORS.index("random"), b]
        what = "Mycroft less random"
        yield compared("many", gap, what, unit=_F1, **_about(result))


def on_other_paths(result: Paths, tree: str = AUTHORS) -> Measured:
    """Measure the lead of the same path over other paths, as Figure 10 shows it."""
    f1 = _by_way(result)
    lead, what = f1["same path"] - f1["other paths"], "Same path less other paths"
    return compared("other paths", lead, what, unit=_F1, **_cases(result, tree))


def _beside(result: Tabular, name: str, lead: np.ndarray, how: str = "") -> Measured:
    what = f"{name[0].upper()}{name[1:]} less Mycroft"
    return compared(f"above, {name}", lead, what, unit=_F1, **_about(result, how))


def _by_way(result: Paths) -> dict[str, np.ndarray]:
    """Average F1 over cases of five samples by each of `WAYS`, `[S]` each."""
    means = result.means(result.alone)
    return {way: means[:, i] for i, way in enumerate(WAYS)}


def _about(result: Tabular, how: str = "") -> dict[str, str]:
    owners, trainers = result.shares.shape
    scale = f"decision trees, {trainers} trainers, {owners} owners"
    return {
        "where": result.table.capitalize(),
        "scale": f"{scale}; {how}" if how else scale,
    }


def _cases(result: Paths, tree: str, budget: int = BUDGET) -> dict[str, str]:
    n = result.cases().sum(axis=(1, 2)).mean()
    scale = f"decision trees, {n:.0f} pairs a seed, {budget} samples"
    return {"where": "Adult", "scale": f"{scale}; owners' trees: {tree}"}
