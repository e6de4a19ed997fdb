"""Proxies on bootstrap sets of several sizes, for targets with two kinds of heads.

The pool and the samples to distil on are the same for all sizes of a seed: bootstrap
sets are dealt beside the pool, as imbalanced as it, and a larger one holds the smaller.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments._kit.seeds import Job, Work, Workers, each_seed, stacked
from experiments.selectformer import sources
from experiments.selectformer.proxies import targets
from experiments.selectformer.proxies.maker import Maker
from experiments.selectformer.proxies.points import STARTS, Candidate, candidates
from experiments.selectformer.proxies.targets import tuned
from experiments.selectformer.proxies.trial import OWN, TESTED, top
from experiments.selectformer.proxies.tries import (
    HELD_OUT,
    JUDGED,
    best_tries,
    judge_tries,
    make_accepted,
)
from experiments.selectformer.scores.trial import BUDGETS
from experiments.selectformer.sources import Encoded, Pool, deal
from jaxsel.proxy import entropy, monotonicity

POOL = "tweets"
"""Where samples are from: it has enough of them for 1,500 labels beside a pool."""

SIZES = (38, 75, 150, 300, 600, 1500)
QUICK = (38, 150, 600)
"""Labels bought first, in the full run and in the quick one."""

MOST = 1000
"""Samples of the kept class in a pool, at most."""

HEADS = {
    "linear": "the target's head begins as a linear probe of the bootstrap set",
    "hidden": "its head has a hidden layer, which begins as a probe of one",
}
"""Heads of the target: a linear probe ranks like the first partly by construction."""


class Way(NamedTuple):
    """A proxy that is followed over sizes.

    Attributes:
        says: Description, for a reader.
        candidate: Its name among `candidates`.
        published: Whether it is run only on request, as it takes long.
    """

    says: str
    candidate: str
    published: bool = False


WAYS = {
    "paper": Way("the paper's last phase: 3 layers, d = 16", "d=16"),
    "sub-model": Way("the same, cut from its sub-model", "sub-model, d=16", True),
    "as published": Way(
        "the same, emulators from 5.12 million Gaussian samples",
        "as published, d=16",
        True,
    ),
    "refitted": Way("the paper's, the entropy's emulator refitted", "refitted, d=16"),
    "distilled": Way("the paper's, distilled on own samples", "distilled, d=16"),
    "labels probe": Way("linear probe of the bootstrap set's labels", "bootstrap"),
    "distilled probe": Way("linear probe, distilled on own samples", "probe"),
    "margin probe": Way("the distilled probe, ranked by its margin", "probe, margin"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """Results of one size and one kind of head, for S seeds and W ways.

    Attributes:
        n: Samples offered, `[S]`.
        spearman: Rank correlation with the target's entropies, `[S, W]`; NaN where the
            guard refused the proxy with every setting.
        overlap: Share of a way's choice that the target would choose, `[S, W]`.
        place: Of the setting among the tries, `[S, W]`.
        accuracy: Of the target on test samples, `[S]`.
        judged: Rank correlation after each try on the held-out deal, `[S, W, tries]`.
    """

    n: np.ndarray
    spearman: np.ndarray
    overlap: np.ndarray
    place: np.ndarray
    accuracy: np.ndarray
    judged: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """Results of all sizes and heads.

    Attributes:
        seeds: `[S]`.
        sizes: Labels bought first.
        ways: Names of `WAYS`.
        cells: By kind of head and size.
    """

    seeds: np.ndarray
    sizes: tuple[int, ...]
    ways: tuple[str, ...]
    cells: Mapping[tuple[str, int], Cell]


def run_curve(
    folder: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = (0,),
    full: bool = False,
    published: bool = False,
    progress: bool = False,
    workers: Workers | None = None,
) -> Curve:
    """Let proxies rank a pool after bootstrap sets of several sizes.

    Settings are searched on a held-out deal for each size and head, as in
    `run_proxies`. Each cell and seed goes to a file: a killed run resumes.

    Args:
        folder: Where those files are, or will be.
        seeds: Each deals the samples, and draws all else, anew.
        full: Run all sizes.
        published: Run the paper's sub-model and its number of Gaussian samples too.
        progress: Show a progress bar.
        workers: Where they run; on threads of this process if None.

    Raises:
        ValueError: If there are no seeds, or that of the held-out deal is among them.
        FileNotFoundError: If the data set is not prepared; names the command.
    """
    if not len(seeds) or HELD_OUT in seeds:
        raise ValueError(f"seeds must hold one at least, and not {HELD_OUT}: {seeds}")
    sizes, followed = SIZES if full else QUICK, ways(published=published)

    def file(cell: str, seed: int, stem: str = "curve") -> tuple[Path, dict[str, Any]]:
        return Path(folder) / f"{stem}-{cell}-{seed}.npz", {
            "pool": [POOL, MOST, sources.KEPT, sources.TEST, SIZES[-1], OWN],
            "tries": {
                k: [repr(setting) for setting in c.tries()] for k, c in followed.items()
            },
            "held out": [HELD_OUT, JUDGED, STARTS],
            "tuning": [repr(targets.TUNING), repr(targets.IMAGES), targets.HEAD],
            "budget": BUDGETS[0],
            "fields": [field.name for field in dataclasses.fields(Cell)],
            "seed": seed,
        }

    options: dict[str, Any] = {"progress": progress, "workers": workers}
    searched = each_seed(
        Work(_jobs, (sizes, published, progress, None)),
        [HELD_OUT],
        lambda cell, seed: file(cell, seed, "curve-settings"),
        label="Settings",
        **options,
    )
    judged = {cell: results[0]["judged"] for cell, results in searched.items()}
    work = Work(_jobs, (sizes, published, progress, judged))
    runs = each_seed(work, seeds, file, label="Curve", **options)
    cells = {
        (head, size): Cell(**stacked(runs[_cell(head, size)]))
        for head in HEADS
        for size in sizes
    }
    return Curve(
        seeds=np.asarray(seeds), sizes=tuple(sizes), ways=tuple(followed), cells=cells
    )


def ways(*, published: bool) -> dict[str, Candidate]:
    """Return the candidates to follow, by name."""
    kind = sources.kind(POOL)
    known = candidates(kind) | candidates(kind, variants=True)
    return {
        name: known[way.candidate]
        for name, way in WAYS.items()
        if published or not way.published
    }


def _cell(head: str, size: int) -> str:
    return f"{POOL}-{head}-{size}"


def _jobs(
    sizes: Sequence[int],
    published: bool,
    progress: bool,
    judged: Mapping[str, np.ndarray] | None,
) -> dict[str, Job]:
    """Map each cell to its run for a seed, or to the judge of its settings."""
    source, followed = sources.SOURCES[POOL](progress), ways(published=published)

    def job(head: str, size: int) -> Job:
        def run(seed: int) -> Mapping[str, Any]:
            maker = make(source, size, head, seed)
            if judged is None:
                return {"judged": judge_tries(maker, followed)}
            return trial(maker, followed, judged[_cell(head, size)])

        return run

    return {_cell(head, size): job(head, size) for head in HEADS for size in sizes}


def make(source: Encoded, size: int, head: str, seed: int) -> Maker:
    """Deal a pool, buy labels, and fine-tune the target on them.

    Args:
        source: Where the samples are from.
        size: Labels to buy.
        head: One of `HEADS`.
        seed: Deals the samples, and draws all else.
    """
    key = jax.random.key(seed)
    largest = SIZES[-1]
    pool = deal_beside(source, jax.random.fold_in(key, 0), largest)
    first, unlabelled = pool.own[:size], pool.own[largest:]
    tune_key, make_key = (jax.random.fold_in(key, 1 + i) for i in range(2))
    return Maker(
        source=source,
        other=source,
        target=tuned(source, first, tune_key, hidden=head == "hidden"),
        pool=dataclasses.replace(pool, own=unlabelled),
        bought=first,
        left=pool.rows,
        test=pool.test[:TESTED],
        keep=round(BUDGETS[0] * len(pool.rows)),
        key=make_key,
    )


def deal_beside(source: Encoded, key: jax.Array, largest: int) -> Pool:
    """Deal a pool with a bootstrap set of up to `largest` samples beside it.

    Returns:
        The pool: `own` begins with the bootstrap set, and goes on with half as many
        samples as are offered, to distil on.

    Raises:
        ValueError: If the source has too few samples for that.
    """
    counts = np.bincount(source.y, minlength=source.n_classes)
    held = min(0.25, sources.TEST / len(source.y))
    remaining = counts - np.round(held * counts).astype(int)
    spread = 1 + (source.n_classes - 1) / sources.KEPT  # samples for one kept
    most = int(remaining[remaining >= 0.8 * remaining.max()].min())
    kept_size = min(int((most - largest / spread) / (1 + OWN)) - 2, MOST)
    if kept_size < 100:
        raise ValueError(
            "largest must leave a pool of 100 of the kept class at least, got "
            f"{largest} of {most}"
        )
    # `deal` rounds in each class: ask for two more of each, and cut the surplus.
    beside = OWN + (largest + 2 * source.n_classes) / (spread * kept_size)
    pool = deal(source, key, kept_size, own=beside)
    count = largest + round(OWN * len(pool.rows))
    return dataclasses.replace(pool, own=pool.own[:count])


def trial(
    maker: Maker, made: Mapping[str, Candidate], judged: np.ndarray
) -> dict[str, Any]:
    """Return the fields of `Cell` for one seed."""
    source, rows, keep = maker.source, maker.left, maker.keep
    logits = maker.target.logits(source.take(rows))
    oracle = np.asarray(entropy(jnp.asarray(logits)))
    best = top(oracle, keep)
    accepted = make_accepted(maker, made, best_tries(judged)).values()
    ranks = [candidate.made.scores for candidate in accepted]
    counts = np.array([not candidate.made.refused for candidate in accepted])
    right = maker.target.logits(source.take(maker.test)).argmax(1)
    rho = [monotonicity(scores, oracle) for scores in ranks]
    overlap = [np.isin(top(scores, keep), best).mean() for scores in ranks]
    return {
        "n": np.array(len(rows)),
        "spearman": np.where(counts, rho, np.nan),
        "overlap": np.where(counts, overlap, np.nan),
        "place": np.array([candidate.place for candidate in accepted]),
        "accuracy": (right == source.y[maker.test]).mean(),
        "judged": judged,
    }
