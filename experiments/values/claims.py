"""Judge which of the study's claims hold here, by the study's own methods alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from jaxsel.demo.scenes.valuations import MAX
from jaxsel.demo.words import listed
from jaxsel.tasks import RANDOM, Curves

from .cases import TITLES
from .claims_elsewhere import elsewhere
from .data import SIDE
from .judge import (
    Claim,
    Evidence,
    Finding,
    above,
    beaten_by,
    best,
    every,
    gap,
    groups,
    settle,
    untested,
)
from .methods import LEFT_OUT, SHAPLEY, STUDIED
from .run import Study
from .words import WORDS

LITTLE = 0.02
"""A loss of accuracy that counts as small."""
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
"""Why values that train a model again can't speak for the study's, by application."""


def study_claims(result: Study) -> list[Claim]:
    """Judge the study's claims, those of one kind of experiment at 5 % together."""
    found: list[Finding] = []
    for name, curves in result.applications.items():
        some = _application(name, curves)
        scale = application_scale(name, result)
        found += [dataclasses.replace(one, scale=scale) for one in some]
    return settle(found + elsewhere(result))


def application_scale(name: str, result: Study) -> str:
    """Say how large an application is, and what its values see."""
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
    return {m: found[measure] for m, found in curves.summary.items()}


def _application(name: str, curves: Curves) -> list[Finding]:
    kind, where, other = name.split("-")[0], TITLES[name], OTHER_MODEL.get(name)
    if kind == "noisy":
        return _noisy(where, _theirs(name, curves, "auc"), other)
    if kind in ("pattern", "instance"):
        return _marks(name, _theirs(name, curves, "auc"), other)
    if kind == "summary":
        return _summary(where, curves, other)
    if kind == "acquisition":
        mean = _theirs(name, curves, "mean_accuracy")
        near = {m: mean[m] for m in ("KNN-Shapley", "KNN-LOO", RANDOM)}
        text = "KNN-Shapley buys better than KNN-LOO and a random choice"
        return [
            _first(kind, text, where, near),
            _first(kind, "KNN-Shapley buys best", where, mean, other=other),
        ]
    return _adaptation(where, _theirs(name, curves, "gain"))


def _theirs(name: str, curves: Curves, measure: str) -> dict[str, np.ndarray]:
    """Return a measure by those methods that the study compares there."""
    left_out = ("G-Shapley",) if name in BAYESIAN else ()
    figures = figures_of(curves, measure)
    return {m: v for m, v in figures.items() if m in STUDIED and m not in left_out}


def _or(evidence: Evidence, other: str | None) -> Evidence | str:
    return untested(other) if other else evidence


def _first(
    family: str,
    text: str,
    where: str,
    figures: Mapping[str, np.ndarray],
    name: str = SHAPLEY[0],
    *,
    other: str | None = None,
) -> Finding:
    """Test that a method is above all others, and say by how much.

    Args:
        family: Of the claim.
        text: The claim.
        where: On which data.
        figures: `[seeds]` by method.
        name: The method.
        other: Why that is not tested, if it is not.
    """
    second = max((m for m in figures if m != name), key=lambda m: figures[m].mean())
    said = gap(name, figures[name], second, figures[second])
    evidence = _or(best(figures, name), other)
    found = Finding(family, text, where, "", said, evidence)
    better = beaten_by(figures, name)
    if len(figures) > 2 and better:  # which is plain where there is one other only
        found = dataclasses.replace(found, if_fails=f"; above it: {listed(better)}")
    return found


def _split(
    family: str,
    text: str,
    where: str,
    figures: Mapping[str, np.ndarray],
    other: str | None,
) -> Finding:
    """Test that Shapley values are above leave-one-out ones."""
    upper = [m for m in SHAPLEY if m in figures]
    lower = [m for m in LEFT_OUT if m in figures]
    worst = min(upper, key=lambda m: figures[m].mean())
    most = max(lower, key=lambda m: figures[m].mean())
    said = gap(worst, figures[worst], most, figures[most])
    evidence = _or(groups(figures, upper, lower), other)
    return Finding(family, text, where, "", said, evidence)


def _noisy(
    where: str, auc: Mapping[str, np.ndarray], other: str | None
) -> list[Finding]:
    near = {m: auc[m] for m in ("KNN-Shapley", "KNN-LOO")}
    first = "KNN-Shapley finds more wrong labels than KNN-LOO"
    every_one = "KNN-Shapley finds more than all others"
    split = "Shapley values find more than leave-one-out"
    return [
        _first("noisy", first, where, near),
        _first("noisy", every_one, where, auc, other=other),
        _split("noisy", split, where, auc, other),
    ]


def _marks(name: str, auc: dict[str, np.ndarray], other: str | None) -> list[Finding]:
    family, where = "marks", TITLES[name]
    if name.startswith("instance"):
        text = f"{MAX} finds more foreign samples than all others"
        return [_first(family, text, where, auc, MAX, other=other)]
    auc.pop(MAX, None)
    near = {m: auc[m] for m in ("KNN-Shapley", "KNN-LOO", RANDOM)}
    text = "KNN-Shapley finds more marks than KNN-LOO and a random order"
    found = [_first(family, text, where, near)]
    # On MNIST and with a word, the study compares no values that train again.
    if other:
        text = "KNN-Shapley finds more marks than all others"
        found.append(_first(family, text, where, auc, other=other))
    return found


def _summary(where: str, curves: Curves, other: str | None) -> list[Finding]:
    mean = _theirs("summary-adult", curves, "mean_accuracy")
    knn, half = mean["KNN-Shapley"], curves.summary["KNN-Shapley"]["last_accuracy"]
    whole = curves.reference["all"]
    others = ("TMC-Shapley", "G-Shapley")
    family = "summary"
    return [
        _first(
            family,
            "KNN-Shapley summarises better than KNN-LOO",
            where,
            {m: mean[m] for m in ("KNN-Shapley", "KNN-LOO")},
        ),
        Finding(
            family,
            "Half by KNN-Shapley costs less than 2 points",
            where,
            "",
            gap("half", half, "all", whole),
            above(half - whole, -LITTLE),
        ),
        _split(
            family,
            "Shapley values summarise better than leave-one-out",
            where,
            mean,
            other,
        ),
        Finding(
            family,
            "TMC- and G-Shapley are above KNN-Shapley",
            where,
            "",
            "; ".join(gap(m, mean[m], "KNN-Shapley", knn) for m in others),
            _or(every([above(mean[m] - knn) for m in others]), other),
        ),
    ]


def _adaptation(where: str, gain: Mapping[str, np.ndarray]) -> list[Finding]:
    family = "adaptation"
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
        _first(
            family,
            "KNN-Shapley adapts best of Table 2",
            where,
            {m: gain[m] for m in order},
        ),
        Finding(
            family,
            "KNN-Shapley gains",
            where,
            "",
            f"{100 * gain['KNN-Shapley'].mean():+.1f} points",
            above(gain["KNN-Shapley"]),
        ),
    ]
