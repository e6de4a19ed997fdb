"""The purchase of the demo, closer: by budget, by owner, and wrong labels."""

from __future__ import annotations

import numpy as np

from experiments._kit.words import significant_sign, spread
from jaxsel.demo.purchase import OWNERS, Purchase
from jaxsel.report import (
    COLORS,
    Chapter,
    Figure,
    Heading,
    Table,
    new_figure,
    plot_curves,
    style,
)

_KINDS = ("all digits", "the weak classes")
_NAMES = [*OWNERS]


def purchase_chapter(result: Purchase) -> Chapter:
    """Return the chapter on the purchase by budget and by owner."""
    order = np.argsort(-result.owner_value.mean(0), kind="stable")
    agreement = _agreement(result)
    caught = np.array([d.found_at_bad for d in result.detection])
    seeds = "1 seed" if len(result.seeds) == 1 else f"{len(result.seeds)} seeds"
    blocks = (
        "The purchase of `jaxsel demo`, with every budget that it tries.",
        *_budget_figures(result),
        Heading(_of_owners(agreement)),
        "Owners are ranked by the mean value of their samples, weighted by the "
        "trainer's error. As a check, the trainer was also trained with "
        f"{result.n_alone} random samples from one owner alone: the last column. Over "
        f"{seeds}, the two orders of the owners have a mean rank correlation "
        f"(Spearman) of {agreement.mean():.2f}.",
        _owner_table(result, order),
        *_owner_figures(result, order),
        Heading(
            f"The samples of lowest value hold {caught.mean():.0%} of the wrong labels"
        ),
        _detection_figure(result),
    )
    data = {
        "owners": _NAMES,
        "budgets": result.budgets,
        "random": result.random,
        "chosen": result.chosen,
        "one_owner": result.alone,
        "rank_correlation_of_owners": agreement,
        "inspected": result.detection[0].inspected,
        "found": np.stack([d.found for d in result.detection]),
    }
    return Chapter(title=_by_budget(result), blocks=blocks, data=data)


def _budget_figures(result: Purchase) -> list[Figure]:
    figures = []
    for i, kind in enumerate(_KINDS):
        figure = new_figure()
        with style():
            ax = figure.subplots()
        plot_curves(
            result.budgets,
            {"jaxsel": result.chosen[..., i], "random": result.random[..., i]},
            levels={
                "everything": result.everything[:, i],
                "before": result.before[:, i],
            },
            ax=ax,
            xlabel="Samples bought",
            ylabel=f"Accuracy on {kind}",
            xscale="log",
            percent=True,
        )
        random, chosen = result.random[..., i].mean(0), result.chosen[..., i].mean(0)
        ahead = int(np.sum(chosen > random))
        figures.append(
            Figure(
                plot=figure,
                caption=f"Accuracy on {kind} against the budget; bands are one "
                "standard deviation over seeds.",
                alt=f"jaxsel's mean accuracy on {kind} is above random's with "
                f"{ahead} of {len(chosen)} budgets. "
                + "; ".join(
                    f"{n} samples: {c:.1%} with jaxsel, {r:.1%} at random"
                    for n, c, r in zip(result.budgets, chosen, random, strict=True)
                )
                + ".",
            )
        )
    return figures


def _owner_table(result: Purchase, order: np.ndarray) -> Table:
    points = 100 * result.owner_value
    return Table(
        columns=(
            "Owner",
            "Value of 100 samples",
            "Value of all",
            "Positive",
            "Bought",
            f"Accuracy with {result.n_alone}",
        ),
        rows=[
            (
                _NAMES[o].capitalize(),
                spread(100 * points[:, o]),
                spread(result.sizes[o] * points[:, o]),
                float(result.owner_positive[:, o].mean()),
                float(result.owner_bought[:, o].mean()),
                spread(result.alone[:, o, 0]),
            )
            for o in order
        ],
        formats=("", ".1f", ".1f", ".0%", ".0f", ".1%"),
        caption="The owners, best first. Values are in percentage points of the "
        "accuracy, weighted by the trainer's error, of a nearest-neighbour classifier; "
        f"bought is of {int(result.budgets[result.main])}. Samples of positive plain "
        "value do no harm, but only the most useful to this trainer are bought: an "
        "owner can have many of the first and sell none.",
    )


def _owner_figures(result: Purchase, order: np.ndarray) -> list[Figure]:
    from matplotlib.ticker import PercentFormatter

    values = 1e4 * result.owner_value[:, order]
    accuracy = result.alone[:, order, 0]
    label = "Value of 100 samples (percentage points)"
    names = [_NAMES[o] for o in order]
    bars, dots = new_figure(), new_figure()
    with style():
        ax = bars.subplots()
        place = np.arange(len(order))[::-1]
        ax.barh(place, values.mean(0), height=0.55, color=COLORS[0], alpha=0.35)
        for one_seed in values:
            ax.plot(one_seed, place, "o", color=COLORS[0], markersize=3)
        ax.set_yticks(place, names)
        ax.set(xlabel=label)
        ax.grid(visible=False, axis="y")
        ax = dots.subplots()
        for i, (name, marker) in enumerate(zip(names, "osD^v", strict=True)):
            ax.plot(values[:, i], accuracy[:, i], marker, label=name)
        ax.set(xlabel=label, ylabel=f"Accuracy with {result.n_alone} samples")
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.legend(loc="lower right")
    means = ", ".join(
        f"{name} {value:.1f} and {share:.1%}"
        for name, value, share in zip(
            names, values.mean(0), accuracy.mean(0), strict=True
        )
    )
    return [
        Figure(
            plot=bars,
            caption="Value of 100 samples of each owner. Bars are means, dots are "
            "seeds.",
            alt=f"{names[0].capitalize()} is worth most, {names[-1]} least. Mean "
            f"value in percentage points, and accuracy: {means}.",
        ),
        Figure(
            plot=dots,
            caption=f"Value, and test accuracy with {result.n_alone} random samples of "
            "one owner. Dots are seeds.",
            alt=f"Highest value first: {', '.join(names)}; highest accuracy first: "
            f"{', '.join(names[i] for i in np.argsort(-accuracy.mean(0)))}. Mean value "
            f"and accuracy: {means}.",
        ),
    ]


def _detection_figure(result: Purchase) -> Figure:
    detection = result.detection
    inspected = detection[0].inspected
    shares = np.stack([d.found for d in detection])
    figure = new_figure()
    with style():
        ax = figure.subplots()
    plot_curves(
        inspected,
        {"lowest value first": shares, "in any order": inspected[None]},
        ax=ax,
        xlabel="Share of samples inspected",
        ylabel="Share of wrong labels found",
        percent=True,
    )
    ax.xaxis.set_major_formatter(ax.yaxis.get_major_formatter())
    indices = [int(round(share * (len(inspected) - 1))) for share in (0.1, 0.2, 0.3)]
    return Figure(
        plot=figure,
        caption="Wrong labels found when inspecting the samples of all owners "
        "together, lowest plain value first.",
        alt="Lowest value first, the wrong labels found are "
        + ", ".join(
            f"{shares[:, i].mean():.1%} after {inspected[i]:.0%} of the samples"
            for i in indices
        )
        + "; in any order, as large a share as that of the samples.",
    )


def _by_budget(result: Purchase) -> str:
    ahead = result.chosen[..., 0] - result.random[..., 0]
    better = sum(significant_sign(differences) > 0 for differences in ahead.T)
    if len(result.seeds) == 1:
        return "What each budget gives, by 1 seed"
    return f"jaxsel's choice does better with {better} of {len(result.budgets)} budgets"


def _of_owners(agreement: np.ndarray) -> str:
    correlation = f"rank correlation {agreement.mean():.2f}"
    if significant_sign(agreement) > 0:
        return f"Values rank the owners much as training on each does: {correlation}"
    return (
        f"Whether values rank the owners as training does cannot be told: {correlation}"
    )


def _agreement(result: Purchase) -> np.ndarray:
    """Return Spearman's correlation of values with accuracies, `[S]`."""
    from scipy.stats import spearmanr

    return np.array(
        [
            spearmanr(values, accuracy)[0]
            for values, accuracy in zip(
                result.owner_value, result.alone[..., 0], strict=True
            )
        ]
    )
