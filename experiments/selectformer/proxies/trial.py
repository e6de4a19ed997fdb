"""One seed: each proxy's ranking of a pool, and training on its choice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.selectformer.scores.trial import (
    BUDGETS,
    DRAWS,
    LARGER,
    MODEL,
    accuracies,
)
from experiments.selectformer.sources import Encoded, Pool, deal
from jaxsel.proxy import (
    choose,
    draw_bootstrap,
    entropy,
    monotonicity,
    score,
)
from jaxsel.value import ModelUtility

from .maker import Made, Maker
from .points import ATTACKED, Candidate, Point
from .targets import tuned
from .tries import HELD_OUT, best_tries, judge_tries, make_accepted

BOOTSTRAP = 0.05
OWN = 0.5
"""Samples that the model owner has, without labels, for one of the pool's."""

TESTED = 1000
"""Test samples by which a proxy's own predictions are judged, at most."""

ORACLES = ("entropy", "margin", "prior_entropy")
"""Scores of the target itself."""


def trial(
    source: Encoded,
    other: Encoded,
    candidates: Mapping[str, Candidate],
    points: Mapping[str, Point],
    judged: np.ndarray,
    seed: int,
    most: int,
) -> dict[str, object]:
    """Choose from one pool in all ways, and train a linear model on each purchase.

    What the guard refuses counts for nothing: the figures of a point with a refused
    candidate are NaN.

    Args:
        source: Where the pool is from, and the samples that the model owner has.
        other: Another source, to distil on.
        candidates: The proxies, by name.
        points: To compare, by name.
        judged: Of the tries of each candidate, see `settings`.
        seed: Deals the samples, and draws all else.
        most: Samples of the kept class at most.

    Returns:
        The fields of `ProxyPool` without their first axis.
    """
    offered = offer(source, seed, most)
    pool, first, remaining, keys = offered
    n = len(pool.rows)
    budgets = [round(budget * n) - len(first) for budget in BUDGETS]
    maker = _maker(source, other, offered)
    target = maker.target
    logits = target.logits(source.take(pool.rows[remaining]))
    oracle = np.asarray(entropy(jnp.asarray(logits)))
    accepted = make_accepted(maker, candidates, best_tries(judged))
    results = {name: candidate.made for name, candidate in accepted.items()}
    counts = np.array([_counts(point, results) for point in points.values()])
    ranks = {
        exact: {
            name: candidate.exact if exact else candidate.scores
            for name, candidate in results.items()
        }
        for exact in (False, True)
    }
    features = source.features[pool.rows[remaining]]

    def chosen(point: Point, budget: float) -> np.ndarray:
        return sieve(point, ranks[point.exact], features, n, len(first), budget)

    oracles = [
        np.asarray(
            score(
                jnp.asarray(logits),
                kind,
                prior=maker.prior if kind == "prior_entropy" else None,
            )
        )
        for kind in ORACLES
    ]
    best = top(oracle, budgets[0])
    draws = [np.asarray(jax.random.permutation(k, len(remaining))) for k in keys[2:]]
    random = [
        draw[: round(budget * n) - len(first)]
        for budget in (*BUDGETS, *LARGER)
        for draw in draws
    ]
    ideal = [top(scores, k) for k in budgets for scores in oracles]
    ways = [chosen(point, b) for b in BUDGETS for point in points.values()]
    # The bootstrap set alone, and all samples: `masks` adds the bootstrap set.
    ends = [remaining[:0], np.arange(len(remaining))]
    x, y = source.x[pool.rows], source.y[pool.rows]
    utility = ModelUtility(MODEL, x, y, source.x[pool.test], source.y[pool.test])
    utilities = accuracies(utility, masks(offered, [*random, *ideal, *ways, *ends]))
    cuts = np.cumsum([len(random), len(ideal), len(ways)])
    randoms, ideals, bought, others = np.split(utilities, cuts)
    bought = np.where(counts, bought.reshape(len(BUDGETS), -1), np.nan)
    purchases = random[0], best, *ways[: len(points)]
    known = True, True, *counts
    is_rare = y[remaining] != pool.kept
    right = target.logits(source.take(maker.test)).argmax(1) == source.y[maker.test]
    return {
        "n": np.array(n),
        "scores": np.stack([*ranks[False].values()]).astype(np.float32),
        "oracle": oracle.astype(np.float32),
        "manifests": tuple(
            candidate.manifest.to_json() for candidate in results.values()
        ),
        "stopped": np.array([candidate.stopped for candidate in results.values()]),
        "refused": np.array(
            [candidate.refused != "" for candidate in results.values()]
        ),
        "place": np.array([candidate.place for candidate in accepted.values()]),
        "emulated": np.array([candidate.emulated for candidate in results.values()]),
        "outside": np.array([candidate.outside for candidate in results.values()]),
        "inference": np.array(
            [right.mean(), *(candidate.accuracy for candidate in results.values())]
        ),
        "recovered": np.array(
            [results[name].recovered for name in ATTACKED if name in results]
        ),
        "spearman": np.array(
            [
                monotonicity(ranks[point.exact][point.last], oracle)
                if counted
                else np.nan
                for point, counted in zip(points.values(), counts, strict=True)
            ]
        ),
        "overlap": np.array(
            [
                np.isin(rows, best).mean() if counted else np.nan
                for rows, counted in zip(purchases, known, strict=True)
            ]
        ),
        "rare": np.array(
            [
                is_rare[rows].mean() if counted else np.nan
                for rows, counted in zip(purchases, known, strict=True)
            ]
        ),
        "rare_offered": is_rare.mean(),
        "random": randoms.reshape(-1, DRAWS),
        "ideal": ideals.reshape(len(BUDGETS), -1),
        "bought": bought,
        "bootstrap": others[0],
        "pool": others[1],
    }


def settings(
    source: Encoded, other: Encoded, candidates: Mapping[str, Candidate], most: int
) -> dict[str, np.ndarray]:
    """Judge the tries of each candidate on the deal that no result is from.

    Returns:
        `judged`, `[K, tries]`, see `judge_tries`.
    """
    maker = _maker(source, other, offer(source, HELD_OUT, most))
    return {"judged": judge_tries(maker, candidates)}


def _counts(point: Point, made: Mapping[str, Made]) -> bool:
    """Return whether the guard accepts all that a point ranks by."""
    phases = [made[name] for name, _ in point.phases]
    if point.exact:  # no emulated entropy is used
        return not any(phase.stopped for phase in phases)
    return not any(phase.refused for phase in phases)


def _maker(source: Encoded, other: Encoded, offered: Offer) -> Maker:
    pool, first, remaining, keys = offered
    bought = pool.rows[first]
    return Maker(
        source=source,
        other=other,
        target=tuned(source, bought, keys[0]),
        pool=pool,
        bought=bought,
        left=pool.rows[remaining],
        test=pool.test[:TESTED],
        keep=round(BUDGETS[0] * len(pool.rows)) - len(first),
        key=keys[1],
    )


class Offer(NamedTuple):
    """Samples offered for one seed.

    Attributes:
        pool: Rows of the source.
        first: Places in the pool of the bootstrap set.
        left: The others.
        keys: Of the target, the proxies and each random draw.
    """

    pool: Pool
    first: np.ndarray
    left: np.ndarray
    keys: list[jax.Array]


def offer(source: Encoded, seed: int, most: int) -> Offer:
    """Deal a pool, and draw its bootstrap set.

    Args:
        source: Where the pool is from.
        seed: Deals the samples, and draws all else.
        most: Samples of the kept class at most.
    """
    key = jax.random.key(seed)
    keys = [jax.random.fold_in(key, i) for i in range(4 + DRAWS)]
    pool = deal(source, keys[0], most, own=OWN)
    n = len(pool.rows)
    first = draw_bootstrap(keys[1], n, BOOTSTRAP)
    return Offer(pool, first, np.setdiff1d(np.arange(n), first), keys[2:])


def masks(offered: Offer, purchases: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Return which samples of the pool each purchase has, with the bootstrap set.

    Args:
        offered: The pool.
        purchases: Each as places in `offered.left`.
    """
    selected = list[np.ndarray]()
    for rows in purchases:
        mask = np.zeros(len(offered.pool.rows), bool)
        mask[offered.first] = mask[offered.left[rows]] = True
        selected.append(mask)
    return selected


def sieve(
    point: Point,
    scores: Mapping[str, np.ndarray],
    features: np.ndarray,
    n: int,
    bought: int,
    budget: float,
) -> np.ndarray:
    """Return the rows, of those left to choose from, that pass all phases of a point.

    Args:
        point: The phases.
        scores: By candidate, `[m]`.
        features: Public ones, `[m, d]`.
        n: Samples of the pool.
        bought: Samples of the bootstrap set.
        budget: Share of the pool, the bootstrap set counted.
    """
    rows = np.arange(len(features))
    for name, share in point.phases:
        # Shares are stated for the first budget, and grow in proportion with it.
        part = 1.0 if share is None else share / BUDGETS[0]
        keep = min(round(part * budget * n) - bought, len(rows))
        if share is None and point.diverse:
            # `choose` refuses the -inf of overflowed scores.
            ranks = np.maximum(scores[name][rows], np.finfo(np.float32).min)
            choice = choose(ranks, keep, features=features[rows])
            return rows[np.asarray(choice.indices)]
        rows = rows[top(scores[name][rows], keep)]
    return rows


def top(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the highest scores; of equal ones the lower."""
    return np.argsort(-scores, kind="stable")[:count]
