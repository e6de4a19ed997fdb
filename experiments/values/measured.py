"""Measurements for the study's claims in each application."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from experiments._kit.claims import Measured
from experiments._kit.judge import beaten_by, gap
from experiments._kit.scenes.valuations import MAX
from experiments._kit.words import listed
from jaxsel.tasks import RANDOM, Curves

from .cases import TITLES
from .data import SIDE
from .methods import LEFT_OUT, SHAPLEY, STUDIED
from .run import Study
from .words import WORDS

LITTLE = 0.02
"""A loss of accuracy that counts as small."""
TABLE_2 = ("KNN-Shapley", "TMC-Shapley", "KNN-LOO", "LOO")
"""Values of Table 2, in the order of their gains there."""
BAYESIAN = ("noisy-digits", "noisy-words")
"""Where naive Bayes is trained again, which has no gradients for G-Shapley."""

_NETWORK = "the study trains {} again, not {}"
_CNN, _LOGISTIC = "a convolutional network", "a logistic regression"
OTHER_MODEL = {
    "noisy-fashion_mnist": _NETWORK.format(_CNN, _LOGISTIC),
    "noisy-network": _NETWORK.format(_CNN, "a perceptron"),
    "pattern-fashion_mnist": _NETWORK.format(_CNN, _LOGISTIC),
    "summary-adult": _NETWORK.format("a network with a hidden layer", _LOGISTIC),
    "acquisition-mnist": "the study does not name the model that it trains again",
}
"""Reason why retrained values can't test the study's claims, by application."""


def on_applications(result: Study) -> Iterator[Measured]:
    """Yield measurements of the claims about applications."""
    for name, curves in result.applications.items():
        about = {"where": TITLES[name], "scale": application_scale(name, result)}
        yield from on_application(name, curves, about)


def application_scale(name: str, result: Study) -> str:
    """Describe the number of points of an application, and their features."""
    sizes = result.sizes
    if name == "acquisition-mnist":
        return f"100 to {100 + 50 * sizes.rounds} points of {SIDE}×{SIDE} pixels"
    if name in ("noisy-texts", "summary-adult"):
        return f"{sizes.n} points, {sizes.width} components"
    if name == "noisy-words":
        return f"{sizes.n} posts, {WORDS} words"
    marked = ", marked at 28×28" if name == "pattern-test" else ""
    return f"{sizes.n} points of {SIDE}×{SIDE} pixels{marked}"


def figures_of(curves: Curves, measure: str) -> dict[str, np.ndarray]:
    """Return a measure by method, `[seeds]` each."""
    return {m: summary[measure] for m, summary in curves.summary.items()}


def on_application(
    name: str, curves: Curves, about: Mapping[str, Any], *, other: str | None = None
) -> Iterator[Measured]:
    """Yield one application's measurements of the study's claims.

    Args:
        name: Its name; the part before "-" is its kind.
        curves: Curves of all values.
        about: Data and scale, as fields of `Measured`.
        other: Reason why retrained values can't test the study's claims; from
            `OTHER_MODEL` if None.
    """
    kind = name.split("-")[0]
    other = OTHER_MODEL.get(name, "") if other is None else other
    about_retrained = {**about, "other": other}
    if kind == "noisy":
        auc = _theirs(name, curves, "auc")
        yield _first("noisy, near", _only(auc, "KNN-LOO"), **about)
        yield _first("noisy, all", auc, **about_retrained)
        yield _split("noisy, split", auc, **about_retrained)
    elif kind == "instance":
        yield _first("instances", _theirs(name, curves, "auc"), MAX, **about_retrained)
    elif kind == "pattern":
        auc = _theirs(name, curves, "auc")
        auc.pop(MAX, None)
        yield _first("marks, near", _only(auc, "KNN-LOO", RANDOM), **about)
        # On MNIST and with a word, the study compares no values that train again.
        if other:
            yield _first("marks, all", auc, **about_retrained)
    elif kind == "summary":
        yield from _summary(curves, about, about_retrained)
    elif kind == "acquisition":
        mean = _theirs(name, curves, "mean_accuracy")
        near = _only(mean, "KNN-LOO", RANDOM)
        yield _first("acquisition, near", near, **about)
        yield _first("acquisition, all", mean, **about_retrained)
    else:
        yield from _adaptation(_theirs(name, curves, "gain"), about)


def _theirs(name: str, curves: Curves, measure: str) -> dict[str, np.ndarray]:
    """Return a measure of each method that the study compares in an application."""
    left_out = ("G-Shapley",) if name in BAYESIAN else ()
    figures = figures_of(curves, measure)
    return {m: v for m, v in figures.items() if m in STUDIED and m not in left_out}


def _only(figures: Mapping[str, np.ndarray], *others: str) -> dict[str, np.ndarray]:
    return {m: figures[m] for m in ("KNN-Shapley", *others)}


def _first(
    key: str, figures: Mapping[str, np.ndarray], name: str = SHAPLEY[0], **about: Any
) -> Measured:
    """Return the lead of a method over each other one, `[others, seeds]`."""
    others = [m for m in figures if m != name]
    second = max(others, key=lambda m: figures[m].mean())
    better = beaten_by(figures, name)
    return Measured(
        key=key,
        values=np.stack([figures[name] - figures[m] for m in others]),
        said=gap(name, figures[name], second, figures[second]),
        # Which is plain where there is one other only.
        if_fails=f"; above it: {listed(better)}" if len(others) > 1 and better else "",
        **about,
    )


def _split(key: str, figures: Mapping[str, np.ndarray], **about: Any) -> Measured:
    """Return the lead of each Shapley value over each leave-one-out value."""
    upper = [m for m in SHAPLEY if m in figures]
    lower = [m for m in LEFT_OUT if m in figures]
    worst = min(upper, key=lambda m: figures[m].mean())
    most = max(lower, key=lambda m: figures[m].mean())
    return Measured(
        key=key,
        values=np.stack([figures[a] - figures[b] for a in upper for b in lower]),
        said=gap(worst, figures[worst], most, figures[most]),
        **about,
    )


def _summary(
    curves: Curves, about: Mapping[str, Any], about_retrained: Mapping[str, Any]
) -> Iterator[Measured]:
    mean = _theirs("summary-adult", curves, "mean_accuracy")
    knn, half = mean["KNN-Shapley"], curves.summary["KNN-Shapley"]["last_accuracy"]
    all_points, others = curves.reference["all"], ("TMC-Shapley", "G-Shapley")
    yield _first("summary, near", _only(mean, "KNN-LOO"), **about)
    text = gap("half", half, "all", all_points)
    yield Measured(key="half", values=half - all_points, said=text, **about)
    yield _split("summary, split", mean, **about_retrained)
    yield Measured(
        key="summary, others",
        values=np.stack([mean[m] - knn for m in others]),
        said="; ".join(gap(m, mean[m], "KNN-Shapley", knn) for m in others),
        **about_retrained,
    )


def _adaptation(
    gain: Mapping[str, np.ndarray], about: Mapping[str, Any]
) -> Iterator[Measured]:
    steps = [gain[a] - gain[b] for a, b in zip(TABLE_2, TABLE_2[1:], strict=False)]
    text = ", ".join(f"{m} {100 * gain[m].mean():+.1f}" for m in TABLE_2)
    order = {"values": np.stack(steps), "said": f"{text} points"}
    yield Measured(key="adaptation, order", **order, **about)
    yield _first("adaptation, all", {m: gain[m] for m in TABLE_2}, **about)
    knn = gain["KNN-Shapley"]
    text = f"{100 * knn.mean():+.1f} points"
    yield Measured(key="adaptation, gain", values=knn, said=text, **about)
