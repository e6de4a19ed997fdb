"""The purchase told in a few sentences and one picture, with which the report opens."""

from __future__ import annotations

from jaxsel.report import COLORS, Figure, new_figure, style

from ._market import OWNERS
from ._purchase import Purchase
from ._requests import Requests
from ._reviews import TextPurchase
from .seeds import spread
from .words import listed


def story(
    result: Purchase, requests: Requests, texts: TextPurchase | None
) -> tuple[str | Figure, ...]:
    """Tell who bought what, from whom, what it gained, and who saw what.

    Args:
        result: The purchase.
        requests: The market in which the trainer sees only what is sent.
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
        f"A trainer's model reads handwritten digits, and is right about {before:.1%} "
        f"of new ones: of {result.weak.shape[1]} of the ten digits it has seen a "
        f"single example. Five owners offer {offered} digits: good ones, ones with "
        "wrong labels, noisy ones, ones of which the trainer has enough, and a few of "
        "just those that it lacks. jaxsel gave each digit on offer a value, by how "
        "much it helps on digits that the trainer keeps to judge by, and bought "
        f"{budget}: {listed(sellers)}"
        f"{f', and none from {listed(spared)}' if spared else ''}.",
        f"Trained again, the model is right about {chosen:.1%}. With {budget} digits "
        f"bought at random it is right about {random:.1%}, and with all {offered}, "
        f"{offered / budget:.1f} times as many, about {everything:.1%}.",
        _figure(result, budget, offered),
        "Who saw what? In this purchase the trainer saw all that was on offer, and "
        "the owners saw nothing. It can be less: below, owners see only "
        f"{requests.n_shared} digits that the trainer gets wrong, and the trainer "
        f"sees only the {requests.budget} that each sends.{_in_secret(texts)}",
    )


def _in_secret(texts: TextPurchase | None) -> str:
    if texts is None or texts.private is None:
        return ""
    return (
        f" And {texts.chosen} film reviews were chosen out of {texts.offered} without "
        f"the buyer reading any but {texts.bootstrap} that it had bought at random, "
        "and without the seller seeing the model that chose."
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
        ax.set(xlabel="Right about new digits", xlim=(0, 1))
        ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    told = "; ".join(
        f"{name} {mean:.1%}" for name, (mean, _) in zip(rows, bars, strict=True)
    )
    seeds = len(result.seeds)
    return Figure(
        plot=figure,
        alt=f"Accuracy on new digits: {told}.",
        caption=f"Accuracy by what was bought: mean of {seeds} repetitions, each with "
        "other digits; lines are one standard deviation.",
    )
