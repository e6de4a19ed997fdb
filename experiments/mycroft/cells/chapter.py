"""A cell of Mycroft as a chapter of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from experiments._kit.claims import Measured, claim_table, judge, matrix, untested_table
from experiments._kit.judge import Claim
from experiments._kit.scenes.owner import NAMES
from experiments._kit.words import spread
from experiments.mycroft import paper
from experiments.mycroft.choosing import SELECTORS
from experiments.mycroft.claims import CLAIMS, OURS
from experiments.mycroft.figures import AS_PUBLISHED, budget_figure
from experiments.mycroft.measured import (
    Setting,
    on_choice,
    on_methods,
    on_noise,
    on_one_source,
)
from experiments.mycroft.spurious import Spurious
from experiments.mycroft.starved import Starved
from jaxsel.report import Chapter, Heading, Table

from .run import CellResult

_ONE_SOURCE = "owner and trainer share the samples of one set"
_SPOILT = "permuted labels"
_CHOICE = "budgets", "full"


def paper_claims(result: CellResult) -> list[Claim]:
    """Judge the paper's claims: on the choice before stripes, on permuted labels."""
    keys = f"cost, {_SPOILT}", f"lead, {_SPOILT}", *_CHOICE
    stated = {key: CLAIMS[key] for key in keys}
    measured = [*_noise(result)]
    if result.spurious is not None:
        measured += on_choice(_stripes(result, result.spurious))
    else:
        because = f"before stripes {result.because}"
        for key in _CHOICE:
            stated[key] = dataclasses.replace(stated[key], because=because)
    return judge(stated, measured)


def own_claims(result: CellResult) -> list[Claim]:
    """Judge claims of ours, on methods and settings that the paper lacks."""
    measured = [
        measurement
        for setting in _settings(result)
        for measurement in on_methods(setting)
    ]
    measured.append(on_one_source(_starved(result)))
    return judge({row.key: OURS[row.key] for row in measured}, measured)


def cell_chapter(result: CellResult) -> Chapter:
    """Show accuracies by the way to choose, beside the paper's figures."""
    claims, ours, n = paper_claims(result), own_claims(result), len(result.seeds)
    untested = untested_table(claims, "Claims on which this cell does not bear.")
    shown: dict[str, Starved | Spurious] = {"starved classes": result.starved}
    if result.spurious is not None:
        shown["stripes"] = result.spurious
    return Chapter(
        title=f"Mycroft on {_name(result)}",
        blocks=[
            matrix(claims, "The paper's claims on this cell, by its own methods."),
            budget_figure(
                result.starved,
                "Starved classes: accuracy on held-out hard samples against the "
                "budget; bands are one standard deviation over seeds.",
            ),
            _words(result),
            claim_table(claims, "The paper's claims.", n_seeds=n),
            *([] if untested is None else [untested]),
            _table(shown),
            *(
                [
                    budget_figure(
                        result.spurious,
                        "Stripes: accuracy on held-out hard samples, all natural, "
                        "against the budget.",
                    )
                ]
                if result.spurious is not None
                else []
            ),
            Heading("Our own methods, and other settings"),
            claim_table(ours, "What the paper does not speak of.", n_seeds=n),
            Heading("How it was measured"),
            _method(result),
        ],
        data={
            "data": result.data,
            "target": result.target,
            "seeds": result.seeds,
            "sizes": dataclasses.asdict(result.sizes),
            "sizes_of_backgrounds": dataclasses.asdict(result.backgrounds),
            "permuted": result.permuted,
            **{
                name: dataclasses.asdict(experiment)
                for name, experiment in shown.items()
            },
            "claims": [dataclasses.asdict(claim) for claim in claims],
            "own_claims": [dataclasses.asdict(claim) for claim in ours],
        },
    )


def _name(result: CellResult) -> str:
    return f"{result.data}, {result.target}" if result.target else result.data


def _scale(result: CellResult) -> str:
    if result.target:
        return "linear heads on the target's features"
    side = result.sizes.side
    return f"CNNs, {side}×{side} pixels"


def _starved(result: CellResult) -> Setting:
    where = f"{_name(result)}, starved classes"
    return Setting(where, f"{_scale(result)}; {_ONE_SOURCE}", result.starved)


def _stripes(result: CellResult, spurious: Spurious) -> Setting:
    scale = f"{_scale(result)}, a tenth of {result.backgrounds.offered:,} of use"
    return Setting(f"{_name(result)} before stripes", scale, spurious)


def _settings(result: CellResult) -> Iterator[Setting]:
    yield _starved(result)
    if result.spurious is not None:
        yield _stripes(result, result.spurious)


def _noise(result: CellResult) -> Iterator[Measured]:
    """Yield the loss by permuted labels of the owner's, on held-out hard samples."""
    ours, random = np.moveaxis(result.permuted[..., 0], 2, 0)
    about = _starved(result)
    scale = f"{about.scale}, {result.sizes.main} samples"
    yield from on_noise(_SPOILT, ours, random, where=about.where, scale=scale)


def _words(result: CellResult) -> str:
    lines = [
        f"{setting.where}: {100 * setting.ahead().mean():+.1f}"
        for setting in _settings(result)
    ]
    theirs = [p for column in paper.VISION.values() for p in column if p is not None]
    lead = 100 * sum(a - b for a, b in theirs) / len(theirs)
    return (
        "Mycroft as published less random, mean over budgets, points of accuracy on "
        f"held-out hard samples. {'; '.join(lines)}; {lead:+.1f} in the paper's Table "
        "1 on food and dogs, where the owner has another source than the trainer."
    )


def _table(shown: dict[str, Starved | Spurious]) -> Table:
    rows = []
    for name, experiment in shown.items():
        for b, budget in enumerate(experiment.budgets):
            rows.append(
                (
                    f"{name.capitalize()}, {budget}",
                    spread(experiment.nothing[:, 0]),
                    spread(experiment.published[:, b, 0]),
                    *(
                        spread(experiment.accuracy[:, i, b, 0])
                        for i in range(len(SELECTORS))
                    ),
                    spread(experiment.everything[:, 0]),
                )
            )
    heads = [
        NAMES[how].capitalize() if how == "random" else NAMES[how] for how in SELECTORS
    ]
    return Table(
        columns=("Budget", "Nothing", AS_PUBLISHED, *heads, "Everything"),
        rows=rows,
        formats=("", *[".1%"] * 7),
        caption="Accuracy on held-out hard samples; mean ± standard deviation over "
        "seeds.",
    )


def _method(result: CellResult) -> str:
    sizes = result.sizes
    parts = [
        f"The trainer has {sizes.own} samples of each class, but "
        f"{max(1, round(sizes.kept * sizes.own))} of each of {sizes.weak} classes, "
        f"drawn by each seed; the owner has {sizes.offered:,} of all classes, of the "
        f"same source, where the paper's has another. Of {sizes.val:,} validation "
        "samples, those of the starved classes that the trainer's model fails on are "
        f"the hard ones: {sizes.shared} are shared, the others held out. Permuted "
        "labels are 70 % of the owner's. Training and test splits are dealt together."
    ]
    if result.target:
        parts.append(
            "Trainer and owner each train a linear head on the target's features, each "
            "column of them scaled; gradients are the head's. The paper's are of the "
            "last two layers of a ResNet-50, and its features Unicom's."
        )
    else:
        parts.append(
            "Trainer and owner train CNNs from scratch, where the paper's networks are "
            "pretrained."
        )
    if result.spurious is None:
        parts.append(f"Stripes are left out: {result.because}.")
    else:
        parts.append(
            f"Before stripes are the two largest classes, {result.backgrounds.own} of "
            "each the trainer's."
        )
    return " ".join(parts)
