"""A cell of Mycroft: starved classes, permuted labels and stripes on one set."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments._kit.reading import read_cell, read_images
from experiments._kit.scenes.networks import steps_for
from experiments._kit.scenes.owner import new_owner
from experiments._kit.scenes.spoiling import PERMUTED
from experiments._kit.scenes.starved import draw_starved
from experiments._kit.scenes.trainer import Samples, Sizes, take
from experiments._kit.seeds import free_programs, stacked
from experiments._kit.store import remembered
from experiments.mycroft.choosing import PUBLISHED, choose, shared_view
from experiments.mycroft.paper import BUDGETS
from experiments.mycroft.spurious import (
    SIZES as STRIPES,
    Encode,
    Spurious,
    spurious_seed,
)
from experiments.mycroft.starved import Starved, starved_seed
from jaxsel.data import permute_labels

SIZES = dataclasses.replace(Sizes(), side=16)
PAPER = dataclasses.replace(
    Sizes(), side=32, channels=(16, 32), budgets=BUDGETS, rate=3e-3
)
WAYS = (PUBLISHED, "random")
"""Ways to choose, compared by their losses through permuted labels."""

_WEAK = 0.3  # share of classes that are starved
_log = logging.getLogger("experiments")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellResult:
    """Results of a cell, for each of S seeds.

    Attributes:
        data: Name of the set.
        target: Name of its folder; "" for networks from scratch.
        seeds: `[S]`.
        sizes: How large the starved classes are.
        backgrounds: How large the experiment on stripes is.
        starved: Starved classes.
        permuted: Accuracy by `WAYS` on held-out hard and on test samples, the owner's
            labels right and permuted, `[S, 2, 2, 2]`.
        spurious: Stripes; None if they were left out.
        because: Why they were.
    """

    data: str
    target: str
    seeds: np.ndarray
    sizes: Sizes
    backgrounds: Sizes
    starved: Starved
    permuted: np.ndarray
    spurious: Spurious | None
    because: str = ""


class Read(NamedTuple):
    """Images and classes of a set.

    Attributes:
        images: `[n, side, side, c]`, in 0..1 or bytes.
        y: Classes, `[n]`.
        encode: Maps images to the networks' inputs; None for the images themselves.
        digest: Of the files read.
    """

    images: np.ndarray
    y: np.ndarray
    encode: Encode | None
    digest: str


def run_cell(
    folder: str | os.PathLike[str],
    *,
    data: str,
    target: str | None = None,
    paper: bool = False,
    seeds: Sequence[int] = tuple(range(8)),
    progress: bool = False,
) -> CellResult:
    """Choose for a trainer that lacks some classes, and for one that lacks backgrounds.

    Args:
        folder: Where results are kept; those that are there are read.
        data: A prepared set of TFDS, of images and classes.
        target: Folder of a ViT: trainer and owners have linear heads on its features.
            CNNs from scratch if None.
        paper: Whether to take the paper's budgets and all samples.
        seeds: Each deals the data, and draws all else, anew.
        progress: Show bars.

    Raises:
        FileNotFoundError: If the set is not prepared, or the folder lacks a file.
        ValueError: If there are no seeds, or the set can't serve.

    References:
        Sarwar et al., Mycroft: Towards Effective and Efficient External Data
        Augmentation, arXiv:2410.08432.
    """
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    folder, base = Path(folder), PAPER if paper else SIZES
    if target is not None:
        base = dataclasses.replace(base, net="linear", rate=1e-2)
    read = _read(data, target, base.side, progress)
    sizes, backgrounds = fitted(data, read.y, base, paper=paper)
    x, encode = read.images, None
    if read.encode is not None:
        x, encode = _scaled(read, read.encode, folder)
    _log.info(
        "%s",
        f"Trainers have {sizes.own} samples of a class, owners {sizes.offered:,} in "
        f"all, {sizes.val:,} validate. Each seed, of {len(seeds)}, trains "
        f"{5 * len(sizes.budgets) + 6} networks for starved classes, 11 for permuted "
        "labels, and as many before stripes as for starved classes",
    )
    jobs: dict[str, Callable[[int], Mapping[str, Any]]] = {
        "starved": functools.partial(starved_seed, (x, read.y), sizes),
        "permuted": functools.partial(permuted_seed, (x, read.y), sizes),
        "spurious": lambda seed: spurious_seed(
            (read.images, read.y),
            backgrounds,
            seed,
            pair=_largest(read.y),
            encode=encode,
        ),
    }
    about = {"read": read.digest, "sizes": dataclasses.asdict(sizes)}
    about["backgrounds"] = dataclasses.asdict(backgrounds)
    results: dict[str, list[Mapping[str, Any]]] = {name: [] for name in jobs}
    because = ""
    for seed in map(int, seeds):
        for name, job in jobs.items():
            if name == "spurious" and because:
                continue
            file, facts = folder / f"{name}-{seed}.npz", {**about, "seed": seed}
            try:
                result = remembered(file, facts, functools.partial(job, seed))
            except ValueError as error:  # too few samples that the trainer fails on
                if name != "spurious":
                    raise ValueError(
                        f"--data {data!r} is too small: {error}"
                    ) from error
                because = str(error)
                continue
            results[name].append(result)
            free_programs()
            _log.info("seed %d: %s is done", seed, name)
    spurious = None
    if not because:
        spurious = Spurious(
            budgets=np.asarray(backgrounds.budgets),
            steps=np.cumsum([0, *backgrounds.cycles]),
            **stacked(results["spurious"]),
        )
    return CellResult(
        data=data,
        target="" if target is None else Path(target).resolve().name,
        seeds=np.asarray(seeds),
        sizes=sizes,
        backgrounds=backgrounds,
        starved=Starved(
            budgets=np.asarray(sizes.budgets), **stacked(results["starved"])
        ),
        permuted=stacked(results["permuted"])["accuracy"],
        spurious=spurious,
        because=because,
    )


def permuted_seed(data: Samples, sizes: Sizes, seed: int) -> dict[str, np.ndarray]:
    """Choose for starved classes by right labels of the owner's, and by permuted ones.

    Returns:
        "accuracy", `[2, 2, 2]`: see `CellResult.permuted`.
    """
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(4)]
    scene = draw_starved(data, sizes, keys[0])
    x, y = scene.offer
    wrong = np.asarray(permute_labels(keys[3], y, PERMUTED)[0])
    accuracy = []
    for labels in (y, wrong):
        owner = new_owner((x, labels), scene.n_classes, sizes, keys[1])
        view = shared_view(owner, scene.trainer.shared)
        chosen = [choose(how, view, sizes.main, keys[2]) for how in WAYS]
        gain = scene.trainer.gain
        accuracy.append([gain(take(owner.samples, rows)) for rows in chosen])
    return {"accuracy": np.array(accuracy)}


def fitted(
    data: str, y: np.ndarray, sizes: Sizes, *, paper: bool
) -> tuple[Sizes, Sizes]:
    """Return sizes, of starved classes and of stripes, that a set has samples for.

    Trainer and owner have three tenths each of a class with `paper`; else as much of it
    as on MNIST, and a tenth and three tenths at most.

    Args:
        data: Name of the set, for messages.
        y: Its classes.
        sizes: How large it should be.
        paper: Whether to take all samples.

    Raises:
        ValueError: If the set is too small.
    """
    counts = np.bincount(y)
    least, n_classes, n = int(counts.min()), len(counts), len(y)
    n_own, share = round(0.3 * least), round(0.3 * least)
    if not paper:
        n_own, share = min(sizes.own, round(0.1 * least)), min(600, share)
    if n_own < _FEWEST:
        raise ValueError(
            f"--data {data!r} must hold {10 * _FEWEST} samples or more of each of its "
            f"{n_classes} classes, got {least} of class {int(counts.argmin())}"
        )
    test = round(0.1 * n) if paper else min(sizes.test, round(0.1 * n))
    remaining = n - n_classes * (n_own + share) - test
    offered = n_classes * share
    grown = max(1.0, offered / sizes.offered)
    larger = dataclasses.replace(
        sizes,
        own=n_own,
        offered=offered,
        test=test,
        val=remaining if paper else min(sizes.val, remaining),
        weak=max(1, round(_WEAK * n_classes)),
        first=steps_for(n_classes * n_own, 4 * sizes.epochs, sizes.first),
        cycles=tuple(round(grown * steps) for steps in sizes.cycles),
    )
    part = min(1.0, 2 * int(np.sort(counts)[-2]) / _STRIPED)
    stripes = dataclasses.replace(
        sizes,
        **{
            name: int(part * getattr(STRIPES, name))
            for name in ("own", "val", "test", "offered")
        },
        shared=STRIPES.shared,
    )
    return larger, stripes


_FEWEST = 10  # samples of a class that a trainer has
_STRIPED = 2 * (STRIPES.own + STRIPES.offered) + STRIPES.val + STRIPES.test


def _scaled(read: Read, raw: Encode, folder: Path) -> tuple[np.ndarray, Encode]:
    """Return features with columns of one scale, and their encoder.

    Features come in units of their own, which one rate would not suit.
    """
    facts = {"read": read.digest}
    kept = remembered(folder / "features.npz", facts, lambda: {"x": raw(read.images)})
    mean, scale = kept["x"].mean(0), kept["x"].std(0) + 1e-6
    return (kept["x"] - mean) / scale, lambda images: (raw(images) - mean) / scale


def _largest(y: np.ndarray) -> tuple[int, int]:
    """Return the two largest classes."""
    first, second = np.argsort(-np.bincount(y), kind="stable")[:2]
    return int(first), int(second)


def _read(data: str, target: str | None, side: int, progress: bool) -> Read:
    if target is None:
        dataset, x = read_images(data, side=side, progress=progress)
        y = np.concatenate([dataset.train.y, dataset.test.y]).astype(int)
        return Read(x[..., 0] if x.shape[-1] == 1 else x, y, None, dataset.digest)
    cell = read_cell(data, target, kind="image", progress=progress)
    return Read(cell.images(), cell.y.astype(int), cell.encoded, cell.digest)
