"""The study of KNN-Shapley in miniature: experiments, one file for each and seed."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments._kit.scenes.samples import digits
from experiments._kit.seeds import Job, Work, Workers, each_seed, stacked
from experiments._kit.store import remembered
from jaxsel.tasks import Curves

from .cases import FULL, Sizes, accelerated, applications
from .curves import unpacked
from .data import LARGE, pictures, texts, texts_there
from .embeddings import VALUED, images_seed, texts_seed
from .images import ENCODERS, FIRST, encoded, encoders_there
from .nearest import CurveSizes, nearest_seed
from .networks import FULL_NETWORKS, SCENES, NetworkSizes, networks_seed
from .order import order_seed
from .pretrained import PretrainedSizes, pretrained_seed
from .ranks import FULL_RANKS, RankSizes, ranks_seed
from .runtime import FULL_RUNTIME, RuntimeSizes, measure_runtime
from .sizes import DomainSizes, sizes_seed

OTHERS = (
    "order",
    "ranks",
    "embeddings-images",
    "embeddings-texts",
    "nearest",
    "domain-sizes",
    "networks",
    "pretrained",
)
"""Experiments with arrays as results; applications have curves."""
CURVES, DOMAINS, FEATURES = CurveSizes(), DomainSizes(), PretrainedSizes()
EMBEDDED, _VALIDATION = 500, 300


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Results of the study's experiments, for each of S seeds.

    Attributes:
        seeds: `[S]`.
        full: Whether these are the larger experiments.
        sizes: Sizes of the applications.
        rank_sizes: Sizes of the comparison of ranks.
        network_sizes: Sizes of the comparison with retrained networks.
        applications: Curves, by application.
        ranks: Results of `ranks_seed`, stacked on a first axis of seeds.
        embeddings: "images" and, where there are texts, "texts": results of
            `images_seed` or `texts_seed`, stacked likewise.
        order: Results of `order_seed`, stacked likewise.
        nearest: Results of `nearest_seed`, stacked likewise.
        domain_sizes: Results of `sizes_seed`, stacked likewise.
        networks: Results of `networks_seed`, stacked likewise.
        pretrained: Results of `pretrained_seed`, stacked likewise; empty where the
            encoder of images is not prepared.
        runtime: Result of `measure_runtime`, from a separate run.
        accelerated: Whether networks were trained again for values too.
    """

    seeds: np.ndarray
    full: bool
    sizes: Sizes
    rank_sizes: RankSizes
    network_sizes: NetworkSizes
    applications: Mapping[str, Curves]
    ranks: Mapping[str, np.ndarray]
    embeddings: Mapping[str, Mapping[str, np.ndarray]]
    order: Mapping[str, np.ndarray]
    nearest: Mapping[str, np.ndarray]
    domain_sizes: Mapping[str, np.ndarray]
    networks: Mapping[str, np.ndarray]
    pretrained: Mapping[str, np.ndarray]
    runtime: Mapping[str, np.ndarray]
    accelerated: bool


def run_study(
    folder: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = tuple(range(10)),
    full: bool = False,
    progress: bool = False,
    workers: Workers | None = None,
) -> Study:
    """Run the study's experiments in miniature, on real data.

    Every experiment writes its results for every seed to a file as soon as it has them,
    and what is there already is read: a killed run goes on where it was. Runtimes are
    measured at the end, with nothing beside them.

    Args:
        folder: Where those files are, or will be, in "default" or "full".
        seeds: Each deals the data, and draws all else, anew.
        full: Whether to value 1000 points rather than 300, and to sample more.
        progress: Whether to show a progress bar.
        workers: Where all but the runtimes run; on threads of this process if None.

    Returns:
        Curves of the applications, rank correlations, top classes, and runtimes.

    Raises:
        ValueError: If there are no seeds.
        FileNotFoundError: If MNIST, Fashion-MNIST or Adult is not prepared; names the
            command that does it. Posts, reviews, and encoders of texts and images may
            be missing: their experiments are left out.

    References:
        Jia et al., Scalability vs. utility: do we have to sacrifice one for the other
        in data importance quantification?, CVPR 2021.
    """
    sizes, ranks, times = (
        (FULL, FULL_RANKS, FULL_RUNTIME)
        if full
        else (Sizes(), RankSizes(), RuntimeSizes())
    )
    folder = Path(folder) / ("full" if full else "default")
    about = {
        "full": full,
        "sizes": dataclasses.asdict(sizes),
        "ranks": dataclasses.asdict(ranks),
        "embedded": [EMBEDDED, _VALIDATION],
        "nearest": CURVES._asdict(),
        "domains": DOMAINS._asdict(),
    }

    features = {
        "encoders": encoders_there(),
        "features": [FEATURES.n, FEATURES.n_val, dataclasses.asdict(FEATURES.samples)],
    }

    def file(name: str, seed: int) -> tuple[Path, dict[str, Any]]:
        settings = about | {"seed": seed}
        if name == "networks":
            settings["networks"] = [*network_sizes(full), texts_there()]
        if name in ("embeddings-images", "pretrained"):
            settings |= features
        return folder / f"{name}-{seed}.npz", settings

    results = each_seed(
        Work(_jobs, (sizes, ranks, full, progress)),
        seeds,
        file,
        label="Experiments",
        progress=progress,
        workers=workers,
    )
    runtime = remembered(
        folder / "runtime.npz",
        {"runtime": times},
        lambda: measure_runtime(pictures("mnist"), times),
    )
    return assemble(results, seeds, runtime, full=full, sizes=sizes, rank_sizes=ranks)


def network_sizes(full: bool) -> NetworkSizes:
    """Return the sizes of the comparison with retrained networks."""
    return FULL_NETWORKS if full else NetworkSizes()


def _jobs(sizes: Sizes, ranks: RankSizes, full: bool, progress: bool) -> dict[str, Job]:
    return experiments(sizes, ranks, full=full, progress=progress)


def experiments(
    sizes: Sizes, ranks: RankSizes, *, full: bool, progress: bool = False
) -> dict[str, Job]:
    """Return the job of each experiment, a function of the seed, by name."""
    with_texts = texts_there()
    read, eights = functools.cache(pictures), functools.cache(digits)
    embedded = {"n": EMBEDDED, "n_val": _VALIDATION}
    encoders, six = encoders_there(), None
    by_scene = dict(
        zip(SCENES[:3], (eights(), read("mnist"), read("mnist")), strict=True)
    )
    if len(encoders) == len(ENCODERS):  # before threads ask for it
        six = encoded("fashion_mnist", encoders, classes=VALUED, progress=progress)
    jobs: dict[str, Job] = {
        **applications(sizes, with_texts=with_texts),
        "ranks": lambda seed: ranks_seed(read("mnist"), ranks, seed),
        "embeddings-images": lambda seed: images_seed(
            read("fashion_mnist", LARGE),
            read("mnist", LARGE),
            six,
            **embedded,
            seed=seed,
        ),
        "order": lambda seed: order_seed(seed, full=full),
        "nearest": lambda seed: nearest_seed(read("fashion_mnist"), CURVES, seed),
        "domain-sizes": lambda seed: sizes_seed(
            read("mnist", crop=2), eights(), DOMAINS, seed
        ),
        "networks": lambda seed: networks_seed(by_scene, network_sizes(full), seed),
    }
    if FIRST in encoders:
        clothes, numbers = (
            encoded(name, (FIRST,), progress=progress)
            for name in ("fashion_mnist", "mnist")
        )
        jobs["pretrained"] = lambda seed: pretrained_seed(
            clothes, numbers, FEATURES, seed
        )
    if with_texts:
        parts = texts(progress=progress)  # before threads ask for them
        by_scene[SCENES[3]] = parts["MiniLM"]
        jobs["embeddings-texts"] = lambda seed: texts_seed(parts, **embedded, seed=seed)
    return jobs


def assemble(
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    seeds: Sequence[int],
    runtime: Mapping[str, np.ndarray],
    *,
    full: bool,
    sizes: Sizes,
    rank_sizes: RankSizes,
) -> Study:
    """Join the results of single seeds, by experiment, into one.

    Applications of one kind stand together.
    """
    prefix = "embeddings-"
    kind = lambda name: name.split("-")[0]
    kinds = [kind(name) for name in found]
    names = sorted(found, key=lambda name: kinds.index(kind(name)))
    return Study(
        seeds=np.asarray(seeds),
        full=full,
        sizes=sizes,
        rank_sizes=rank_sizes,
        network_sizes=network_sizes(full),
        applications={
            name: unpacked(found[name]) for name in names if name not in OTHERS
        },
        ranks=stacked(found["ranks"]),
        embeddings={
            name.removeprefix(prefix): stacked(runs)
            for name, runs in found.items()
            if name.startswith(prefix)
        },
        order=stacked(found["order"]),
        nearest=stacked(found["nearest"]),
        domain_sizes=stacked(found["domain-sizes"]),
        networks=stacked(found["networks"]),
        pretrained=stacked(found["pretrained"]) if "pretrained" in found else {},
        runtime=runtime,
        accelerated=accelerated(),
    )
