"""Filtering by loss: noisy clients, with and without a threshold."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments._kit.scenes.federation import FilterSizes
from experiments._kit.scenes.loss_figure import first_rounds, loss_figure
from experiments._kit.scenes.thresholds import FILTERS, TRAINED, variant_seed
from experiments._kit.scenes.trainer import images
from experiments._kit.seeds import stacked
from experiments._kit.store import remembered
from experiments._kit.words import finding, spread
from jaxsel._runs.progress import track
from jaxsel.data import load
from jaxsel.report import Chapter, Table

_SIZES = FilterSizes(
    side=8,
    hidden=64,
    clients=20,
    clean=240,
    test=180,
    benchmark=0.2,
    ratios=(2.0,),
    fit=200,
    rounds=80,
)
_CLASSES = 5  # the digits below it are the task, the others noise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clients:
    """Accuracies of federated clients with and without filtering.

    Attributes:
        seeds: Number of seeds.
        results: Results of `variant_seed`, stacked on a first axis of seeds.
    """

    seeds: int
    results: dict[str, np.ndarray]


def run_clients(
    folder: Path, seeds: Sequence[int], *, progress: bool = False
) -> Clients:
    """Let clients drop noisy digits by their loss, and learn together.

    Args:
        folder: Folder of the results of single seeds; see `remembered`.
        seeds: Each deals the digits, and draws noise and weights, anew.
        progress: Whether to show a progress bar.
    """
    x, y = images(load("digits"), _SIZES.side)
    task = y < _CLASSES
    target, other = (x[task], y[task]), (x[~task], y[~task] - _CLASSES)
    tracked = track(seeds, progress=progress, label="Clients")
    settings = {"sizes": dataclasses.asdict(_SIZES), "classes": _CLASSES}
    runs = [
        remembered(
            folder / f"clients-{seed}.npz",
            settings | {"seed": int(seed)},
            functools.partial(
                variant_seed, target, [other], _SIZES, int(seed), kind="both"
            ),
        )
        for seed in tracked
    ]
    return Clients(seeds=len(runs), results=stacked(runs))


def clients_chapter(result: Clients) -> Chapter:
    """Return the chapter on filtering by clients."""
    results, sizes = result.results, _SIZES
    rounds, goal = results["rounds"][0], 0.9 * results["ideal"][:, -1]
    none = np.zeros(result.seeds)
    rows = [("clean samples alone", results["ideal"], 1 + none, 1 + none)]
    for t, name in enumerate(TRAINED):
        removed, kept = none, 1 + none
        if name in FILTERS:
            f = FILTERS.index(name)
            removed, kept = results["removed"][:, f], results["kept"][:, f]
        rows.append((name, results["accuracy"][:, t], removed, kept))
    blocks = (
        f"{sizes.clients} clients have images of one digit each, 0 to {_CLASSES - 1}; "
        f"but for each clean image they have {sizes.ratios[0]:g} others, half of them "
        f"with a wrong label, half of other digits. A clean benchmark set of "
        f"{sizes.benchmark * sizes.clean:.0f} images trains a model; a threshold on "
        "its losses tells the clients what to keep (`jaxsel.filter`), and the server "
        "sees counts of losses only. Then the clients train together, by federated "
        "averaging. `make repro-filter` does it with a hundred clients.",
        Table(
            columns=(
                "Trained on",
                "Noise removed",
                "Clean samples kept",
                "Accuracy",
                "Rounds to 90% of the ideal",
            ),
            rows=[
                (name, spread(removed), spread(kept), spread(line[:, -1]), reached)
                for name, line, removed, kept in rows
                for reached in [first_rounds(line, goal, rounds)]
            ],
            formats=("", ".0%", ".0%", ".1%", ""),
            caption=f"After {rounds[-1]} rounds, mean ± standard deviation over "
            f"{result.seeds} seeds. “threshold” splits the benchmark set in two, "
            "“cross-fitted” uses all of it, and “quantile” drops what is above 95% of "
            "the benchmark's losses. The benchmark model alone has an accuracy "
            f"of {results['benchmark'].mean():.1%}.",
        ),
        loss_figure(
            *(results[name][0] for name in ("histograms", "values", "band")),
            removed=results["removed"][0, 1],
            kept=results["kept"][0, 1],
            what=f"Noise of both kinds, {sizes.ratios[0]:g} : 1",
        ),
    )
    last = results["accuracy"][..., -1]
    title = finding(
        "Clients that filter by loss",
        last[:, TRAINED.index("cross-fitted")],
        "clients that do not",
        last[:, TRAINED.index("no selection")],
        "accuracy",
        ".1%",
    )
    return Chapter(title=title, blocks=blocks, data=results)
