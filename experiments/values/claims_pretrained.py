"""Gains of KNN-Shapley from features that were pretrained on other images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments._kit.judge import Finding, above, beaten_by, best, gap, untested
from experiments._kit.scenes.valuations import MAX, figure_of
from experiments._kit.words import listed, spread
from jaxsel.report import Figure, Table
from jaxsel.tasks import RANDOM, Curves

from .images import ENCODERS, FIRST
from .pretrained import AGAIN, COLUMNS, SETTINGS, SPACES, WIDTH
from .run import FEATURES, Study

WHERE = {
    "noisy": "Wrong labels, Fashion-MNIST, 10 %",
    "instance": "Clothes among digits of MNIST, 10 %",
}
"""By setting."""
PLACES = {"noisy": "Section 4.3, Figure 2a", "instance": "Section 4.3, Figure 2b"}
_CNN = "the study trains a convolutional network again, not a logistic regression"
_FAMILY = "pretrained"


def pretrained_findings(result: Study) -> list[Finding]:
    """Test KNN values of features against pixels, leave-one-out, and all others."""
    if not result.pretrained:
        return []
    auc = {setting: areas(result, setting) for setting in SETTINGS}
    noisy, instance = auc["noisy"], auc["instance"]
    pick = lambda figures, methods, space: {m: figures[m, space] for m in methods}
    knn = ("KNN-Shapley", "KNN-LOO")
    alike = pick(noisy, (*knn, *AGAIN), "features")
    mixed = pick(noisy, knn, "features") | pick(noisy, AGAIN, "pixels")
    marks = (MAX, *knn)
    foreign = pick(instance, marks, "features")
    return [
        _pixels(noisy, "noisy", "KNN-Shapley", "wrong labels"),
        _first(
            "KNN-Shapley of features finds more wrong labels than KNN-LOO of features",
            "noisy",
            pick(noisy, knn, "features"),
        ),
        _first(
            "KNN-Shapley of features finds more than all others, which train on pixels",
            "noisy",
            mixed,
            untested_because=_CNN,
        ),
        _first(
            "KNN-Shapley finds more than all others, where all see features (as on the "
            "study's flowers)",
            "noisy",
            alike,
        ),
        _pixels(instance, "instance", MAX, "foreign samples"),
        _first(
            f"{MAX} of features finds more foreign samples than all others, which "
            "train on pixels",
            "instance",
            foreign | pick(instance, AGAIN, "pixels"),
        ),
        _first(
            f"{MAX} finds more foreign samples than all others, where all see features",
            "instance",
            foreign | pick(instance, AGAIN, "features"),
        ),
    ]


def pretrained_table(result: Study) -> Table:
    """Tabulate the AUC of every value on features and on pixels."""
    by = {setting: areas(result, setting) for setting in SETTINGS}
    methods = [*dict.fromkeys(method for method, _ in COLUMNS if method != RANDOM)]
    accuracy = result.pretrained["accuracy"].mean(0)
    settings = range(len(SETTINGS))
    rows: list[tuple[object, ...]] = [
        (
            method,
            *(spread(by[setting][method, s]) for setting in SETTINGS for s in SPACES),
        )
        for method in methods
    ]
    rows += [
        (what, *(float(accuracy[i, j, k]) for i in settings for k in range(2)))
        for j, what in enumerate(
            ("Accuracy of 5 neighbours", "Accuracy of logistic regression")
        )
    ]
    return Table(
        columns=(
            "Values",
            *(f"{WHERE[s]}: {space}" for s in SETTINGS for space in SPACES),
        ),
        rows=rows,
        formats=("", *(".3f" for _ in settings for _ in SPACES)),
        caption=f"Area under the curve, by what a value sees: features of "
        f"{ENCODERS[FIRST].name}, or pixels; mean ± standard deviation over seeds. KNN "
        "values see all of them, by the better of two metrics; the others train a "
        f"logistic regression on {WIDTH} principal components, by the better of two "
        "penalties. Both were chosen by accuracy on rows that are never valued, which "
        "the last rows give.",
    )


def pretrained_figure(result: Study, setting: str) -> Figure:
    """Draw Figure 2a or 2b: the share found by the share inspected."""
    index = SETTINGS.index(setting)
    shares = result.pretrained["curves"][:, index]
    shown = {
        f"{method}, {space}" if space else method: shares[:, i]
        for i, (method, space) in enumerate(COLUMNS)
        if (method != MAX or setting == "instance")
        and (method in ("KNN-Shapley", MAX) or space != "pixels" or method in AGAIN)
        and (method not in AGAIN or space == "pixels")
    }
    n = shares.shape[-1] - 1
    curves = Curves(
        name=WHERE[setting],
        x=np.arange(n + 1) / n,
        curves=shown,
        summary={name: {} for name in shown},
        reference={},
        xlabel="Share of samples inspected",
        ylabel="Share found",
        percent_x=True,
        ticks=(),
    )
    number = "ab"[index]
    return figure_of(curves, tuple(shown), f"Figure 2{number}: {WHERE[setting]}")


def areas(result: Study, setting: str) -> dict[tuple[str, str], np.ndarray]:
    """Return the AUC of each of `COLUMNS`, `[seeds]`."""
    auc = result.pretrained["auc"][:, SETTINGS.index(setting)]
    return {column: auc[:, i] for i, column in enumerate(COLUMNS)}


def _pixels(
    figures: Mapping[tuple[str, str], np.ndarray], setting: str, method: str, what: str
) -> Finding:
    features, pixels = (figures[method, space] for space in SPACES)
    return Finding(
        _FAMILY,
        f"{method} of pretrained features finds more {what} than that of pixels",
        WHERE[setting],
        _scale(),
        gap("features", features, "pixels", pixels),
        above(features - pixels),
        place="ours",
    )


def _first(
    text: str,
    setting: str,
    figures: Mapping[str, np.ndarray],
    untested_because: str | None = None,
) -> Finding:
    name, *others = figures
    second = max(others, key=lambda m: figures[m].mean())
    evidence = best(figures, name)
    better = beaten_by(figures, name) if len(others) > 1 else []
    return Finding(
        _FAMILY,
        text,
        WHERE[setting],
        _scale(),
        gap(name, figures[name], second, figures[second]),
        untested(untested_because) if untested_because else evidence,
        if_fails=f"; above it: {listed(better)}" if better else "",
        place=PLACES[setting],
    )


def _scale() -> str:
    return f"{FEATURES.n} points, features of {ENCODERS[FIRST].name}"
