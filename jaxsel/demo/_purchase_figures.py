"""Tables and figures of the purchase."""

from __future__ import annotations

import numpy as np

from jaxsel.report import (
    COLORS,
    Figure,
    Table,
    new_figure,
    plot_curves,
    plot_images,
    style,
)

from ._market import OWNERS
from ._purchase import Purchase
from .seeds import spread

KINDS = ("all digits", "the weak classes")
_OFFERS = (
    "clean digits of all classes",
    "digits of all classes, 70% of them with a wrong label",
    "digits of all classes under heavy noise",
    "clean digits of the classes that the trainer masters already",
    "clean digits of the weak classes",
)


def offer_table(result: Purchase) -> Table:
    return Table(
        columns=("Owner", "Offers", "Samples"),
        rows=[
            (owner.capitalize(), offer, int(size))
            for owner, offer, size in zip(OWNERS, _OFFERS, result.sizes, strict=True)
        ],
        caption="What the five owners offer, unknown to the trainer.",
    )


def accuracy_table(result: Purchase) -> Table:
    main = result.main
    budget = int(result.budgets[main])
    rows = [
        ("Before", 0, result.before),
        ("At random", budget, result.random[:, main]),
        ("By jaxsel", budget, result.chosen[:, main]),
        ("Everything", int(result.sizes.sum()), result.everything),
        (
            "Everything of positive value",
            round(result.n_harmless.mean()),
            result.harmless,
        ),
    ]
    return Table(
        columns=("Purchase", "Samples bought", "Accuracy", "On weak classes"),
        rows=[
            (name, bought, spread(accuracy[:, 0]), spread(accuracy[:, 1]))
            for name, bought, accuracy in rows
        ],
        formats=("", "d", ".1%", ".1%"),
        caption="Test accuracy before and after the purchase, mean ± standard "
        f"deviation over {len(result.seeds)} seeds.",
    )


def budget_figures(result: Purchase) -> list[Figure]:
    figures = []
    for i, kind in enumerate(KINDS):
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


def owner_table(result: Purchase, order: np.ndarray) -> Table:
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
                OWNERS[o].capitalize(),
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


def owner_figures(result: Purchase, order: np.ndarray) -> list[Figure]:
    from matplotlib.ticker import PercentFormatter

    values = 1e4 * result.owner_value[:, order]
    accuracy = result.alone[:, order, 0]
    label = "Value of 100 samples (percentage points)"
    names = [OWNERS[o] for o in order]
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


def image_figures(result: Purchase) -> list[Figure]:
    gallery, figures = result.gallery, []
    for i, which in enumerate(("most", "least")):
        images = gallery.images[:, i]
        labels, true = gallery.given[:, i].ravel(), gallery.true[:, i].ravel()
        captions = [
            str(g) if g == t else f"{g} (is {t})"
            for g, t in zip(labels, true, strict=True)
        ]
        figures.append(
            Figure(
                plot=plot_images(
                    images.reshape(-1, *images.shape[-2:]),
                    columns=images.shape[1],
                    captions=captions,
                    rows=OWNERS,
                    marked=labels != true,
                ),
                caption=f"The {which} valuable samples of each owner, best first.",
                alt=f"{np.sum(labels != true)} of the {labels.size} {which} valuable "
                "images have a wrong label. "
                + " ".join(
                    f"{owner}: {', '.join(row)}."
                    for owner, row in zip(
                        OWNERS, np.reshape(captions, images.shape[:2]), strict=True
                    )
                ),
            )
        )
    return figures


def detection_figure(result: Purchase) -> Figure:
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
