"""A cell of filtering: one set as the task, others as noise, clients of one class."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments._kit.reading import channels_alike, read_images
from experiments._kit.scenes.federation import KINDS, FilterSizes
from experiments._kit.scenes.thresholds import begin
from experiments._kit.scenes.trainer import Samples
from experiments._kit.seeds import free_programs, stacked
from experiments._kit.store import remembered
from experiments.filter.clients import PLAIN
from experiments.filter.runs import noise_seed

SIZES = dataclasses.replace(FilterSizes(), **PLAIN)
"""Clients average plainly, as in the paper."""
PAPER = dataclasses.replace(SIZES, net="cnn", side=32, channels=(16, 32), rounds=100)
"""With `--paper`: its kind of model. Its pixels and rounds are not at hand."""
RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Steps of the clients' SGD to choose from, by clean samples alone."""
SEARCHED = 100
"""The seed whose deal they are chosen on."""
BUILT_IN = ("fashion_mnist", "mnist")
"""Where open-set noise comes from, unless it is named."""

_log = logging.getLogger("experiments")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellResult:
    """Results of a cell, for each of S seeds.

    Attributes:
        data: Name of the task's set.
        others: Names of the sets that open-set noise comes from.
        seeds: `[S]`.
        sizes: Sizes of the cell.
        noise: Results of `noise_seed`, stacked on a first axis of seeds, by kind.
        clean: Results of `clean_seed`, stacked likewise.
    """

    data: str
    others: tuple[str, ...]
    seeds: np.ndarray
    sizes: FilterSizes
    noise: Mapping[str, Mapping[str, np.ndarray]]
    clean: Mapping[str, np.ndarray]


def run_cell(
    folder: str | os.PathLike[str],
    *,
    data: str,
    others: Sequence[str] | None = None,
    paper: bool = False,
    seeds: Sequence[int] = tuple(range(5)),
    progress: bool = False,
) -> CellResult:
    """Filter three kinds of noise among the samples of a prepared set.

    Args:
        folder: Where results are kept; those that are there are read.
        data: A prepared set of TFDS, of images and classes.
        others: Prepared sets that open-set noise comes from; `BUILT_IN`, but for the
            task's, if None. A class of theirs counts as the task's of that number,
            modulo the number of classes.
        paper: Whether to take all samples and a CNN.
        seeds: Each deals the data, and draws noise and weights, anew.
        progress: Show bars.

    Raises:
        FileNotFoundError: If a set is not prepared.
        ValueError: If there are no seeds, or a set can't serve.

    References:
        Tuor, Wang, Ko, Liu and Leung, Overcoming Noisy and Irrelevant Data in Federated
        Learning, ICPR 2021.
    """
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    names = tuple(others or (name for name in BUILT_IN if name != data))
    if data in names:
        raise ValueError(f"--others must be other sets than --data, got {data!r}")
    sizes = PAPER if paper else SIZES
    task, noise, digests = _read(data, names, sizes.side, progress)
    sizes = fitted(data, task, noise, sizes, most=None if paper else sizes.clean)
    _log.info(
        "%s",
        f"{sizes.clients} clients have {sizes.clean:,} clean samples; {sizes.test:,} "
        f"are tested on. Each seed, of {len(seeds)}, trains clients for "
        f"{1 + 4 * len(KINDS) * len(sizes.ratios)} times {sizes.rounds} rounds",
    )
    facts = {"sizes": dataclasses.asdict(sizes), "sets": [data, *names, *digests]}
    tried = remembered(
        Path(folder) / "rates.npz",
        {**facts, "rates": RATES, "seed": SEARCHED},
        lambda: {"accuracy": searched(task, noise, sizes)},
    )
    rate = RATES[int(np.argmax(tried["accuracy"]))]
    _log.info("a rate of %g is the best of %d on clean samples", rate, len(RATES))
    sizes = dataclasses.replace(sizes, rate=rate)
    about = {"sizes": dataclasses.asdict(sizes), "sets": [data, *names, *digests]}
    results: dict[str, list[Mapping[str, Any]]] = {}
    for seed in seeds:
        for kind in (*KINDS, "clean"):

            def run(kind: str = kind, seed: int = int(seed)) -> Mapping[str, Any]:
                if kind == "clean":
                    return clean_seed(task, noise, sizes, seed)
                return noise_seed(task, noise, sizes, seed, kind=kind)

            file = Path(folder) / f"{kind}-{seed}.npz"
            result = remembered(file, {**about, "seed": int(seed)}, run)
            results.setdefault(kind, []).append(result)
            free_programs()
            _log.info("seed %d: %s is done", seed, kind)
    return CellResult(
        data=data,
        others=names,
        seeds=np.asarray(seeds),
        sizes=sizes,
        noise={kind: stacked(results[kind]) for kind in KINDS},
        clean=stacked(results["clean"]),
    )


def searched(task: Samples, noise: Sequence[Samples], sizes: FilterSizes) -> np.ndarray:
    """Return the last accuracy with clean samples alone at each of `RATES`."""
    last = []
    for rate in RATES:
        start = begin(task, noise, dataclasses.replace(sizes, rate=rate), SEARCHED)
        scene = start.scene("open", max(sizes.ratios))
        last.append(start.learn(scene, scene.clean)[0].scores[-1])
    return np.nan_to_num(np.array(last), nan=-1.0)


def clean_seed(
    task: Samples, noise: Sequence[Samples], sizes: FilterSizes, seed: int
) -> dict[str, np.ndarray]:
    """Train on clean samples alone, and on the benchmark set alone.

    Returns:
        `rounds`, `[T]`; `ideal`, accuracy with clean samples alone, `[T]`; and
        `benchmark`, accuracy of the benchmark's model.
    """
    start = begin(task, noise, sizes, seed)
    scene = start.scene("open", max(sizes.ratios))
    run = start.learn(scene, scene.clean)[0]
    bench = start.train(scene.benchmark).net
    return {
        "rounds": run.rounds,
        "ideal": run.scores,
        "benchmark": np.array(bench.right(*scene.test).mean()),
    }


def fitted(
    data: str,
    task: Samples,
    noise: Sequence[Samples],
    sizes: FilterSizes,
    *,
    most: int | None,
) -> FilterSizes:
    """Reduce sizes to the samples that the sets hold.

    A clean sample is dealt with its share of the benchmark set, and with as many of
    wrong labels, or of other sets, as the largest ratio asks for.

    Args:
        data: Name of the task's set, for messages.
        task: Its samples.
        noise: Samples of the other sets.
        sizes: Sizes wanted.
        most: Clean samples at most.

    Raises:
        ValueError: If a client of each class can't have a clean sample.
    """
    n, strong = len(task[1]), max(sizes.ratios)
    offered = sum(len(y) for _, y in noise)
    test = min(sizes.test, n // 5)
    of_task = int((n - test - 2) / (1 + sizes.benchmark + strong))
    clean = min(of_task, int(offered / strong), most or of_task)
    n_classes, clients = int(task[1].max()) + 1, sizes.clients
    if n_classes > clients:
        raise ValueError(
            f"--data {data!r} must have at most {clients} classes, one for each "
            f"client, got {n_classes}"
        )
    if clean < clients:
        raise ValueError(
            f"--data {data!r} and --others must hold enough samples for {clients} "
            f"clients, {clients} clean ones and {strong:g} times as many of noise, got "
            f"{n} and {offered}"
        )
    return dataclasses.replace(sizes, clean=clean, test=test)


def _read(
    data: str, others: Sequence[str], side: int, progress: bool
) -> tuple[Samples, list[Samples], list[str]]:
    """Return the training samples of all sets, in one size and number of channels."""
    read = [
        read_images(name, side=side, tested=False, progress=progress)
        for name in (data, *others)
    ]
    n_classes = read[0][0].n_classes
    alike = channels_alike([x for _, x in read])
    samples = [
        (
            x[..., 0] if x.shape[-1] == 1 else x,
            (prepared.train.y % n_classes).astype(int),
        )
        for (prepared, _), x in zip(read, alike, strict=True)
    ]
    return samples[0], samples[1:], [prepared.digest for prepared, _ in read]
