"""The evaluation of proxies: pools of real texts, seeds, one file for each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.seeds import Job, Work, Workers, each_seed
from jaxsel.demo.scenes.texts import LAYERS, LENGTH, TUNING, Sizes, read_texts
from jaxsel.demo.seeds import stacked

from .points import candidates, points
from .trial import trial

POOLS = {
    "movie_polarity": Sizes(pool=4000, own=2000),
    "tweets": Sizes(pool=2200, own=1100, kept=9),
}
"""Pools by data set. That of movie polarity is balanced; of three classes of tweets one
is kept, and each other one cut to a ninth of it, as in the paper."""

MOST = {"movie_polarity": 10_568, "tweets": 8100}
"""Texts of each data set that are encoded."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProxyPool:
    """What came of one pool, for each of S seeds, P points and K candidates.

    Attributes:
        sizes: How large it is.
        accuracy: Of the target, fine-tuned on the bootstrap set, on the rest of the
            pool, `[S]`.
        prior: Shares of the classes in the bootstrap set, `[S, C]`.
        rare_offered: Share of the pool that is of a rare class, `[S]`; 0 if none is.
        spearman: Rank correlation of the last phase's scores with the target's exact
            entropies, on the whole pool but the bootstrap set, `[S, P]`.
        overlap: Share of what is chosen that the target itself would choose, `[S, 2 +
            P]`: first for a random choice and the target's own.
        rare: Share of what is chosen that is of a rare class, likewise.
        bytes: Payload of the secure run, choices included, `[S, P]`.
        stopped: Whether a candidate's training stopped early, because its loss was not
            finite, `[S, K]`; never that of a probe.
    """

    sizes: Sizes
    accuracy: np.ndarray
    prior: np.ndarray
    rare_offered: np.ndarray
    spearman: np.ndarray
    overlap: np.ndarray
    rare: np.ndarray
    bytes: np.ndarray
    stopped: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proxies:
    """What came of all pools.

    Attributes:
        seeds: `[S]`.
        full: Whether the paper's ablations are among the points.
        points: Names of the points, see `ProxyPool`.
        candidates: Names of the proxies that they are made of.
        pools: By data set.
    """

    seeds: np.ndarray
    full: bool
    points: tuple[str, ...]
    candidates: tuple[str, ...]
    pools: Mapping[str, ProxyPool]

    def stopped_early(self, pool: str) -> dict[str, int]:
        """Return in how many seeds a point had a training that stopped early.

        Args:
            pool: Name of the pool. Points without such a training are left out.
        """
        stopped, known = self.pools[pool].stopped, points(full=self.full)
        counts = {}
        for point in self.points:
            parts = [name for name, _ in known[point].phases]
            own = [self.candidates.index(name) for name in parts]
            counts[point] = int(stopped[:, own].any(axis=1).sum())
        return {point: count for point, count in counts.items() if count}


def run_proxies(
    folder: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = tuple(range(10)),
    full: bool = False,
    progress: bool = False,
    workers: Workers | None = None,
) -> Proxies:
    """Choose from pools of real texts, by the paper's proxies and by cheaper ones.

    MiniLM is the target. Results of each pool and seed go to a file as soon as they are
    there, and what is there is read: a killed run goes on where it was.

    Args:
        folder: Where those files are, or will be.
        seeds: Each deals the texts, and draws all else, anew.
        full: Whether to add the paper's ablations.
        progress: Show a progress bar.
        workers: Where they run; on threads of this process if None.

    Returns:
        How well each point ranks and chooses, and what it costs.

    Raises:
        ValueError: If there are no seeds.
        FileNotFoundError: If a data set is not prepared; names the command that does
            it.

    References:
        Ouyang et al., SelectFormer, section 5; its proxies as the guide to proxies
        settles them.
    """
    made, compared = candidates(full=full), points(full=full)
    about = {
        "candidates": {name: repr(one) for name, one in made.items()},
        "points": {name: repr(one) for name, one in compared.items()},
        "tuning": repr(TUNING),
        "length": LENGTH,
        "layers": LAYERS,
        "most": MOST,
        "fields": [field.name for field in dataclasses.fields(ProxyPool)],
    }

    def file(name: str, seed: int) -> tuple[Path, dict[str, Any]]:
        path = Path(folder) / f"{name}-{'full-' if full else ''}{seed}.npz"
        sizes = dataclasses.asdict(POOLS[name])
        return path, {**about, "seed": seed, "sizes": sizes}

    found = each_seed(
        Work(_jobs, (full, progress)),
        seeds,
        file,
        label="Pools",
        progress=progress,
        workers=workers,
    )
    return Proxies(
        seeds=np.asarray(seeds),
        full=full,
        points=tuple(compared),
        candidates=tuple(made),
        pools={
            name: ProxyPool(sizes=POOLS[name], **stacked(runs))
            for name, runs in found.items()
        },
    )


def _jobs(full: bool, progress: bool) -> dict[str, Job]:
    """Return what runs each pool for a seed, by name."""
    made, compared = candidates(full=full), points(full=full)
    read = {name: read_texts(name, MOST[name], progress=progress) for name in POOLS}
    other = dict(zip(POOLS, reversed(POOLS), strict=True))

    def job(name: str) -> Job:
        return lambda seed: trial(
            read[name], read[other[name]], POOLS[name], made, compared, seed
        )

    return {name: job(name) for name in POOLS}
