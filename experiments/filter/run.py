"""Federated loss filtering in miniature: experiments, one file for each and seed."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments._kit.scenes.federation import KINDS, FilterSizes
from experiments._kit.scenes.thresholds import TRAINED, variant_seed
from experiments._kit.scenes.trainer import Samples, images
from experiments._kit.seeds import Job, Work, Workers, each_seed, stacked
from jaxsel.data import load

from . import writers
from .best import SHARES, best_seed
from .clients import PLAIN, clients_seed
from .runs import noise_seed, questions_seed

FULL_FILTER = FilterSizes(rounds=100)
"""With `--full`: more rounds."""

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "cnn": {"net": "cnn"},
}
"""Variants of training under strong open-set noise; the second with `--full`."""

BEST = ("open", "closed")
"""Kinds of noise for which other thresholds are tried beside the paper's."""

WRITTEN = "mnist"
"""The target whose samples have handwriting."""

_OTHERS = {
    "mnist": ("fashion_mnist", "digits"),
    "fashion_mnist": ("mnist", "digits"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filtering:
    """Results of the filtering experiments, for each of S seeds.

    Attributes:
        seeds: `[S]`.
        full: Whether these are the larger experiments.
        sizes: Sizes of the experiments.
        others: Names of the data sets that open-set noise comes from, by target.
        noise: Results of `noise_seed`, stacked on a first axis of seeds, by target
            and kind of noise.
        questions: Results of `questions_seed`, stacked likewise, by target.
        variants: Results of `variant_seed`, stacked likewise, by target and name in
            `VARIANTS`.
        best: Results of `best_seed`, stacked likewise, by target and kind in `BEST`.
        writers: Results of `writers_seed`, stacked likewise.
        plain: As `noise`, by plain averaging, which is the paper's.
        clients: Results of `clients_seed`, stacked likewise.
    """

    seeds: np.ndarray
    full: bool
    sizes: FilterSizes
    others: Mapping[str, tuple[str, ...]]
    noise: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
    questions: Mapping[str, Mapping[str, np.ndarray]]
    variants: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
    best: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
    writers: Mapping[str, np.ndarray]
    plain: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
    clients: Mapping[str, np.ndarray]


def run_filtering(
    folder: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = tuple(range(5)),
    full: bool = False,
    progress: bool = False,
    workers: Workers | None = None,
) -> Filtering:
    """Run the experiments of federated loss filtering in miniature, on real data.

    Every experiment writes its results for every seed to a file as soon as it has them,
    and what is there already is read: a killed run goes on where it was.

    Args:
        folder: Where those files are, or will be, in "default" or "full".
        seeds: Each deals the data, and draws noise and weights, anew.
        full: Whether to take Fashion-MNIST for the task as well, train for longer,
            and train CNNs too.
        progress: Whether to show a progress bar.
        workers: Where they run; on threads of this process if None.

    Returns:
        Shares of noise removed and clean samples kept, and accuracies by rounds.

    Raises:
        ValueError: If there are no seeds.
        FileNotFoundError: If MNIST or Fashion-MNIST is not prepared; names the command
            that does it.

    References:
        Tuor, Wang, Ko, Liu and Leung, Overcoming Noisy and Irrelevant Data in Federated
        Learning, ICPR 2021.
    """
    sizes = FULL_FILTER if full else FilterSizes()
    targets = (*_OTHERS,) if full else ("mnist",)
    variants = (*VARIANTS,) if full else ("plain",)
    folder = Path(folder) / ("full" if full else "default")
    about = {
        "sizes": dataclasses.asdict(sizes),
        "others": _OTHERS,
        "trained": TRAINED,
        "variants": VARIANTS,
        "shares": SHARES,
        "writers": [writers.STYLES, writers.FEW],
    }

    def file(name: str, seed: int) -> tuple[Path, dict[str, Any]]:
        return folder / f"{name}-{seed}.npz", about | {"seed": seed}

    results = each_seed(
        Work(experiments, (sizes, targets, variants)),
        seeds,
        file,
        label="Experiments",
        progress=progress,
        workers=workers,
    )
    return Filtering(
        seeds=np.asarray(seeds),
        full=full,
        sizes=sizes,
        others={target: _OTHERS[target] for target in targets},
        noise={
            target: {kind: stacked(results[f"{target}-{kind}"]) for kind in KINDS}
            for target in targets
        },
        questions={
            target: stacked(results[f"{target}-questions"]) for target in targets
        },
        variants={
            target: {name: stacked(results[f"{target}-{name}"]) for name in variants}
            for target in targets
        },
        best={
            target: {kind: stacked(results[f"{target}-best-{kind}"]) for kind in BEST}
            for target in targets
        },
        writers=stacked(results["writers"]),
        plain={
            target: {kind: stacked(results[f"{target}-plain-{kind}"]) for kind in KINDS}
            for target in targets
        },
        clients=stacked(results["clients"]),
    )


def experiments(
    sizes: FilterSizes, targets: Sequence[str], variants: Sequence[str]
) -> dict[str, Job]:
    """Return the job of each experiment, a function of the seed, by name."""
    read = functools.cache(lambda name: _read(name, sizes.side))

    def job(
        run: Callable[..., Any], target: str, sizes: FilterSizes = sizes, **options: Any
    ) -> Job:
        def seeded(seed: int) -> Mapping[str, Any]:
            others = [read(name) for name in _OTHERS[target]]
            return run(read(target), others, sizes, seed, **options)

        return seeded

    jobs = {}
    plain = dataclasses.replace(sizes, **PLAIN)
    for target in targets:
        for kind in KINDS:
            name = f"{target}-plain-{kind}"
            jobs[name] = job(noise_seed, target, plain, kind=kind)
            jobs[f"{target}-{kind}"] = job(noise_seed, target, kind=kind)
        jobs[f"{target}-questions"] = job(questions_seed, target)
        for name in variants:
            changed = dataclasses.replace(sizes, **VARIANTS[name])
            jobs[f"{target}-{name}"] = job(variant_seed, target, changed)
        for kind in BEST:
            jobs[f"{target}-best-{kind}"] = job(best_seed, target, kind=kind)
    jobs["writers"] = job(writers.writers_seed, WRITTEN)
    jobs["clients"] = job(clients_seed, WRITTEN)
    return jobs


def _read(name: str, side: int) -> Samples:
    if name != "digits":
        return images(load(name, split="train"), side)
    x, y = images(load(name), 8)
    return np.asarray(jax.image.resize(x, (len(x), side, side), "linear")), y
