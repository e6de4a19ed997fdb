"""The purchase told in a few sentences and one picture, with which the report opens."""

from __future__ import annotations

from jaxsel.report import COLORS, Figure, new_figure, style

from ._market import OWNERS
from ._purchase import Purchase
from ._reviews import TextPurchase
from .seeds import spread
from .words import listed


def story(result: Purchase, texts: TextPurchase | None) -> tuple[str | Figure, ...]:
    """Return the story of the purchase: its sellers, its gain, its disclosures.

    Args:
        result: The purchase.
        texts: The choice of reviews; None where it was not made.
    """
    main = result.main
    budget, offered = int(result.budgets[main]), int(result.sizes.sum())
    before, everything = result.before[:, 0].mean(), result.everything[:, 0].mean()
    random, chosen = result.random[:, main, 0].mean(), result.chosen[:, main, 0].mean()
    bought = result.owner_bought.mean(0).round().astype(int)
    order = sorted(range(len(OWNERS)), key=lambda o: -bought[o])
    sellers = [f"{bought[o]} from “{OWNERS[o]}”" for o in order if bought[o]]
    spared = [f"“{OWNERS[o]}”" for o in order if not bought[o]]
    return (
        f"A trainer's model reads {before:.1%} of new handwritten digits right: of "
        f"{result.weak.shape[1]} of the ten it has seen a single example. Five owners "
        f"offer {offered} more, some with wrong labels, some noisy, some of digits "
        f"that it reads well already; jaxsel gave each a value, and bought {budget}: "
        f"on average {listed(sellers)}"
        f"{f', and none from {listed(spared)}' if spared else ''}.",
        f"Trained again, the model reads {chosen:.1%} right. With {budget} digits "
        f"bought at random it reads {random:.1%} right, and with all {offered}, "
        f"{offered / budget:.1f} times as many, {everything:.1%}.",
        _figure(result, budget, offered),
        f"For this the trainer saw all that was on offer.{_in_secret(texts)}",
    )


def _in_secret(texts: TextPurchase | None) -> str:
    if texts is None or texts.private is None:
        return ""
    return (
        f" In secret, {texts.chosen} film reviews are chosen out of {texts.offered}, "
        f"though the buyer has read only {texts.bootstrap}, bought at random, and the "
        "seller has not seen the model that chooses."
    )


def _figure(result: Purchase, budget: int, offered: int) -> Figure:
    from matplotlib.ticker import PercentFormatter

    rows = {
        "before": result.before,
        f"{budget} at random": result.random[:, result.main],
        f"{budget} by jaxsel": result.chosen[:, result.main],
        f"all {offered}": result.everything,
    }
    bars = [spread(accuracy[:, 0]) for accuracy in rows.values()]
    figure = new_figure(4.4, 2.2)
    with style():
        ax = figure.subplots()
        ax.barh(
            list(rows),
            [mean for mean, _ in bars],
            xerr=[deviation or 0 for _, deviation in bars],
            color=["#7F7F7F", "#7F7F7F", COLORS[0], "#7F7F7F"],
            height=0.65,
        )
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.set(xlabel="New digits read right", xlim=(0, 1))
        ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    accuracies = "; ".join(
        f"{name} {mean:.1%}" for name, (mean, _) in zip(rows, bars, strict=True)
    )
    seeds = len(result.seeds)
    return Figure(
        plot=figure,
        alt=f"Accuracy on new digits: {accuracies}.",
        caption=f"Accuracy by what was bought: mean of {seeds} repetitions, each with "
        "other digits; lines are one standard deviation.",
    )
