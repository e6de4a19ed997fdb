"""Measurements apart from applications: sizes, embeddings, ranks, times, order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from experiments._kit.claims import Measured
from experiments._kit.judge import gap

from .data import LARGE, SIDE
from .embeddings import VALUED, top_overlap
from .nearest import MEASURES, SETTINGS as CURVE_SETTINGS
from .order import COUNTS, SETTINGS
from .ranks import TESTED
from .run import CURVES, DOMAINS, EMBEDDED, Study
from .runtime import TIMED
from .sizes import ADAPTED

NEAR = 0.05
"""Largest distance from one half of an AUC that counts as near random."""
STUDIED_SIZE = 1000
"""The study's source points in the adaptation."""
TENTH = 100
"""Validation points, for 1000 training points, of the study's published code."""
_SIMULATED = "40 points, simulated"


def on_the_rest(result: Study) -> Iterator[Measured]:
    """Yield measurements of the claims that are not about applications."""
    yield from _nearest(result)
    yield from _sizes(result)
    yield from _embeddings(result)
    yield from _ranks(result)
    yield from _runtime(result)
    yield from _order(result)


def _nearest(result: Study) -> Iterator[Measured]:
    """Yield KNN-LOO's AUC less one half, with few validation points as in the study."""
    auc, loo = result.nearest["auc"], MEASURES.index("KNN-LOO")
    column, last = CURVES.n_val.index(TENTH), CURVES.n_val[-1]
    for s, setting in enumerate(CURVE_SETTINGS):
        areas = auc[:, s, :, loo]
        yield Measured(
            key="nearest",
            where=f"Wrong labels, Fashion-MNIST, {setting}",
            scale=f"{CURVES.n:,} points of {SIDE}×{SIDE} pixels, {TENTH} to validate",
            values=areas[:, column] - 0.5,
            said=f"AUC {areas[:, column].mean():.3f}; with {last} to validate "
            f"{areas[:, -1].mean():.3f}",
        )


def _sizes(result: Study) -> Iterator[Measured]:
    """Yield the adaptation at the study's number of source points."""
    column = DOMAINS.n.index(STUDIED_SIZE)
    after = dict(zip(ADAPTED, result.domain_sizes["after"][:, column].T, strict=True))
    gains = after["KNN-Shapley"] - result.domain_sizes["before"][:, column]
    about = {
        "where": f"MNIST to digits, n = {STUDIED_SIZE:,}",
        "scale": f"{STUDIED_SIZE:,} points of {SIDE}×{SIDE} pixels",
    }
    knn, loo = after["KNN-Shapley"], after["KNN-LOO"]
    text = f"{100 * gains.mean():+.1f} points"
    yield Measured(key="adaptation, gain", values=gains, said=text, **about)
    text = gap("KNN-Shapley", knn, "KNN-LOO", loo)
    yield Measured(key="adaptation, near", values=knn - loo, said=text, **about)


def _embeddings(result: Study) -> Iterator[Measured]:
    scales = {
        "images": f"{EMBEDDED} points of {LARGE}×{LARGE} pixels",
        "texts": f"{EMBEDDED} points",
    }
    for kind, embedded in result.embeddings.items():
        shapley, loo = embedded["auc"][:, 0], embedded["auc"][:, 1]
        measure = (shapley - loo).mean(1)
        spread = np.ptp(shapley, axis=1)
        yield Measured(
            key="embeddings",
            where=f"Wrong labels, {kind}",
            scale=scales[kind],
            values=measure - spread,
            said=f"AUC: {spread.mean():.3f} between embeddings, {measure.mean():.3f} "
            "between KNN-Shapley and KNN-LOO",
        )
    counts = result.embeddings["images"]["counts"]
    pairs = np.triu_indices(counts.shape[1], 1)
    shared = np.array([top_overlap(c)[pairs].mean() for c in counts])
    yield Measured(
        key="classes",
        where="Fashion-MNIST",
        scale=scales["images"],
        values=shared,
        said=f"{shared.mean():.0%} of the top 3 of {VALUED}, by chance "
        f"{3 / VALUED:.0%}",
    )


def _ranks(result: Study) -> Iterator[Measured]:
    by = dict(zip(TESTED, result.ranks["spearman"].T, strict=True))
    smooth = dict(zip(TESTED, result.ranks["smoothed"][:, 0].T, strict=True))
    knn, scale = by["KNN-Shapley"], f"{result.rank_sizes.n} points, 12 components"
    for key, values, text in (
        ("low", knn, f"{knn.mean():.2f} (the paper's .08)"),
        (
            "smooth",
            smooth["KNN-Shapley"],
            f"{smooth['KNN-Shapley'].mean():.2f} (the paper's .22)",
        ),
        (
            "order",
            knn - by["G-Shapley"],
            f"{knn.mean():.2f} and {by['G-Shapley'].mean():.2f}",
        ),
    ):
        yield Measured(
            key=f"ranks, {key}",
            where="Adversarial and other 3s and 8s",
            scale=f"{scale}, logistic regression",
            values=values,
            said=text,
        )


def _runtime(result: Study) -> Iterator[Measured]:
    seconds = result.runtime["seconds"][..., -1]
    ratio = np.log10(seconds[:, 1:] / seconds[:, :1])
    for name, magnitudes in zip(TIMED[1:], ratio.T, strict=True):
        yield Measured(
            key=f"runtime, {name}",
            where=f"MNIST, n = {result.runtime['n'][-1]}",
            scale=f"{SIDE}×{SIDE} pixels; logistic regression, trained in batches",
            values=magnitudes,
            said=f"{10 ** magnitudes.mean():,.0f} times",
        )


def _order(result: Study) -> Iterator[Measured]:
    counts = result.order["counts"]
    count = lambda name: counts[..., COUNTS.index(name)]
    wrong, tied, pairs = (
        count(name).sum(0)[0] for name in ("disagree", "tied", "pairs")
    )
    known = count("agree").sum(0)[0] + wrong
    texts = [
        f"{w:,} of {k:,} pairs whose order is known are wrong; {t / p:.0%} of all tie"
        for w, k, t, p in zip(wrong, known, tied, pairs, strict=True)
    ]
    near = result.order["near"][:, 1, COUNTS.index("disagree")].sum()
    # KNN-LOO errs elsewhere, as the theorem has it, and never among the nearest.
    against = 0 if wrong[1] > near == 0 else 1
    about = {"where": f"Theorem 2, {SETTINGS[0]}", "scale": _SIMULATED}
    for key, values, words in (
        ("order, Shapley", wrong[0], texts[0]),
        ("order, LOO", against, texts[1]),
    ):
        yield Measured(key=key, values=np.array(values), said=words, **about)
    share = count("agree") / count("pairs")
    for m, setting in enumerate(SETTINGS):
        yield Measured(
            key="order, more",
            where=f"Theorem 2, {setting}",
            scale=_SIMULATED,
            values=share[:, m, 0] - share[:, m, 1],
            said=f"{share[:, m, 0].mean():.0%} and {share[:, m, 1].mean():.0%} of all "
            "pairs",
        )
