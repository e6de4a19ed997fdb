"""Measures, figures and tables of the tabular experiments."""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments._kit.words import spread
from jaxsel.report import Figure, Table, new_figure, plot_curves, style

from .paths import BUDGET, OTHERS, SPLITS, WAYS, Paths
from .run import USEFUL, Tabular
from .select import RANKINGS
from .trainer import GRID

TOLERANCE = 0.01
"""How far below the F1 of full information still counts as reaching it."""

# Table 4 of the paper: useful owners of 95, for each of 7 trainers.
PAPER_FOUND = {
    "binning distance": (49, 16, 76, 87, 60, 0, 92),
    "random": (34, 5, 58, 23, 37, 0, 25),
    "everything": (80, 40, 92, 90, 60, 24, 88),
}
PAPER_REACHED = {"binning distance": 0.65, "random": 0.30}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measures:
    """Means over trainers and owners, one row for each seed.

    Attributes:
        f1: Over owners that hold the trainer's kind at all, `[S, K, B]`.
        hits: Share of the trainer's kind in the rows these owners sent, `[S, K, B]`.
        reached: Share of all pairs of trainer and owner in which F1 reaches that of
            full information, `[S, K, B]`.
        reached_useful: The same of pairs where full information is useful.
        found: Useful owners found with the least budget, `[S, P, K]`.
        useful: Useful owners by full information, `[S, P]`.
        ordered: Share of pairs of a useful and another owner that the least budget
            puts into the right order, ties counting half, `[S, K]`.
        everything: F1 of full information, as `f1`, `[S]`.
    """

    f1: np.ndarray
    hits: np.ndarray
    reached: np.ndarray
    reached_useful: np.ndarray
    found: np.ndarray
    useful: np.ndarray
    ordered: np.ndarray
    everything: np.ndarray


def measure(result: Tabular) -> Measures:
    """Compute all measures; NaN where nothing was run or no owner is useful."""
    holds = result.shares.T > 0
    reached = (result.f1 >= result.everything[..., None, None] - TOLERANCE) * 1.0
    reached[np.isnan(result.f1)] = np.nan
    useful = result.everything >= USEFUL
    has_useful = useful.any(axis=(1, 2))
    reached_useful = np.full((len(useful), *reached.shape[3:]), np.nan)
    for s in np.flatnonzero(has_useful):
        reached_useful[s] = reached[s][useful[s]].mean(axis=0)
    return Measures(
        f1=result.f1[:, holds].mean(axis=1),
        hits=result.hits[:, holds].mean(axis=1),
        reached=reached.mean(axis=(1, 2)),
        reached_useful=reached_useful,
        found=(result.f1[..., 0] >= USEFUL).sum(axis=2),
        useful=useful.sum(axis=2),
        ordered=np.stack(
            [
                [_ordered(scores[..., k], mask) for k in range(len(result.selectors))]
                for scores, mask in zip(result.f1[..., 0], useful, strict=True)
            ]
        ),
        everything=result.everything[:, holds].mean(axis=1),
    )


def _ordered(scores: np.ndarray, useful: np.ndarray) -> float:
    """Return means over trainers with owners of both sorts; `[P, O]` each."""
    shares = []
    for row, good in zip(scores, useful, strict=True):
        if good.any() and not good.all():
            ahead = row[good][:, None] - row[~good]
            shares.append(np.mean((ahead > 0) + 0.5 * (ahead == 0)))
    return float(np.mean(shares)) if shares else float("nan")


def budget_figures(result: Tabular, m: Measures) -> list[Figure]:
    """Draw F1, and how often full information is reached, against the budget."""
    k = range(2)
    names = result.selectors
    curves = {names[i]: m.f1[:, i] for i in k}
    f1 = _curves(result, curves, "Mean F1", {"everything": m.everything}, percent=False)
    short = ("binning", "random")
    shares = {f"{short[i]}, all": m.reached[:, i] for i in k}
    shares |= {f"{short[i]}, useful": m.reached_useful[:, i] for i in k}
    reached = _curves(result, shares, "Full information reached")
    return [
        Figure(
            plot=f1,
            caption="F1 on held-out samples, mean over all pairs of a trainer and an "
            "owner that holds what it lacks. Compare Figure 1a of the paper.",
            alt="Mean F1 by budget. " + _in_words(result, curves, ".2f"),
        ),
        Figure(
            plot=reached,
            caption="Pairs of trainer and owner in which so many samples are worth as "
            f"much as all (F1 at most {TOLERANCE} lower): of all pairs, and of those "
            "where all are useful. Compare Figure 1b of the paper.",
            alt="Share of pairs that reach full information, by budget. "
            + _in_words(result, shares, ".0%"),
        ),
    ]


def ranking_figure(result: Tabular, m: Measures) -> Figure | None:
    """Draw F1 against the budget for the first ways to choose, where all were run."""
    if np.isnan(m.f1).any():
        return None
    curves = {name: m.f1[:, result.selectors.index(name)] for name in RANKINGS[:6]}
    return Figure(
        plot=_curves(result, curves, "Mean F1", percent=False),
        caption="F1 by budget for some ways to choose, over the same pairs.",
        alt="Mean F1 by budget. " + _in_words(result, curves, ".2f"),
    )


def found_table(result: Tabular, m: Measures) -> Table:
    """List useful owners found for each trainer, as Table 4 of the paper does."""
    rows = [
        (
            kind.capitalize(),
            int(result.n_hard[p]),
            *(spread(m.found[:, p, k]) for k in range(2)),
            spread(m.useful[:, p]),
        )
        for p, kind in enumerate(result.kinds)
    ]
    rows.append(
        (
            "Together",
            int(result.n_hard.sum()),
            *(spread(m.found[:, :, k].sum(1)) for k in range(2)),
            spread(m.useful.sum(1)),
        )
    )
    return Table(
        columns=(
            "The trainer lacks",
            "Hard samples",
            "Binning",
            "Random",
            "Everything",
        ),
        rows=rows,
        formats=("", "d", ".1f", ".1f", ".1f"),
        caption=f"Owners of {len(result.shares)} with which a trainer's F1 is {USEFUL} "
        f"or more, with {result.budgets[0]} samples or with everything. Compare Table "
        "4 of the paper.",
    )


def selector_table(result: Tabular, m: Measures) -> Table:
    """Compare the ways to choose at the least budget."""
    return Table(
        columns=(
            "Way to choose",
            "F1",
            "Right kind",
            "Full information reached",
            "Useful owners found",
            "In order",
        ),
        rows=[
            (
                name.capitalize(),
                spread(m.f1[:, k, 0]),
                spread(m.hits[:, k, 0]),
                spread(m.reached_useful[:, k, 0]),
                spread(m.found[:, :, k].sum(1)),
                spread(m.ordered[:, k]),
            )
            for k, name in enumerate(result.selectors)
        ],
        formats=("", ".3f", ".0%", ".0%", ".1f", ".3f"),
        caption=f"With {result.budgets[0]} samples. F1 and the share of samples of the "
        "right kind: over owners that hold it. Full information reached: of owners "
        "that are useful by it. In order: of pairs of one such owner and another, "
        "chance being 0.5.",
    )


def classifier_table(result: Tabular) -> Table:
    """Compare the classifiers, over the owners that all were tried on."""
    f1 = classifier_means(result)
    n_pairs = int(np.isfinite(result.by_classifier[0, 0, ..., 0]).sum())
    return Table(
        columns=("Classifier", "Settings", "Everything", "Binning", "Random"),
        rows=[
            (
                name[0].upper() + name[1:],
                settings,
                *(spread(f1[:, c, i]) for i in range(3)),
            )
            for c, (name, settings) in enumerate(
                zip(result.classifiers, result.settings, strict=True)
            )
        ],
        formats=("", "", ".3f", ".3f", ".3f"),
        caption=f"Mean F1 with everything and with {result.budgets[0]} samples, over "
        f"{n_pairs} pairs of a trainer and an owner that holds what it lacks. Each "
        f"classifier's settings are the best of {len(GRID['XGBoost'])} on a deal that "
        "is not reported. Compare Figures 7 to 9 of the paper.",
    )


def classifier_means(result: Tabular) -> np.ndarray:
    """Return F1 of each classifier over the pairs it was tried on, `[S, C, 3]`."""
    return np.nanmean(result.by_classifier, axis=(2, 3))


def paper_table(result: Tabular, m: Measures) -> Table:
    """Set our measurements beside the paper's figures."""
    least, most = int(result.budgets[0]), int(result.budgets[-1])
    total = m.useful.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found_shares = [m.found[:, :, k].sum(axis=1) / total for k in range(2)]
    paper = {name: sum(counts) for name, counts in PAPER_FOUND.items()}
    names = list(PAPER_REACHED)
    return Table(
        columns=("Measure", "Binning", "Random", "Binning, paper", "Random, paper"),
        rows=[
            (
                f"Full information reached with {least} samples",
                *(spread(m.reached[:, k, 0]) for k in range(2)),
                *(PAPER_REACHED[name] for name in names),
            ),
            (
                "The same, owners that are useful",
                *(spread(m.reached_useful[:, k, 0]) for k in range(2)),
                None,
                None,
            ),
            (
                f"The same with {most} samples",
                *(spread(m.reached_useful[:, k, -1]) for k in range(2)),
                None,
                None,
            ),
            (
                f"Useful owners found with {least} samples, per useful owner",
                *map(spread, found_shares),
                *(paper[name] / paper["everything"] for name in names),
            ),
        ],
        formats=("", ".0%", ".0%", ".0%", ".0%"),
        caption="Beside the paper's IoT-23, which is not to be had here: seven "
        "trainers, 95 owners.",
    )


def path_table(paths: Paths) -> Table:
    """Compare who is sent by decision path, as Figure 10 of the paper does."""
    f1, hits = paths.means(paths.alone), paths.means(paths.hits)
    return Table(
        columns=("Sent", "F1", "Right kind"),
        rows=[
            (way[0].upper() + way[1:], spread(f1[:, i]), spread(hits[:, i]))
            for i, way in enumerate(WAYS)
        ],
        formats=("", ".3f", ".0%"),
        caption=f"F1 with {BUDGET} samples and the share of them that is of the right "
        "kind, over pairs of a trainer and an owner that has enough samples on the "
        "decision path of a hard sample and on others. Compare Figure 10 of the paper.",
    )


def path_figure(paths: Paths) -> Figure:
    """Draw the distribution of F1 over cases, by who is sent."""
    figure = new_figure()
    is_case, grid = paths.cases(), np.linspace(0, 1, 51)
    curves = {
        way: np.stack(
            [
                (scores[cases][:, i, None] <= grid).mean(axis=0)
                for scores, cases in zip(paths.alone, is_case, strict=True)
            ]
        )
        for i, way in enumerate(WAYS)
    }
    with style():
        ax = figure.subplots()
    plot_curves(grid, curves, ax=ax, xlabel="F1", ylabel="Cases up to it", percent=True)
    middle = len(grid) // 2
    return Figure(
        plot=figure,
        caption=f"Cases in which {BUDGET} samples bring no more than this F1: lower is "
        "better. Compare Figure 10 of the paper.",
        alt="Share of cases with an F1 of 0.5 at most: "
        + ", ".join(f"{way} {c[:, middle].mean():.0%}" for way, c in curves.items())
        + ".",
    )


def combined_figure(paths: Paths) -> Figure:
    """Draw F1 by how many of ten samples Mycroft chooses."""
    figure = new_figure()
    f1 = paths.means(paths.combined)
    curves = {f"rest by {name}": f1[:, i] for i, name in enumerate(OTHERS)}
    with style():
        ax = figure.subplots()
    plot_curves(
        SPLITS,
        curves,
        ax=ax,
        xlabel=f"Samples by Mycroft, of {max(SPLITS)}",
        ylabel="Mean F1",
    )
    return Figure(
        plot=figure,
        caption=f"F1 with {max(SPLITS)} samples, some of which Mycroft chooses by "
        "binning distance. Compare Figure 11 of the paper.",
        alt=f"Mean F1 with {', '.join(map(str, SPLITS))} of {max(SPLITS)} samples by "
        "Mycroft: "
        + "; ".join(
            f"{name} " + ", ".join(f"{value:.2f}" for value in curve.mean(axis=0))
            for name, curve in curves.items()
        )
        + ".",
    )


def _curves(
    result: Tabular,
    curves: dict[str, np.ndarray],
    label: str,
    levels: dict[str, np.ndarray] | None = None,
    *,
    percent: bool = True,
):
    figure = new_figure()
    with style():
        ax = figure.subplots()
    plot_curves(
        result.budgets,
        curves,
        levels=levels,
        ax=ax,
        xlabel="Samples sent",
        ylabel=label,
        xscale="log",
        percent=percent,
    )
    return figure


def _in_words(result: Tabular, curves: dict[str, np.ndarray], form: str) -> str:
    clauses = []
    for name, curve in curves.items():
        first, last = curve.mean(axis=0)[[0, -1]]
        clauses.append(
            f"{name}: {first:{form}} with {result.budgets[0]} samples, {last:{form}} "
            f"with {result.budgets[-1]}"
        )
    return "; ".join(clauses) + "."
