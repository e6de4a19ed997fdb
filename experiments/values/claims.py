"""Which of the study's claims hold here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from jaxsel.demo.scenes.valuations import MAX
from jaxsel.demo.words import listed
from jaxsel.tasks import RANDOM, Curves

from .cases import TITLES
from .data import LARGE, SIDE
from .embeddings import VALUED, top_overlap
from .judge import (
    COUNTED,
    FAILS,
    HOLDS,
    RUNS,
    Claim,
    Finding,
    above,
    beaten_by,
    below,
    best,
    every,
    gap,
    groups,
    settle,
    within,
)
from .order import COUNTS, SETTINGS
from .ranks import BINS, TESTED
from .run import EMBEDDED, Study
from .runtime import TIMED

SHAPLEY = ("KNN-Shapley", "TMC-Shapley", "G-Shapley")
LEFT_OUT = ("KNN-LOO", "LOO")
STUDIED = (*SHAPLEY, MAX, *LEFT_OUT, RANDOM)
"""What the study compares: other values refute none of its claims."""
NEAR, LITTLE, LOW, ORDERS = 0.05, 0.02, 0.3, 2.0
"""Bounds of words: an AUC near another, a small loss, a low correlation, and the
powers of ten that are orders of magnitude."""


def study_claims(result: Study) -> list[Claim]:
    """Judge the study's claims, those of one kind of experiment at 5 % together."""
    found: list[Finding] = []
    for name, curves in result.applications.items():
        kind, scale = name.split("-")[0], _scale(name, result)
        if kind == "noisy":
            some = _noisy(TITLES[name], curves)
        elif kind in ("pattern", "instance"):
            some = _marks(TITLES[name], curves, foreign=kind == "instance")
        elif kind == "summary":
            some = _summary(TITLES[name], curves)
        elif kind == "acquisition":
            mean = _of(curves, "mean_accuracy")
            some = [_first(kind, "KNN-Shapley buys best", TITLES[name], mean)]
        else:
            some = _adaptation(TITLES[name], curves)
        found += [dataclasses.replace(one, scale=scale) for one in some]
    found += _embeddings(result) + _ranks(result) + _runtime(result)
    return settle(found + _order(result))


def _scale(name: str, result: Study) -> str:
    """Say how large an application is, and what its values see."""
    sizes = result.sizes
    if name == "acquisition-mnist":
        return f"100 to {100 + 50 * sizes.rounds} points of {SIDE}×{SIDE} pixels"
    if name in ("noisy-texts", "summary-adult"):
        return f"{sizes.n} points, {sizes.width} components"
    return f"{sizes.n} points of {SIDE}×{SIDE} pixels"


def _of(curves: Curves, measure: str) -> dict[str, np.ndarray]:
    return {m: found[measure] for m, found in curves.summary.items()}


def _first(
    family: str,
    text: str,
    where: str,
    figures: Mapping[str, np.ndarray],
    name: str = SHAPLEY[0],
) -> Finding:
    """Test that a method is best of the study's, and say by how much.

    Other methods that are better are named, and not counted against the claim.
    """
    theirs = {m: v for m, v in figures.items() if m in STUDIED}
    second = max((m for m in theirs if m != name), key=lambda m: theirs[m].mean())
    said = gap(name, figures[name], second, figures[second])
    better = beaten_by(figures, name)
    for words, some in (
        ("above it", [m for m in better if m in theirs]),
        ("above it, not tested in the study", [m for m in better if m not in theirs]),
    ):
        if some:
            said += f"; {words}: {listed(some)}"
    return Finding(family, text, where, "", said, best(theirs, name))


def _split(
    family: str, text: str, where: str, figures: Mapping[str, np.ndarray]
) -> Finding:
    """Test that Shapley values are above leave-one-out ones."""
    upper = [m for m in SHAPLEY if m in figures]
    lower = [m for m in LEFT_OUT if m in figures]
    worst = min(upper, key=lambda m: figures[m].mean())
    most = max(lower, key=lambda m: figures[m].mean())
    said = gap(worst, figures[worst], most, figures[most])
    return Finding(family, text, where, "", said, groups(figures, upper, lower))


def _noisy(where: str, curves: Curves) -> list[Finding]:
    auc = _of(curves, "auc")
    ours = {m: auc[m] for m in (SHAPLEY[0], *LEFT_OUT)}
    near = auc["KNN-LOO"] - 0.5
    said = f"AUC {auc['KNN-LOO'].mean():.3f}"
    first = "KNN-Shapley finds more wrong labels than leave-one-out"
    family = "noisy"
    return [
        _first(family, first, where, ours),
        _first(family, "KNN-Shapley finds more than all others", where, auc),
        _split(family, "Shapley values find more than leave-one-out", where, auc),
        Finding(family, "KNN-LOO is near random", where, "", said, within(near, NEAR)),
    ]


def _marks(where: str, curves: Curves, *, foreign: bool) -> list[Finding]:
    auc, family = _of(curves, "auc"), "marks"
    if foreign:
        text = f"{MAX} finds more foreign samples than all others"
        return [_first(family, text, where, auc, MAX)]
    auc.pop(MAX)
    return [_first(family, "KNN-Shapley finds more marks than all others", where, auc)]


def _summary(where: str, curves: Curves) -> list[Finding]:
    mean = _of(curves, "mean_accuracy")
    knn, half = mean["KNN-Shapley"], curves.summary["KNN-Shapley"]["last_accuracy"]
    whole = curves.reference["all"]
    ahead = [mean[m] - knn for m in ("TMC-Shapley", "G-Shapley")]
    words = [gap(m, mean[m], "KNN-Shapley", knn) for m in ("TMC-Shapley", "G-Shapley")]
    family, split = "summary", "Shapley values summarise better than leave-one-out"
    return [
        _split(family, split, where, mean),
        Finding(
            family,
            "TMC- and G-Shapley are above KNN-Shapley",
            where,
            "",
            "; ".join(words),
            every([above(d) for d in ahead]),
        ),
        Finding(
            family,
            "Half by KNN-Shapley costs less than 2 points",
            where,
            "",
            gap("half", half, "all", whole),
            above(half - whole, -LITTLE),
        ),
    ]


def _adaptation(where: str, curves: Curves) -> list[Finding]:
    gain, family = _of(curves, "gain"), "adaptation"
    order = ("KNN-Shapley", "TMC-Shapley", "KNN-LOO", "LOO")
    steps = [gain[a] - gain[b] for a, b in zip(order, order[1:], strict=False)]
    said = ", ".join(f"{m} {100 * gain[m].mean():+.1f}" for m in order)
    return [
        Finding(
            family,
            "Gains in the order of Table 2: " + ", ".join(order),
            where,
            "",
            said + " points",
            every([above(s) for s in steps]),
        ),
        _first(family, "KNN-Shapley adapts best", where, gain),
        Finding(
            family,
            "KNN-Shapley gains",
            where,
            "",
            f"{100 * gain['KNN-Shapley'].mean():+.1f} points",
            above(gain["KNN-Shapley"]),
        ),
    ]


def _embeddings(result: Study) -> list[Finding]:
    found, family = [], "embeddings"
    scales = {
        "images": f"{EMBEDDED} points of {LARGE}×{LARGE} pixels",
        "texts": f"{EMBEDDED} points",
    }
    for kind, one in result.embeddings.items():
        shapley, loo = one["auc"][:, 0], one["auc"][:, 1]
        measure = (shapley - loo).mean(1)
        spread = np.ptp(shapley, axis=1)
        found.append(
            Finding(
                family,
                "The embedding matters less than the measure",
                f"Wrong labels, {kind}",
                scales[kind],
                f"AUC: {spread.mean():.3f} between embeddings, {measure.mean():.3f} "
                "between KNN-Shapley and KNN-LOO",
                above(measure - spread),
            )
        )
    counts = result.embeddings["images"]["counts"]
    pairs = np.triu_indices(counts.shape[1], 1)
    shared = np.array([top_overlap(c)[pairs].mean() for c in counts])
    chance = 3 / VALUED
    return [
        *found,
        Finding(
            family,
            "Top classes of embeddings overlap",
            "Fashion-MNIST",
            scales["images"],
            f"{shared.mean():.0%} of the top 3 of {VALUED}, by chance {chance:.0%}",
            above(shared - chance),
        ),
    ]


def _ranks(result: Study) -> list[Finding]:
    family, where = "ranks", "Adversarial and other 3s and 8s"
    scale = f"{result.rank_sizes.n} points, 12 components, logistic regression"
    by = dict(zip(TESTED, result.ranks["spearman"].T, strict=True))
    smooth = dict(zip(TESTED, result.ranks["smoothed"][:, 0].T, strict=True))
    knn, g = by["KNN-Shapley"], by["G-Shapley"]
    return [
        Finding(
            family,
            "KNN-Shapley's rank correlation with Shapley values is low",
            where,
            scale,
            f"{knn.mean():.2f} (the paper's .08)",
            below(knn, LOW),
        ),
        Finding(
            family,
            f"Smoothing over {BINS[0]} percentiles raises it",
            where,
            scale,
            f"{smooth['KNN-Shapley'].mean():.2f}",
            above(smooth["KNN-Shapley"] - knn),
        ),
        Finding(
            family,
            "KNN-Shapley keeps the order better than G-Shapley",
            where,
            scale,
            f"{knn.mean():.2f} and {g.mean():.2f}",
            above(knn - g),
        ),
    ]


def _runtime(result: Study) -> list[Finding]:
    seconds = result.runtime["seconds"][..., -1]
    ratio = np.log10(seconds[:, 1:] / seconds[:, :1])
    return [
        Finding(
            "runtime",
            f"KNN-Shapley is faster than {name} by orders of magnitude (100 times)",
            f"MNIST, n = {result.runtime['n'][-1]}",
            f"{SIDE}×{SIDE} pixels; logistic regression, trained in batches",
            f"{10 ** one.mean():,.0f} times",
            above(one, ORDERS),
            RUNS,
        )
        for name, one in zip(TIMED[1:], ratio.T, strict=True)
    ]


def _order(result: Study) -> list[Finding]:
    family, scale = "order", "40 points, simulated"
    counts = result.order["counts"]
    at = lambda name: counts[..., COUNTS.index(name)]
    wrong, tied, pairs = (at(name).sum(0)[0] for name in ("disagree", "tied", "pairs"))
    known = at("agree").sum(0)[0] + wrong
    said = [
        f"{w:,} of {k:,} pairs whose order is known are wrong; {t / p:.0%} of all tie"
        for w, k, t, p in zip(wrong, known, tied, pairs, strict=True)
    ]
    near = result.order["near"][:, 1, COUNTS.index("disagree")].sum()
    # It errs only elsewhere if it errs at all, and never among the nearest.
    only = HOLDS if wrong[1] > near == 0 else FAILS
    found = [
        Finding(
            family,
            "KNN-Shapley keeps the order of all pairs",
            f"Theorem 2, {SETTINGS[0]}",
            scale,
            said[0],
            FAILS if wrong[0] else HOLDS,
            COUNTED,
        ),
        Finding(
            family,
            "KNN-LOO keeps the order of the K nearest only",
            f"Theorem 2, {SETTINGS[0]}",
            scale,
            said[1],
            only,
            COUNTED,
        ),
    ]
    share = at("agree") / at("pairs")
    return found + [
        Finding(
            family,
            "KNN-Shapley tells the order of more pairs than KNN-LOO",
            f"Theorem 2, {setting}",
            scale,
            f"{share[:, m, 0].mean():.0%} and {share[:, m, 1].mean():.0%} of all pairs",
            above(share[:, m, 0] - share[:, m, 1]),
        )
        for m, setting in enumerate(SETTINGS)
    ]
