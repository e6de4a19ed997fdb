"""The page of the demo: the story of the purchase, and the chapter below it."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxsel.report import COLORS, Chapter, Figure, Table, new_figure, plot_images, style

from .purchase import OWNERS, Purchase


def purchases(result: Purchase) -> dict[str, np.ndarray]:
    """Return accuracies by the name of the purchase, `[S, 2]` each."""
    budget = result.budgets[result.main]
    return {
        "before": result.before,
        f"{budget} samples at random": result.random[:, result.main],
        f"{budget} samples by jaxsel": result.chosen[:, result.main],
        f"all {result.sizes.sum()} samples": result.everything,
    }


def story(result: Purchase, secret: str) -> tuple[str | Figure, ...]:
    """Return the story of the purchase, with a sentence on the secret choice."""
    budget, offered = int(result.budgets[result.main]), int(result.sizes.sum())
    before, random, chosen, everything = (
        accuracy[:, 0].mean() for accuracy in purchases(result).values()
    )
    bought = result.owner_bought.mean(0).round().astype(int)
    sellers = sorted(zip(OWNERS, bought, strict=True), key=lambda pair: -pair[1])
    sold = [f"{count} from “{owner}”" for owner, count in sellers if count]
    spared = [f"“{owner}”" for owner, count in sellers if not count]
    return (
        f"A trainer's model reads {before:.1%} of new handwritten digits right: of "
        f"{result.weak.shape[1]} of the ten it has seen a single example. Five owners "
        f"offer {offered} more, some with wrong labels, some noisy, some of digits "
        f"that it reads well already; jaxsel gave each a value, and bought {budget}: "
        f"on average {_listed(sold)}"
        f"{f', and none from {_listed(spared)}' if spared else ''}.",
        _gallery(result, 0, "most"),
        f"Trained again, the model reads {chosen:.1%} right. With {budget} digits "
        f"bought at random it reads {random:.1%} right, and with all {offered}, "
        f"{offered / budget:.1f} times as many, {everything:.1%}.",
        _bars(result),
        f"For this the trainer saw all that was on offer.{secret}",
    )


def _listed(items: list[str]) -> str:
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def _spread(x: np.ndarray) -> tuple[float, float | None]:
    return float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else None


def _bars(result: Purchase) -> Figure:
    from matplotlib.ticker import PercentFormatter

    bars = {name: _spread(rows[:, 0]) for name, rows in purchases(result).items()}
    means = [mean for mean, _ in bars.values()]
    figure = new_figure(4.4, 2.2)
    with style():
        ax = figure.subplots()
        ax.barh(
            list(bars),
            means,
            xerr=[deviation or 0 for _, deviation in bars.values()],
            color=["#7F7F7F", "#7F7F7F", COLORS[0], "#7F7F7F"],
            height=0.65,
        )
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.set(xlabel="New digits read right", xlim=(0, 1))
        ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    shares = "; ".join(f"{n} {mean:.1%}" for n, mean in zip(bars, means, strict=True))
    return Figure(
        plot=figure,
        alt=f"Accuracy on new digits: {shares}.",
        caption=f"Accuracy by what was bought: mean of {len(result.seeds)} "
        "repetitions, each with other digits; lines are one standard deviation.",
    )


def _gallery(result: Purchase, i: int, which: str) -> Figure:
    images = result.gallery.images[:, i]
    labels, true = (
        a[:, i].ravel() for a in (result.gallery.given, result.gallery.true)
    )
    captions = [
        str(g) if g == t else f"{g} (is {t})" for g, t in zip(labels, true, strict=True)
    ]
    rows = [", ".join(row) for row in np.reshape(captions, images.shape[:2])]
    return Figure(
        plot=plot_images(
            images.reshape(-1, *images.shape[-2:]),
            columns=images.shape[1],
            captions=captions,
            rows=[*OWNERS],
            marked=labels != true,
        ),
        caption=f"The {which} valuable samples of each owner, best first, with the "
        "labels they are sold with; a wrong one is followed by the true one.",
        alt=f"{np.sum(labels != true)} of the {labels.size} {which} valuable images "
        "have a wrong label. "
        + " ".join(f"{o}: {row}." for o, row in zip(OWNERS, rows, strict=True)),
    )


def purchase_chapter(result: Purchase) -> Chapter:
    """Return the chapter on the purchase: text, figures, tables and plain numbers."""
    auc = np.array([d.auc for d in result.detection])
    caught = np.array([d.found_at_bad for d in result.detection])
    blocks = (
        "A trainer wants to recognise handwritten digits, but has a single example of "
        "each of three classes. Five owners offer digits. Nobody knows whose are worth "
        f"having. The trainer values all {result.sizes.sum()} samples with "
        "`jaxsel.knn_shapley` against its own validation set, buys the best within a "
        "budget, and trains again.",
        _owners(result),
        "The plain mean of a sample's values over the validation digits tells good "
        "samples from bad ones: nothing is bought for which it is not positive. The "
        "mean weighted by the trainer's error on each digit tells which samples this "
        "trainer lacks: the highest are bought first. Each class gets a share of the "
        "budget in proportion to the trainer's error on it.",
        _accuracies(result),
        _gallery(result, 1, "least"),
        "Whoever inspects the samples from the lowest plain value up, and as many as "
        f"have wrong labels, finds {caught.mean():.1%} of the wrong labels. The area "
        f"under the ROC curve is {auc.mean():.3f}, where chance is 0.5.",
        "Each seed draws anew the weak classes, who gets which digits, the noise and "
        "the initial weights of the network, which has one hidden layer of 64 units. "
        "The digits are scikit-learn's, 8×8 pixels; every fifth is a test digit.",
    )
    fields = [f.name for f in dataclasses.fields(result)]
    data = {name: getattr(result, name) for name in fields if name != "gallery"}
    data |= {"owners": [*OWNERS], "detection": {"auc": auc, "found_at_bad": caught}}
    return Chapter(title=_title(result), blocks=blocks, data=data)


def _title(result: Purchase) -> str:
    from scipy.stats import ttest_rel

    random, chosen = (a[:, result.main, 0] for a in (result.random, result.chosen))
    means, seeds = [f"{a.mean():.1%}" for a in (chosen, random)], len(chosen)
    if seeds > 1 and ttest_rel(chosen, random).pvalue < 0.05:
        how = "better" if chosen.mean() > random.mean() else "worse"
        claim = f"do {how} than random ones: {' against '.join(means)}"
    else:
        claim = (
            f"and random ones cannot be told apart by {seeds} seed{'s'[: seeds > 1]}"
        )
        claim += f": {' and '.join(means)}"
    return f"Samples bought with jaxsel {claim} accuracy"


def _owners(result: Purchase) -> Table:
    owners = [(name.capitalize(), offer) for name, offer in OWNERS.items()]
    return Table(
        columns=("Owner", "Offers", "Samples", "Value of 100", "Bought"),
        rows=[
            (
                *owners[o],
                int(result.sizes[o]),
                _spread(1e4 * result.owner_value[:, o]),
                float(result.owner_bought[:, o].mean()),
            )
            for o in np.argsort(-result.owner_value.mean(0), kind="stable")
        ],
        formats=("", "", "d", ".1f", ".0f"),
        caption="The owners by the mean value of their samples, in percentage points "
        "of the accuracy, weighted by the trainer's error, of a nearest-neighbour "
        f"classifier; bought is of {result.budgets[result.main]}.",
    )


def _accuracies(result: Purchase) -> Table:
    positive = f"all {result.n_harmless.mean():.0f} of positive value"
    rows = purchases(result) | {positive: result.harmless}
    return Table(
        columns=("Purchase", "Accuracy", "On weak classes"),
        rows=[
            (name.capitalize(), _spread(accuracy[:, 0]), _spread(accuracy[:, 1]))
            for name, accuracy in rows.items()
        ],
        formats=("", ".1%", ".1%"),
        caption="Test accuracy before and after the purchase, mean ± standard "
        f"deviation over {len(result.seeds)} seeds.",
    )
