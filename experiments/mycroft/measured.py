"""Measurements for each claim on Mycroft, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from experiments._kit.claims import Measured
from experiments._kit.scenes.owner import CHECKPOINT
from experiments._kit.scenes.ranking import firsts
from experiments._kit.scenes.spoiling import SPOILT
from experiments._kit.scenes.trainer import Sizes

from . import paper
from .choosing import PUBLISHED, SELECTORS, SPACES
from .comparing import compared, defined, points
from .ranking import METHODS
from .run import Mycroft
from .spurious import Spurious
from .starved import FOREIGN, Starved
from .tabular.measured import on_other_paths, on_other_rows, on_paths, on_rows
from .tabular.select import OURS
from .variants import ALL, ANSWERS, WAYS

NEAR, ENOUGH = 5, 83
"""Bounds of words: points by which accuracies differ little, and the per cent of full
information's accuracy that the paper reaches with its largest budget."""
LARGEST = paper.BUDGETS[-1]
"""That budget."""


class Setting(NamedTuple):
    """Accuracies on held-out hard samples in one experiment with budgets.

    Attributes:
        where: On which data.
        scale: Its size, and its model.
        found: The experiment.
    """

    where: str
    scale: str
    found: Starved | Spurious

    def by(self, how: str) -> np.ndarray:
        """Return the accuracy with a selector's choice by budget, `[S, B]`."""
        return self.found.accuracy[:, SELECTORS.index(how), :, 0]

    def ahead(self) -> np.ndarray:
        """Return how far Mycroft as published is above random, `[S, B]`."""
        return self.found.published[..., 0] - self.by("random")

    def about(self) -> dict[str, str]:
        """Name data and scale, as fields of `Measured`."""
        return {"where": self.where, "scale": self.scale}


def on_claims(result: Mycroft) -> Iterator[Measured]:
    """Yield the measurements for the paper's claims, by its own methods."""
    for setting in useful_settings(result):
        yield from on_choice(setting)
    yield from _noise(result)
    yield from _design(result)
    yield _ranking(result)
    if result.tabular is not None:
        yield from on_rows(result.tabular)
    if result.paths is not None:
        yield from on_paths(result.paths)


def on_ours(result: Mycroft) -> Iterator[Measured]:
    """Yield the measurements of our own methods, and in other settings."""
    alike = [*_starved_settings(result)]
    for setting in (*useful_settings(result), *alike):
        yield from on_methods(setting)
    for setting in alike:
        yield on_one_source(setting)
    yield from _on_stripes(result)
    if result.tabular is not None:
        yield from on_other_rows(result.tabular)
    if result.paths is not None:
        yield on_other_paths(result.paths)
    if result.grown_paths is not None:
        yield from on_paths(result.grown_paths, OURS)
        yield on_other_paths(result.grown_paths, OURS)


def on_methods(setting: Setting) -> Iterator[Measured]:
    """Yield mean differences over budgets between our methods and the paper's."""
    retrieved, published = setting.by("retrieve"), setting.found.published[..., 0]
    for key, differences, what in (
        ("func_feat", setting.by("func_feat") - published, "ours less the paper's"),
        (
            "retrieve, random",
            retrieved - setting.by("random"),
            "retrieval less random",
        ),
        ("retrieve, Mycroft", retrieved - published, "retrieval less Mycroft"),
    ):
        mean, what = differences.mean(axis=1), f"{what}, all budgets"
        yield compared(key, mean, what, **setting.about())


def on_one_source(setting: Setting) -> Measured:
    """Measure Mycroft's lead where owner and trainer share a source."""
    mean, what = setting.ahead().mean(axis=1), "Mycroft less random, all budgets"
    return compared("one source", mean, what, **setting.about())


def useful_settings(result: Mycroft) -> Iterator[Setting]:
    """Yield the experiments in which most of an owner's samples are of little use.

    The paper's owners, and so its claims, have data of another source.
    """
    yield Setting(
        stripes(result),
        f"{_scale(result.backgrounds)}, a tenth of {result.backgrounds.offered:,} "
        "samples of use",
        result.spurious,
    )
    if result.foreign is not None:
        yield Setting(
            "MNIST, the owner's digits from another source",
            f"MLP, {FOREIGN.side}×{FOREIGN.side} pixels",
            result.foreign,
        )


def _starved_settings(result: Mycroft) -> Iterator[Setting]:
    for name, experiment in result.starved.items():
        yield Setting(title(name), _scale(result.sizes), experiment)


def on_choice(setting: Setting) -> Iterator[Measured]:
    """Yield Mycroft's lead at each budget, and its accuracy at the largest."""
    experiment, leads = setting.found, setting.ahead().T
    words = ", ".join(
        f"{points(line)} with {budget}"
        for line, budget in zip(leads, experiment.budgets, strict=True)
    )
    yield Measured(
        key="budgets",
        values=leads,
        said=f"Mycroft less random: {words}",
        **setting.about(),
    )
    for b in np.flatnonzero(experiment.budgets == LARGEST):
        reached, full = (
            experiment.published[:, b, 0],
            experiment.everything[:, 0],
        )
        yield Measured(
            key="full",
            values=reached - ENOUGH / 100 * full,
            said=f"{reached.mean():.1%} and {full.mean():.1%}",
            **setting.about(),
        )


def _noise(result: Mycroft) -> Iterator[Measured]:
    cases, clean = result.cases, SPOILT.index("clean")
    ours = cases.published[..., 0]
    random = cases.by_spoiling[:, :, SELECTORS.index("random"), 0]
    about = _about(result, "all of the owner's samples spoilt")
    for state in paper.DROPS:
        pair = [clean, SPOILT.index(state)]
        yield from on_noise(state, ours[:, pair], random[:, pair], **about)


def on_noise(
    state: str, ours: np.ndarray, random: np.ndarray, **about: Any
) -> Iterator[Measured]:
    """Yield losses, and the remaining lead: a choice near zero loses little.

    Args:
        state: How the owner's samples are spoilt, a key of `paper.DROPS`.
        ours: Accuracies by Mycroft with clean samples and with spoilt ones, `[S, 2]`.
        random: By a random choice, `[S, 2]`.
        **about: Further fields of `Measured`.
    """
    lost, by_random = (
        100 * (ours[:, 0] - ours[:, 1]),
        100 * (random[:, 0] - random[:, 1]),
    )
    means, of_random = 100 * ours.mean(axis=0), 100 * random.mean(axis=0)
    yield compared(
        f"cost, {state}",
        (lost - by_random) / 100,
        f"losses {lost.mean():.1f} of {means[0]:.1f} and {by_random.mean():.1f} of "
        f"{of_random[0]:.1f}; difference",
        **about,
    )
    yield compared(
        f"lead, {state}",
        ours[:, 1] - random[:, 1],
        f"{means[1]:.1f} and {of_random[1]:.1f}; difference",
        **about,
    )


def _design(result: Mycroft) -> Iterator[Measured]:
    spurious, cases = result.spurious, result.cases
    b = int(np.argmin(np.abs(spurious.budgets - 32)))
    gradients = SPACES.index("grad_match")
    by_step = spurious.useful_by_checkpoint[:, gradients, :, b]
    yield compared(
        "checkpoint",
        by_step[:, CHECKPOINT] - by_step[:, -1],
        f"useful after {spurious.steps[CHECKPOINT]} less after {spurious.steps[-1]} "
        "steps",
        **_about(result, f"{spurious.budgets[b]} samples"),
    )
    about = _about(result, f"{cases.budget} samples")
    tuned, scratch = cases.tuned[:, 1, 0], cases.retrained[:, 1, 0]
    yield compared("tuning", tuned - scratch, "fine-tuned less from scratch", **about)
    clean = cases.by_spoiling[:, 0, SELECTORS.index("grad_match"), 0]
    other = cases.other_model[:, gradients, 0]
    yield compared("architecture", other - clean, "MLP less CNN", **about)


def _ranking(result: Mycroft) -> Measured:
    owners = result.owners
    ours = np.array(
        [
            rank_correlation(accuracies, full)
            for accuracies, full in zip(
                owners.published, owners.everything, strict=True
            )
        ]
    )
    random_index = METHODS.index("random")
    random = owners.spearman[:, random_index]
    known = np.isfinite(ours - random)
    means = [
        f"{values[known].mean():.2f}" if known.any() else "undefined"
        for values in (ours, random)
    ]
    hits = [
        firsts(values, owners.everything)
        for values in (owners.published, owners.accuracy[:, random_index])
    ]
    return Measured(
        key="owners",
        where=f"{stripes(result)}, five owners",
        scale=f"{_scale(result.backgrounds)}, {owners.budget} samples",
        values=defined(ours - random),
        said=f"Spearman {means[0]} and {means[1]}; the best owner first in {hits[0]} "
        f"and {hits[1]} of {len(ours)} runs",
    )


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Compute Spearman's correlation, NaN where one of both is constant."""
    from scipy.stats import rankdata

    if not np.ptp(a) or not np.ptp(b):
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def _on_stripes(result: Mycroft) -> Iterator[Measured]:
    """Yield other ways to match, small requests and answers, beside the published."""
    near, random = result.cases.unlabelled[..., 0].T
    variants = result.variants
    main = _about(result, f"{variants.main} samples")
    yield compared("unlabelled", near - random, "retrieval less random", **main)
    everywhere = _about(result, "all budgets")
    for key, what in (
        ("equation 2", "the equation's"),
        ("two layers", "two layers'"),
        ("craig", "CRAIG's"),
    ):
        gain = (
            variants.accuracy[:, ALL.index(key)]
            - variants.accuracy[:, ALL.index(PUBLISHED)]
        )
        what = f"{what} less the code's"
        yield compared(key, gain.mean(axis=1), what, **everywhere)
    mycroft, by_chance = (
        variants.by_hard[:, WAYS.index(way)] for way in (PUBLISHED, "random")
    )
    lead = mycroft[:, 0] - by_chance[:, 0]
    yield compared("few", lead, "Mycroft less random", **main)
    lost, what = (
        mycroft[:, 0] - mycroft[:, -1],
        f"{variants.n_hard[0]} less {variants.n_hard[-1]}",
    )
    yield compared("few, all", lost, what, **main)
    for i, name in enumerate(ANSWERS[1:], 1):
        lost = variants.answers[:, i] - variants.answers[:, 0]
        yield compared(f"answer, {name}", lost, "spoilt less as it is", **main)


def title(data: str) -> str:
    """Name a data set for a reader."""
    return {"fashion_mnist": "Fashion-MNIST", "mnist": "MNIST"}.get(data, data)


def stripes(result: Mycroft) -> str:
    """Name the data of a trainer that lacks some backgrounds."""
    name = next(iter(result.starved))
    return f"{title(name)} before stripes"


def _about(result: Mycroft, amount: str) -> dict[str, str]:
    scale = f"{_scale(result.backgrounds)}, {amount}"
    return {"where": stripes(result), "scale": scale}


def _scale(sizes: Sizes) -> str:
    return f"{sizes.net.upper()}, {sizes.side}×{sizes.side} pixels"
