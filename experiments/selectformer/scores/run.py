"""Accuracy after training on purchases: pools, seeds, one file for each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments._kit.seeds import Job, Work, Workers, each_seed, stacked
from experiments.selectformer import sources

from . import trial as trials
from .ways import WAYS

_FULL = 5000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Purchases:
    """Results of one pool, for each of S seeds; see `trial`.

    Attributes:
        random: `[S, budgets, draws]`.
        ways: `[S, budgets, W]`.
        pool: `[S]`.
        bootstrap: `[S]`.
        rare: `[S, budgets, W]`.
        rare_offered: `[S]`.
        n: Samples offered, `[S]`.
    """

    random: np.ndarray
    ways: np.ndarray
    pool: np.ndarray
    bootstrap: np.ndarray
    rare: np.ndarray
    rare_offered: np.ndarray
    n: np.ndarray

    @property
    def gains(self) -> np.ndarray:
        """Accuracy beyond the mean random choice of as many, `[S, budgets, W]`."""
        usual = self.random[:, : self.ways.shape[1]].mean(axis=2, keepdims=True)
        return self.ways - usual


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Results of all pools.

    Attributes:
        seeds: `[S]`.
        pools: By data set.
    """

    seeds: np.ndarray
    pools: Mapping[str, Purchases]


def run_accuracy(
    folder: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = tuple(range(20)),
    full: bool = False,
    progress: bool = False,
    workers: Workers | None = None,
) -> Accuracy:
    """Buy from imbalanced pools in every way, train on it, and test.

    Results of each pool and seed go to a file as soon as they are there, and what is
    there is read: a killed run goes on where it was.

    Args:
        folder: Where those files are, or will be.
        seeds: Each deals the pools, and draws all else, anew.
        full: Whether the kept class is of up to 5,000 samples.
        progress: Show a progress bar.
        workers: Where they run; on threads of this process if None.

    Raises:
        ValueError: If there are no seeds.
        FileNotFoundError: If a data set is not prepared; names the command that does
            it.

    References:
        Ouyang et al., SelectFormer, section 5.2 and Table 1.
    """
    most = _FULL if full else sources.MOST
    about = {
        "ways": {name: repr(way) for name, way in WAYS.items()},
        "learner": [repr(trials.LEARNER), repr(trials.MODEL)],
        "bootstrap": trials.BOOTSTRAP,
        "budgets": [*trials.BUDGETS, *trials.LARGER],
        "draws": trials.DRAWS,
        "pools": [sources.KEPT, most, sources.TEST],
    }

    def file(name: str, seed: int) -> tuple[Path, dict[str, Any]]:
        path = Path(folder) / f"{name}-{'full-' if full else ''}{seed}.npz"
        return path, {**about, "seed": seed}

    results = each_seed(
        Work(_jobs, (most, progress)),
        seeds,
        file,
        label="Purchases",
        progress=progress,
        workers=workers,
    )
    return Accuracy(
        seeds=np.asarray(seeds),
        pools={name: Purchases(**stacked(runs)) for name, runs in results.items()},
    )


def _jobs(most: int, progress: bool) -> dict[str, Job]:
    """Return the functions that run each pool for a seed, by name."""

    def job(source: sources.Source) -> Job:
        return lambda seed: trials.trial(source, seed, most)

    return {name: job(source) for name, source in sources.read_all(progress).items()}
