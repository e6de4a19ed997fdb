"""One seed: how well does each proxy rank a pool, and what does its choice train?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.selectformer.scores.trial import (
    BUDGETS,
    DRAWS,
    LARGER,
    MODEL,
    accuracies,
)
from experiments.selectformer.sources import Encoded, Pool, deal
from jaxsel.models import Target, finetune
from jaxsel.proxy import (
    Training,
    choose,
    draw_bootstrap,
    entropy,
    fit_probe,
    monotonicity,
    score,
)
from jaxsel.value import ModelUtility

from .maker import Maker
from .points import ATTACKED, Candidate, Point

BOOTSTRAP = 0.05
OWN = 0.5
"""Samples that the model owner has, without labels, for one of the pool's."""

TESTED = 1000
"""Test samples by which a proxy's own predictions are judged, at most."""

TUNING = Training(6, 16, 1e-4)
IMAGES = Training(12, 16, 1e-3)
"""How the target is fine-tuned on the bootstrap set: MiniLM, and the small ViT."""

HEAD = 0.1
"""The penalty of the linear probe that its head begins as."""

ORACLES = ("entropy", "margin", "prior_entropy")
"""Scores of the target itself."""


def trial(
    source: Encoded,
    other: Encoded,
    candidates: Mapping[str, Candidate],
    points: Mapping[str, Point],
    seed: int,
    most: int,
) -> dict[str, object]:
    """Choose from one pool in all ways, and train a linear model on each purchase.

    Args:
        source: Where the pool is from, and the samples that the model owner has.
        other: Another source, to distil on.
        candidates: The proxies, by name.
        points: What to compare.
        seed: Deals the samples, and draws all else.
        most: Samples of the kept class at most.

    Returns:
        The fields of `ProxyPool` without their first axis.
    """
    offered = offer(source, seed, most)
    pool, first, left, keys = offered
    n = len(pool.rows)
    budgets = [round(budget * n) - len(first) for budget in BUDGETS]
    target = tuned(source, pool.rows[first], keys[0])
    maker = Maker(
        source=source,
        other=other,
        target=target,
        pool=pool,
        bought=pool.rows[first],
        left=pool.rows[left],
        test=pool.test[:TESTED],
        keep=budgets[0],
        key=keys[1],
    )
    logits = target.logits(source.take(pool.rows[left]))
    oracle = np.asarray(entropy(jnp.asarray(logits)))
    made = maker.make(candidates)
    ranks = {
        exact: {name: one.exact if exact else one.scores for name, one in made.items()}
        for exact in (False, True)
    }
    features = source.features[pool.rows[left]]

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
    draws = [np.asarray(jax.random.permutation(k, len(left))) for k in keys[2:]]
    random = [
        draw[: round(budget * n) - len(first)]
        for budget in (*BUDGETS, *LARGER)
        for draw in draws
    ]
    ideal = [top(scores, k) for k in budgets for scores in oracles]
    ways = [chosen(point, b) for b in BUDGETS for point in points.values()]
    ends = [left[:0], np.arange(len(left))]
    x, y = source.x[pool.rows], source.y[pool.rows]
    utility = ModelUtility(MODEL, x, y, source.x[pool.test], source.y[pool.test])
    found = accuracies(utility, masks(offered, [*random, *ideal, *ways, *ends]))
    cuts = np.cumsum([len(random), len(ideal), len(ways)])
    randoms, ideals, bought, others = np.split(found, cuts)
    is_rare = y[left] != pool.kept
    right = target.logits(source.take(maker.test)).argmax(1) == source.y[maker.test]
    return {
        "n": np.array(n),
        "scores": np.stack([*ranks[False].values()]).astype(np.float32),
        "oracle": oracle.astype(np.float32),
        "manifests": tuple(one.manifest.to_json() for one in made.values()),
        "stopped": np.array([one.stopped for one in made.values()]),
        "emulated": np.array([one.emulated for one in made.values()]),
        "outside": np.array([one.outside for one in made.values()]),
        "inference": np.array([right.mean(), *(one.accuracy for one in made.values())]),
        "recovered": np.array([made[name].recovered for name in ATTACKED]),
        "spearman": np.array(
            [
                monotonicity(ranks[point.exact][point.last], oracle)
                for point in points.values()
            ]
        ),
        "overlap": np.array(
            [
                np.isin(rows, best).mean()
                for rows in (random[0], best, *ways[: len(points)])
            ]
        ),
        "rare": np.array(
            [is_rare[rows].mean() for rows in (random[0], best, *ways[: len(points)])]
        ),
        "rare_offered": is_rare.mean(),
        "random": randoms.reshape(-1, DRAWS),
        "ideal": ideals.reshape(len(BUDGETS), -1),
        "bought": bought.reshape(len(BUDGETS), -1),
        "bootstrap": others[0],
        "pool": others[1],
    }


class Offer(NamedTuple):
    """What is offered for one seed.

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
        purchases: Each as places among what was left.
    """
    found = list[np.ndarray]()
    for rows in purchases:
        mask = np.zeros(len(offered.pool.rows), bool)
        mask[offered.first] = mask[offered.left[rows]] = True
        found.append(mask)
    return found


def tuned(source: Encoded, rows: np.ndarray, key: jax.Array) -> Target:
    """Return the source's target, fine-tuned on some samples.

    Its head begins as a linear probe's: from one at random, a few dozen samples of a
    skewed set teach no more than which class is frequent.
    """
    base = source.target
    x, y = source.features[rows][:, -base.config.hidden :], source.y[rows]
    probe = fit_probe(x, y, loss="labels", n_classes=source.n_classes, l2=HEAD)
    model = nnx.merge(base.graphdef, base.params)
    assert model.head is not None
    model.head.kernel.set_value(probe.weights[0])
    model.head.bias.set_value(probe.biases[0])
    graphdef, params = nnx.split(model)
    found = finetune(
        graphdef,
        params,
        source.take(rows),
        y,
        key=key,
        **dataclasses.asdict(IMAGES if base.config.kind == "image" else TUNING),
    )
    return dataclasses.replace(base, params=found.params)


def sieve(
    point: Point,
    scores: Mapping[str, np.ndarray],
    features: np.ndarray,
    n: int,
    bought: int,
    budget: float,
) -> np.ndarray:
    """Return what the phases of a point leave of the rows that were left.

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
        part = 1.0 if share is None else share / BUDGETS[0]
        keep = min(round(part * budget * n) - bought, len(rows))
        if share is None and point.diverse:
            ranks = np.maximum(scores[name][rows], np.finfo(np.float32).min)
            found = choose(ranks, keep, features=features[rows])
            return rows[np.asarray(found.indices)]
        rows = rows[top(scores[name][rows], keep)]
    return rows


def top(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the highest scores; of equal ones the lower."""
    return np.argsort(-scores, kind="stable")[:count]
