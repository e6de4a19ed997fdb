"""A cell of the study: its applications on pixels, or on a target's features."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments._kit.reading import Cell, channels_alike, read_cell, read_images, unit
from experiments._kit.scenes.samples import Part
from experiments._kit.seeds import free_programs
from experiments._kit.store import remembered
from experiments.values.cases import (
    EXACT,
    FULL,
    Embed,
    Sizes,
    bought,
    marked,
    noisy,
    planted,
    summary,
)
from experiments.values.curves import packed, unpacked
from experiments.values.data import SIDE, project
from jaxsel.tasks import Curves

WIDTH = 64
"""Principal components of a target's features that all values see."""
SIZES = dataclasses.replace(Sizes(), width=WIDTH)
PAPER = dataclasses.replace(FULL, width=WIDTH)
"""With `--paper`: 1,000 points to train on, as in the study's figures 2a and 7a."""
FOREIGN = 3000, 0.03
"""With `--paper`: points, and the share of foreign ones, of the study's figure 8."""
PIXELS = 32
"""Along a side of images that are marked, where no target names its own."""
WORD = 20
"""Pixels along a side that the word "TEST" needs."""
START = 200
"""Points to start an acquisition with, and to score it by."""

_OTHER = 500  # rows that components are made of
_FOREIGN = 2000  # images of each other set that are read
_log = logging.getLogger("experiments")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellResult:
    """Results of a cell.

    Attributes:
        data: Name of the set.
        target: Name of its folder; "" for pixels.
        kind: "text" or "image".
        grey: Whether it holds images of one channel.
        others: Names of the sets that foreign images come from.
        seeds: `[S]`.
        sizes: Sizes of the applications.
        balanced: Whether points to summarise are of each class equally often.
        applications: Curves, by application.
    """

    data: str
    target: str
    kind: str
    grey: bool
    others: tuple[str, ...]
    seeds: np.ndarray
    sizes: Sizes
    balanced: bool
    applications: Mapping[str, Curves]


@dataclasses.dataclass(frozen=True)
class Read:
    """Samples to value, with the function that embeds them.

    Attributes:
        part: Images, or features of texts.
        foreign: Images of other sets, of the shape of these, `[m, ...]`, or None.
        embed: From samples to the features of all values, `[n, d]`.
        kind: "text" or "image".
        digest: Digest of the data read.
    """

    part: Part
    foreign: np.ndarray | None
    embed: Embed
    kind: str
    digest: str


def run_cell(
    folder: str | os.PathLike[str],
    *,
    data: str,
    target: str | None = None,
    others: Sequence[str] | None = None,
    paper: bool = False,
    seeds: Sequence[int] = tuple(range(10)),
    progress: bool = False,
) -> CellResult:
    """Run the study's applications on one set.

    Wrong labels, a summary and an acquisition; watermarks where there are images, of
    foreign images where other sets are named.

    Args:
        folder: Where results are kept; those that are there are read.
        data: A prepared set of TFDS: images with classes, or texts with `target`.
        target: Folder of a BERT, DistilBERT, RoBERTa or ViT, whose features are valued;
            pixels if None.
        others: Prepared sets of images that are planted among the set's.
        paper: Whether to take the study's numbers of points.
        seeds: Each deals the data, and draws all else, anew.
        progress: Show bars.

    Raises:
        FileNotFoundError: If a set is not prepared, or the folder lacks a file.
        ValueError: If there are no seeds, or a set can't serve.

    References:
        Jia et al., Scalability vs. utility, CVPR 2021, section 4.3 and appendix E.
    """
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    sizes, names = PAPER if paper else SIZES, tuple(others or ())
    if data in names:
        raise ValueError(f"--others must be other sets than --data, got {data!r}")
    most = FOREIGN[0] if paper and names else sizes.n
    read = read_samples(data, target, names, sizes, most=most, progress=progress)
    jobs, balanced = applications(read, sizes, paper=paper)
    _log.info(
        "%s",
        f"{len(read.part.y):,} samples are dealt to {len(jobs)} applications by each "
        f"seed, of {len(seeds)}: {sizes.n:,} are valued, {sizes.n_val:,} validate",
    )
    about = {"sizes": dataclasses.asdict(sizes), "read": read.digest, "paper": paper}
    results: dict[str, list[Mapping[str, Any]]] = {name: [] for name in jobs}
    for seed in seeds:
        for number, (name, job) in enumerate(jobs.items()):
            key = jax.random.fold_in(jax.random.key(int(seed)), number)
            result = remembered(
                Path(folder) / f"{name}-{seed}.npz",
                {**about, "seed": int(seed)},
                lambda job=job, key=key: packed(job(key)),
            )
            results[name].append(result)
            free_programs()
            _log.info("seed %d: %s is done", seed, name)
    return CellResult(
        data=data,
        target="" if target is None else Path(target).resolve().name,
        kind=read.kind,
        grey=read.part.x.shape[-1] == 1,
        others=names,
        seeds=np.asarray(seeds),
        sizes=sizes,
        balanced=balanced,
        applications={name: unpacked(runs) for name, runs in results.items()},
    )


def applications(
    read: Read, sizes: Sizes, *, paper: bool
) -> tuple[dict[str, Callable[[jax.Array], Curves]], bool]:
    """Return each application, a function of a key, and if the summary is balanced."""
    part, embed = read.part, read.embed
    counts = np.bincount(part.y)
    samples = sizes.two if len(counts) == 2 else sizes.samples
    sizes = dataclasses.replace(sizes, samples=samples)
    three = sizes.n + sizes.n_val + sizes.n_test
    balanced = three <= counts.min() * len(counts)
    options: Any = {"embed": embed, "embed_learner": True}
    jobs: dict[str, Callable[[jax.Array], Curves]] = {
        "noisy": lambda key: noisy(part, sizes, key, embed=embed),
        "summary": lambda key: summary(
            part, sizes, key, samples=samples, balanced=balanced, **options
        ),
        "acquisition": lambda key: bought(part, sizes, key, **options),
    }
    if read.kind == "text":
        return jobs, balanced
    learner = functools.partial(_embedded, embed)
    side, channels = part.x.shape[2:]
    word = channels > 1 and side >= WORD
    jobs["pattern"] = lambda key: marked(
        part,
        sizes,
        key,
        pattern="text" if word else "corner",
        size=max(1, side // 4),
        learner=learner,
        embed=embed,
    )
    if read.foreign is not None:
        foreign, (n, rate) = read.foreign, FOREIGN if paper else (sizes.n, 0.1)
        larger = dataclasses.replace(sizes, n=n)
        jobs["instance"] = lambda key: planted(
            part, foreign, larger, key, rate=rate, learner=learner, embed=embed
        )
    return jobs, balanced


def _embedded(
    embed: Embed,
    x: np.ndarray,
    y: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    key: jax.Array,
) -> float:
    """Train a logistic regression on embedded samples, and return its accuracy."""
    return EXACT(embed(x), y, embed(x_test), y_test, key)


def read_samples(
    data: str,
    target: str | None,
    others: Sequence[str],
    sizes: Sizes,
    *,
    most: int,
    progress: bool = False,
) -> Read:
    """Read a set and the others, and choose the embedding of their samples.

    Args:
        data: Name of the set.
        target: Folder of a target, or None.
        others: Names of other sets.
        sizes: Sizes of the applications.
        most: Training points of the largest.
        progress: Show bars.

    Raises:
        FileNotFoundError: If a set is not prepared, or the folder lacks a file.
        ValueError: If a set can't serve, or is too small.
    """
    three = most + sizes.n_val + sizes.n_test
    needed = _OTHER + max(three, START + sizes.pool + sizes.n_test)
    options: Any = {"tested": False, "most": 3 * needed, "progress": progress}
    x: Any = None
    embed: Embed = averaged
    cell = None if target is None else read_cell(data, target, **options)
    if cell is None:
        prepared, x = read_images(data, side=PIXELS, **options)
        y, digest, side, kind = prepared.train.y, prepared.digest, PIXELS, "image"
    else:
        config = cell.target.config
        y, digest, side, kind = cell.y, cell.digest, config.side, config.kind
    if kind == "text" and others:
        raise ValueError(
            f"--others names images to plant among images, but --data {data!r} is read "
            "as texts by this target"
        )
    if len(y) < needed:
        raise ValueError(
            f"--data {data!r} must hold {needed:,} training samples with classes, got "
            f"{len(y):,}"
        )
    if cell is not None:
        x, embed = _seen_by(cell, sizes.width)
    foreign = None
    if others:
        options["most"] = _FOREIGN
        read = [read_images(name, side=side, **options) for name in others]
        x, *images = channels_alike([x, *(pixels for _, pixels in read)])
        foreign = np.concatenate(images)
        if x.dtype == np.uint8:
            foreign = np.round(255 * foreign).astype(np.uint8)
        digest += "".join(prepared.digest for prepared, _ in read)
    y = np.asarray(y, int)
    part = Part(x[_OTHER:], y[_OTHER:], x[:_OTHER], y[:_OTHER])
    return Read(part, foreign, embed, kind, digest)


def _seen_by(cell: Cell, width: int) -> tuple[np.ndarray, Embed]:
    """Return features of texts, or images, with the embedding by components."""
    if cell.target.config.kind == "text":
        x = cell.target.features(cell.inputs)
        return x, project(x[:_OTHER], width)
    x = cell.images()
    components = project(cell.encoded(x[:_OTHER]), width)
    return x, lambda images: components(cell.encoded(images))


def averaged(images: np.ndarray) -> np.ndarray:
    """Return images `[n, side, side, c]` averaged to `SIDE` pixels and flattened."""
    n, side, _, channels = images.shape
    square = side // SIDE
    parts = unit(images).reshape(n, SIDE, square, SIDE, square, channels)
    return parts.mean((2, 4)).reshape(n, -1)
