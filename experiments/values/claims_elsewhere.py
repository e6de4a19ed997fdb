"""Claims beside the applications: sizes, embeddings, ranks, times and order."""

from __future__ import annotations

import numpy as np

from .claims_bounds import bound_findings
from .claims_pretrained import pretrained_findings
from .data import LARGE, SIDE
from .embeddings import VALUED, top_overlap
from .judge import COUNTED, FAILS, HOLDS, Finding, above, gap, untested, within
from .nearest import MEASURES, SETTINGS as CURVE_SETTINGS
from .order import COUNTS, SETTINGS
from .ranks import BINS, TESTED
from .run import CURVES, DOMAINS, EMBEDDED, Study
from .runtime import TIMED
from .sizes import ADAPTED

NEAR = 0.05
"""An AUC that is no further from one half counts as near random."""
STUDIED_SIZE = 1000
"""The study's source points in the adaptation."""
TENTH = 100
"""Validation points, for 1000 training points, of the study's published code."""

_DEEP = "the study's model is a network of three hidden layers"
_RESNET = "the study times a ResNet-18, and this is a logistic regression"
_TINY = "the study's are 50 of 200 classes, by networks trained on ImageNet"


def elsewhere(result: Study) -> list[Finding]:
    """Return what there is on all claims that are not about applications."""
    return (
        _nearest(result)
        + _sizes(result)
        + _embeddings(result)
        + _ranks(result)
        + _runtime(result)
        + _order(result)
        + bound_findings()
        + pretrained_findings(result)
    )


def _nearest(result: Study) -> list[Finding]:
    """Test KNN-LOO against one half, with few validation points as in the study."""
    auc, loo = result.nearest["auc"], MEASURES.index("KNN-LOO")
    at, last = CURVES.n_val.index(TENTH), CURVES.n_val[-1]
    found = []
    for s, setting in enumerate(CURVE_SETTINGS):
        one = auc[:, s, :, loo]
        found.append(
            Finding(
                "nearest",
                "KNN-LOO is near random",
                f"Wrong labels, Fashion-MNIST, {setting}",
                f"{CURVES.n:,} points of {SIDE}×{SIDE} pixels, {TENTH} to validate",
                f"AUC {one[:, at].mean():.3f}; with {last} to validate "
                f"{one[:, -1].mean():.3f}",
                within(one[:, at] - 0.5, NEAR),
            )
        )
    return found


def _sizes(result: Study) -> list[Finding]:
    """Test the adaptation at the study's number of source points."""
    at = DOMAINS.n.index(STUDIED_SIZE)
    after = dict(zip(ADAPTED, result.domain_sizes["after"][:, at].T, strict=True))
    gains = after["KNN-Shapley"] - result.domain_sizes["before"][:, at]
    family, where = "adaptation", f"MNIST to digits, n = {STUDIED_SIZE:,}"
    scale = f"{STUDIED_SIZE:,} points of {SIDE}×{SIDE} pixels"
    knn, loo = after["KNN-Shapley"], after["KNN-LOO"]
    return [
        Finding(
            family,
            "KNN-Shapley gains",
            where,
            scale,
            f"{100 * gains.mean():+.1f} points",
            above(gains),
        ),
        Finding(
            family,
            "KNN-Shapley adapts better than KNN-LOO",
            where,
            scale,
            gap("KNN-Shapley", knn, "KNN-LOO", loo),
            above(knn - loo),
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
            untested(_TINY),
        ),
    ]


def _ranks(result: Study) -> list[Finding]:
    family, where = "ranks", "Adversarial and other 3s and 8s"
    scale = f"{result.rank_sizes.n} points, 12 components, logistic regression"
    by = dict(zip(TESTED, result.ranks["spearman"].T, strict=True))
    smooth = dict(zip(TESTED, result.ranks["smoothed"][:, 0].T, strict=True))
    knn = by["KNN-Shapley"].mean()
    claims = {
        "KNN-Shapley's rank correlation with Shapley values is low": (
            f"{knn:.2f} (the paper's .08)"
        ),
        f"Smoothing over {BINS[0]} percentiles raises it": (
            f"{smooth['KNN-Shapley'].mean():.2f} (the paper's .22)"
        ),
        "KNN-Shapley keeps the order better than G-Shapley": (
            f"{knn:.2f} and {by['G-Shapley'].mean():.2f}"
        ),
    }
    return [
        Finding(family, text, where, scale, said, untested(_DEEP))
        for text, said in claims.items()
    ]


def _runtime(result: Study) -> list[Finding]:
    seconds = result.runtime["seconds"][..., -1]
    ratio = np.log10(seconds[:, 1:] / seconds[:, :1])
    return [
        Finding(
            "runtime",
            f"KNN-Shapley is faster than {name} by orders of magnitude",
            f"MNIST, n = {result.runtime['n'][-1]}",
            f"{SIDE}×{SIDE} pixels; logistic regression, trained in batches",
            f"{10 ** one.mean():,.0f} times",
            untested(_RESNET),
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
