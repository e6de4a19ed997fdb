"""Tables of the study in miniature."""

from __future__ import annotations

import numpy as np

from experiments._kit.words import spread
from jaxsel.report import Table
from jaxsel.tasks import Curves

from .cases import TITLES
from .embeddings import MEASURES, correlation, names_of, top_overlap
from .methods import METHODS, named
from .order import COUNTS, SETTINGS, VALUES
from .ranks import BINS, TESTED
from .run import Study

PAPER_TABLE_2 = {
    "KNN-Shapley": ((31.70, 47.00), (23.35, 29.80)),
    "KNN-LOO": ((31.70, 37.40), (23.35, 24.50)),
    "TMC-Shapley": ((31.70, 44.90), (23.35, 29.55)),
    "LOO": ((31.70, 29.40), (23.35, 23.53)),
}
"""Accuracies before and after in per cent, MNIST to USPS and back."""


def detection_table(result: Study) -> Table:
    """Tabulate the AUC of detecting wrong labels and watermarks."""
    detections = {
        name: curves
        for name, curves in result.applications.items()
        if name.split("-")[0] in ("noisy", "pattern", "instance")
    }
    return Table(
        columns=("Values", *(TITLES[name] for name in detections)),
        rows=[
            (named(m), *(_cell(curves, m, "auc") for curves in detections.values()))
            for m in METHODS
        ],
        formats=("", *(".3f" for _ in detections)),
        caption="Area under the curve of share found against share inspected, lowest "
        "values first; mean ± standard deviation over seeds.",
    )


def watermark_table(result: Study) -> Table:
    """Tabulate watermark success and clean accuracy, before and after removal."""
    watermarks = {
        name: curves
        for name, curves in result.applications.items()
        if name.split("-")[0] in ("pattern", "instance")
    }
    columns = [
        f"{TITLES[name]}: {what}" for name in watermarks for what in ("mark", "clean")
    ]
    rows: list[tuple[object, ...]] = [
        (
            what,
            *(
                spread(curves.reference[f"{measure}_{when}"])
                for curves in watermarks.values()
                for measure in ("success", "accuracy")
            ),
        )
        for what, when in (("Marked", "before"), ("Never marked", "unmarked"))
    ]
    rows += [
        (
            named(m),
            *(
                _cell(curves, m, f"{measure}_after")
                for curves in watermarks.values()
                for measure in ("success", "accuracy")
            ),
        )
        for m in METHODS
    ]
    return Table(
        columns=("Training set", *columns),
        rows=rows,
        formats=("", *(".1%" for _ in columns)),
        caption="Success of the watermark and accuracy on clean test data, before and "
        "after the tenth of lowest values was removed.",
    )


def learning_table(result: Study) -> Table:
    """Tabulate accuracies of summarisation and acquisition."""
    summary = result.applications["summary-adult"]
    bought = result.applications["acquisition-mnist"]
    return Table(
        columns=(
            "Values",
            "Adult: mean up to 50 %",
            "Adult: at 50 %",
            "MNIST: mean of purchases",
            "MNIST: at the end",
            "MNIST: bought without noise",
        ),
        rows=[
            (
                named(m),
                _cell(summary, m, "mean_accuracy"),
                _cell(summary, m, "last_accuracy"),
                _cell(bought, m, "mean_accuracy"),
                _cell(bought, m, "last_accuracy"),
                _cell(bought, m, "clean_share"),
            )
            for m in METHODS
            if m in summary.curves
        ],
        formats=("", *(".1%" for _ in range(5))),
        caption="Test accuracy as the lowest values are removed (Adult), and as points "
        "of the highest predicted value are bought (MNIST).",
    )


def adaptation_table(result: Study) -> Table:
    """Compare our figures with the paper's Table 2."""
    names = "mnist-digits", "digits-mnist"
    rows = []
    for m in METHODS:
        theirs = PAPER_TABLE_2.get(m)
        row: list[object] = [named(m)]
        for i, name in enumerate(names):
            curves = result.applications[name]
            if m not in curves.curves:
                break
            row += [_cell(curves, m, "before"), _cell(curves, m, "after")]
            pair = None if theirs is None else theirs[i]
            row.append(None if pair is None else f"{pair[0]:.1f} → {pair[1]:.1f} %")
        if len(row) > 1:
            rows.append(tuple(row))
    heads = [
        head
        for name, paper in zip(names, ("to USPS", "to MNIST"), strict=True)
        for head in (f"{TITLES[name]}: all", "positive values", f"Paper, {paper}")
    ]
    return Table(
        columns=("Values", *heads),
        rows=rows,
        formats=("", *(".1%", ".1%", "") * 2),
        caption="Accuracy in the target domain, trained on all source points and on "
        "those of positive value alone; the paper's between MNIST and USPS.",
    )


def rank_table(result: Study) -> Table:
    """Tabulate rank correlations with Shapley values."""
    ranks = result.ranks
    return Table(
        columns=(
            "Values",
            "Spearman",
            *(f"Smoothed, {bins} groups" for bins in BINS),
            "Adversarial above others",
        ),
        rows=[
            (
                named(name),
                spread(ranks["spearman"][:, i]),
                *(spread(ranks["smoothed"][:, b, i]) for b in range(len(BINS))),
                spread(ranks["perturbed_more"][:, i]),
            )
            for i, name in enumerate(TESTED)
        ]
        + [
            ("Truth", *(None for _ in range(3)), spread(ranks["perturbed_more"][:, -1]))
        ],
        formats=("", *(".2f" for _ in range(4))),
        caption="Rank correlation with Shapley values by group testing, point by point "
        "and smoothed; and the chance that an adversarial example is worth more than "
        "another image.",
    )


def embedding_table(result: Study) -> Table:
    """Tabulate detection and shared top points and classes by embedding."""
    rows = []
    for kind, embedded in result.embeddings.items():
        names = names_of(kind, embedded)
        for j, name in enumerate(names):
            others = [i for i in range(len(names)) if i != j]
            classes = None
            if kind == "images":
                shared = np.array([top_overlap(c) for c in embedded["counts"]])
                classes = spread(shared[:, j, others].mean(1))
            rows.append(
                (
                    f"{kind.capitalize()}: {name}",
                    *(spread(embedded["auc"][:, i, j]) for i in range(len(MEASURES))),
                    spread(embedded["points"][:, j, others].mean(1)),
                    classes,
                )
            )
    return Table(
        columns=("Embedding", *MEASURES, "Top points shared", "Top 3 classes shared"),
        rows=rows,
        formats=("", ".3f", ".3f", ".0%", ".0%"),
        caption="AUC of finding 10 % wrong labels, by embedding; and, labels right, "
        "what the tenth of highest KNN-Shapley values shares with that by the other "
        "embeddings. By chance that is 10 % of points and half of the classes.",
    )


def order_table(result: Study) -> Table:
    """Tabulate the simulated pairs of Theorem 2 by agreement."""
    counts = result.order["counts"].sum(0)
    return Table(
        columns=("Values", "For", "Pairs", "Tied", "Agree", "Disagree", "Not known"),
        rows=[
            (name, setting, *(int(c) for c in counts[m, i]))
            for m, setting in enumerate(SETTINGS)
            for i, name in enumerate(VALUES)
        ],
        formats=("", "", *(",d" for _ in COUNTS)),
        caption="Pairs of points by whether their values and what they add to a random "
        "set on average have one order. Ties, of which Definition 1 does not speak, "
        "are counted apart; not known is what lies within five standard errors of 0.",
    )


def class_correlation(result: Study) -> np.ndarray:
    """Return the mean correlation of class counts between embeddings, `[seeds]`."""
    return np.array([correlation(c) for c in result.embeddings["images"]["counts"]])


def _cell(curves: Curves, method: str, measure: str) -> object:
    if method not in curves.summary:
        return None
    return spread(curves.summary[method][measure])
