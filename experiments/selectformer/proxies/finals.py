"""Final models that are fine-tuned: do purchases rank as by a linear model?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments._kit.seeds import Workers, stacked
from experiments.selectformer import sources
from experiments.selectformer.scores.trial import BUDGETS
from experiments.selectformer.sources import Encoded

from .kept import each_kept
from .points import points
from .run import MOST, Proxies
from .targets import tuned
from .trial import masks, offer, sieve, top

POOLS = ("fashion_mnist",)
"""Of images: to fine-tune MiniLM on a purchase takes minutes of a core, the small ViT
seconds."""

WAYS = (
    "paper, 2 phases",
    "MPCFormer, own",
    "1 layer",
    "hidden probe",
    "probe",
    "probe, margin",
)
"""Points to compare by their purchases."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinalPool:
    """Accuracies of the fine-tuned target on test samples, for each of S seeds.

    Attributes:
        random: After a random purchase, `[S]`.
        ideal: After the choice by the target's own entropies, `[S]`.
        bought: After each of `WAYS`, `[S, WAYS]`; NaN where the guard refuses a proxy.
        pool: Of all samples, `[S]`.
    """

    random: np.ndarray
    ideal: np.ndarray
    bought: np.ndarray
    pool: np.ndarray


def run_finals(
    folder: Path,
    result: Proxies,
    *,
    progress: bool = False,
    workers: Workers | None = None,
) -> dict[str, FinalPool]:
    """Fine-tune the target on purchases of a fifth, its head from a linear probe.

    Args:
        folder: Where results are kept, as for `run_proxies`.
        result: Scores of all candidates.
        progress: Show a progress bar.
        workers: How many threads run at once.

    Returns:
        The results of each pool of `POOLS`.
    """
    results = each_kept(
        folder,
        result,
        "finals",
        lambda name, s: _train(sources.SOURCES[name](progress), result, name, s),
        {"ways": WAYS},
        pools=[name for name in POOLS if name in result.pools],
        progress=progress,
        workers=workers,
    )
    return {name: FinalPool(**stacked(runs)) for name, runs in results.items()}


def _train(source: Encoded, result: Proxies, name: str, s: int) -> dict[str, Any]:
    """Return the fields of `FinalPool` for one seed."""
    scored, known = result.pools[name], points()
    offered = offer(source, int(result.seeds[s]), MOST)
    pool, n, bought = offered.pool, len(offered.pool.rows), len(offered.first)
    keep = round(BUDGETS[0] * n) - bought
    scores = dict(zip(result.candidates, scored.scores[s], strict=True))
    features = source.features[pool.rows[offered.left]]
    drawn = np.asarray(jax.random.permutation(offered.keys[2], len(offered.left)))
    purchases = [
        drawn[:keep],
        top(scored.oracle[s], keep),
        np.arange(len(offered.left)),
        *(sieve(known[way], scores, features, n, bought, BUDGETS[0]) for way in WAYS),
    ]
    test = source.take(pool.test)
    accuracies = list[float]()
    for mask in masks(offered, purchases):
        # One key for all, so that only the samples differ.
        target = tuned(source, pool.rows[mask], offered.keys[0])
        right = target.logits(test).argmax(1) == source.y[pool.test]
        accuracies.append(float(right.mean()))
    random, ideal, everything, *ways = accuracies
    counts = [np.isfinite(scored.spearman[s, result.points.index(way)]) for way in WAYS]
    return {
        "random": np.array(random),
        "ideal": np.array(ideal),
        "bought": np.where(counts, ways, np.nan),
        "pool": np.array(everything),
    }
