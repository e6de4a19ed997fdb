"""Schedules that a search finds on all seeds but one, and their choices in that one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from experiments._kit.seeds import Workers, stacked
from experiments.selectformer import sources
from experiments.selectformer.scores.trial import BUDGETS, MODEL, accuracies
from experiments.selectformer.sources import Encoded
from jaxsel.proxy import Front, Schedule
from jaxsel.value import ModelUtility

from .costs import ENGINE, search
from .kept import each_kept
from .points import SEARCHED, Point
from .run import MOST, Proxies
from .trial import masks, offer, sieve, top

PICKS = ("cheapest", "middle", "best")
"""Points of a front: the first, the middle one, and the last."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchedPool:
    """Results of one pool, for each of S seeds and each of `PICKS`.

    Attributes:
        schedules: Names of the candidates, `[S, PICKS]`.
        hours: Of messages, for a pool as large as the paper's, `[S, PICKS]`.
        expected: Overlap with the target's choice by the other seeds, `[S, PICKS]`.
        overlap: In the seed itself, `[S, PICKS]`.
        bought: Accuracy after the purchase, `[S, PICKS]`; NaN where the guard refuses
            one of its proxies.
    """

    schedules: np.ndarray
    hours: np.ndarray
    expected: np.ndarray
    overlap: np.ndarray
    bought: np.ndarray


def run_searched(
    folder: Path,
    result: Proxies,
    *,
    progress: bool = False,
    workers: Workers | None = None,
) -> dict[str, SearchedPool]:
    """Buy by points of the front, each of a search that did not see the seed.

    Args:
        folder: Where results are kept, as for `run_proxies`.
        result: Scores of all candidates. Nothing is done with a single seed.
        progress: Show a progress bar.
        workers: How many threads run at once.

    Returns:
        The results of each pool.
    """
    if len(result.seeds) < 2:
        return {}

    def job(name: str, s: int) -> dict[str, Any]:
        others = np.delete(np.arange(len(result.seeds)), s)
        front = search(result.only(name, others), name, ENGINE, points={})
        return _buy(sources.SOURCES[name](progress), result, name, s, front)

    results = each_kept(
        folder,
        result,
        "searched",
        job,
        {"picks": PICKS, "searched": SEARCHED, "engine": ENGINE},
        progress=progress,
        workers=workers,
    )
    return {name: SearchedPool(**stacked(runs)) for name, runs in results.items()}


def _buy(
    source: Encoded, result: Proxies, name: str, s: int, front: Front
) -> dict[str, Any]:
    """Return the fields of `SearchedPool` for one seed."""
    scored = result.pools[name]
    offered = offer(source, int(result.seeds[s]), MOST)
    pool, n, bought = offered.pool, len(offered.pool.rows), len(offered.first)
    scores = dict(zip(result.candidates, scored.scores[s], strict=True))
    features = source.features[pool.rows[offered.left]]
    picks = [front.points[i] for i in (0, len(front.points) // 2, -1)]
    chosen = [
        sieve(_point(front, schedule), scores, features, n, bought, BUDGETS[0])
        for schedule in picks
    ]
    best = top(scored.oracle[s], round(BUDGETS[0] * n) - bought)
    utility = ModelUtility(
        MODEL,
        source.x[pool.rows],
        source.y[pool.rows],
        source.x[pool.test],
        source.y[pool.test],
    )
    counts = [
        not any(
            scored.refused[s, result.candidates.index(name)] for name in schedule.names
        )
        for schedule in picks
    ]
    bought = accuracies(utility, masks(offered, chosen))
    return {
        "schedules": tuple(" → ".join(schedule.names) for schedule in picks),
        "hours": np.array([schedule.hours for schedule in picks]),
        "expected": np.array([schedule.overlap for schedule in picks]),
        "overlap": np.array([np.isin(rows, best).mean() for rows in chosen]),
        "bought": np.where(counts, bought, np.nan),
    }


def _point(front: Front, one: Schedule) -> Point:
    """Return a schedule for 42,000 samples as shares of any pool."""
    shares = [(keep + front.bought) / front.n for keep in one.keeps[:-1]]
    return Point("", tuple(zip(one.names, [*shares, None], strict=True)))
