"""A market: one request, five owners of digits, and their ranking."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from experiments._kit.scenes.owner import NAMES, new_owner
from experiments._kit.scenes.ranking import appraise_owners, firsts
from experiments._kit.scenes.spoiling import PERMUTED, spoilt
from experiments._kit.scenes.starved import draw_starved
from experiments._kit.scenes.trainer import Samples, Sizes, images
from experiments._kit.seeds import stacked
from experiments._kit.store import remembered
from experiments._kit.words import averaged, compared, finding, listed, sentence, spread
from jaxsel._runs.progress import track
from jaxsel.data import load
from jaxsel.report import Chapter, Figure, Heading, Table, new_figure, style

OFFERS = {
    "rich": "digits of all classes",
    "noisy": "the same, all with a patch masked, another contrast and perspective",
    "mislabelled": f"the same, with {PERMUTED:.0%} of the labels permuted",
    "small": "a tenth of the same",
    "beside the point": "digits of the classes that the trainer has",
}
METHODS = ("func_feat", "random")

SIZES = Sizes(
    net="mlp",
    side=8,
    own=12,
    kept=0.1,
    weak=3,
    shared=40,
    held_out=40,
    main=32,
    first=150,
    epochs=6,
    min_steps=30,
    rate=3e-3,
    cycles=(20,),
    offered=400,
    val=600,
    test=200,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requests:
    """Results of requests to five owners of digits, for each of S seeds.

    Attributes:
        seeds: `[S]`.
        budget: Samples that each may send.
        n_shared: Hard samples in a request.
        n_held_out: Hard samples held out, `[S]`.
        nothing: Accuracy on these after fine-tuning on the trainer's samples, `[S]`.
        accuracy: The same with each owner's answer, by `METHODS`, `[S, 2, 5]`.
        everything: With all that each owner has, `[S, 5]`.
        spearman: Rank correlation of each method with everything, `[S, 2]`.
        kendall: Kendall's tau-b of each method with everything, `[S, 2]`.
    """

    seeds: np.ndarray
    budget: int
    n_shared: int
    n_held_out: np.ndarray
    nothing: np.ndarray
    accuracy: np.ndarray
    everything: np.ndarray
    spearman: np.ndarray
    kendall: np.ndarray


def run_requests(
    folder: Path, seeds: Sequence[int], *, progress: bool = False
) -> Requests:
    """Ask five owners of digits for samples, and rank the owners by their answers.

    Args:
        folder: Folder of the results of single seeds; see `remembered`.
        seeds: Each deals the digits, and draws noise and weights, anew.
        progress: Whether to show a progress bar.
    """
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    data = images(load("digits"), SIZES.side)
    runs = [
        remembered(
            folder / f"requests-{seed}.npz",
            {"sizes": dataclasses.asdict(SIZES), "seed": int(seed)},
            functools.partial(_run, data, int(seed)),
        )
        for seed in track(seeds, progress=progress, label="Requests")
    ]
    return Requests(
        seeds=np.asarray(seeds),
        budget=SIZES.main,
        n_shared=SIZES.shared,
        **stacked(runs),
    )


def _run(data: Samples, seed: int) -> dict[str, np.ndarray]:
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(4)]
    scene = draw_starved(data, SIZES, keys[0])
    offer, tenth = scene.offer, slice(None, None, 10)
    beside = ~np.isin(offer[1], scene.weak)
    states = spoilt(offer, keys[1])
    stock = {
        "rich": states["clean"],
        "noisy": states["corrupted features"],
        "mislabelled": states["permuted labels"],
        "small": (offer[0][tenth], offer[1][tenth]),
        "beside the point": (offer[0][beside], offer[1][beside]),
    }
    owners = {
        name: new_owner(samples, scene.n_classes, SIZES, keys[2])
        for name, samples in stock.items()
    }
    return {
        "n_held_out": np.array(len(scene.trainer.held_out[1])),
        **appraise_owners(scene.trainer, owners, METHODS, SIZES.main, keys[3]),
    }


def requests_chapter(result: Requests) -> Chapter:
    """Return the chapter on the owners' answers and their ranking."""
    mycroft, random = result.accuracy[:, 0], result.accuracy[:, 1]
    correlations = [
        f"{NAMES[how]} {averaged('.2f', result.spearman[:, j])}"
        for j, how in enumerate(METHODS)
    ]
    first_counts = [
        f"{firsts(result.accuracy[:, j], result.everything)} by {NAMES[how]}"
        for j, how in enumerate(METHODS)
    ]
    blocks = (
        "Here the trainer does not see what is on offer. It shows each owner "
        f"{result.n_shared} digits of its weak classes that it got wrong, and asks for "
        f"{result.budget} samples (`jaxsel.market`). The owner chooses those whose "
        "gradients under its own model match the hard ones' and whose features are "
        "near them (`jaxsel.match.func_feat`), or at random from their classes. The "
        "trainer fine-tunes on what it gets, once for each owner; "
        f"{result.n_held_out.min()} to {result.n_held_out.max()} hard digits that no "
        "owner sees tell whose samples help.",
        _table(result),
        _figure(result),
        Heading(
            finding(
                "Choices by FuncFeat",
                result.spearman[:, 0],
                "random ones",
                result.spearman[:, 1],
                "rank correlation of the owners with full information",
                ".2f",
            )
        ),
        sentence(
            compared("FuncFeat", mycroft.mean(1), "random", random.mean(1))
            + ", over all owners"
        )
        + " Spearman's correlation with the order by full information, mean over "
        f"seeds: {'; '.join(correlations)}. Runs of {len(result.seeds)} in which the "
        "owner that is best by full information comes first, alone: "
        f"{listed(first_counts)}.",
    )
    return Chapter(
        title=finding(
            "Samples that owners choose by FuncFeat",
            mycroft.mean(1),
            "random ones",
            random.mean(1),
            "accuracy on hard digits",
            ".1%",
        ),
        blocks=blocks,
        data={"offers": OFFERS, "methods": METHODS, **dataclasses.asdict(result)},
    )


def _table(result: Requests) -> Table:
    rows = [("Nothing", "", None, None, spread(result.nothing))]
    rows += [
        (
            name.capitalize(),
            what,
            *(spread(result.accuracy[:, j, i]) for j in range(len(METHODS))),
            spread(result.everything[:, i]),
        )
        for i, (name, what) in enumerate(OFFERS.items())
    ]
    return Table(
        columns=("Owner", "Has", "FuncFeat", "Random", "Everything"),
        rows=rows,
        formats=("", "", ".1%", ".1%", ".1%"),
        caption=f"Accuracy on held-out hard digits with {result.budget} samples of one "
        "owner, and with all it has; mean ± standard deviation over "
        f"{len(result.seeds)} seeds.",
    )


def _figure(result: Requests) -> Figure:
    from matplotlib.ticker import PercentFormatter

    figure = new_figure()
    with style():
        ax = figure.subplots()
        for i, (name, marker) in enumerate(zip(OFFERS, "osD^v", strict=True)):
            ax.plot(
                result.everything[:, i],
                result.accuracy[:, 0, i],
                marker,
                label=name,
            )
        ax.set(
            xlabel="Accuracy with everything",
            ylabel=f"Accuracy with {result.budget} samples",
        )
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.legend(loc="best")
    means = "; ".join(
        f"{name} {result.accuracy[:, 0, i].mean():.1%} and "
        f"{result.everything[:, i].mean():.1%}"
        for i, name in enumerate(OFFERS)
    )
    return Figure(
        plot=figure,
        caption=f"What {result.budget} samples of an owner, chosen by FuncFeat, tell "
        "of all that it has. Dots are seeds.",
        alt=f"The order of owners by {result.budget} samples has a rank correlation of "
        f"{averaged('.2f', result.spearman[:, 0])} with that by everything. Mean "
        f"accuracy with {result.budget} samples, and with everything: {means}.",
    )
