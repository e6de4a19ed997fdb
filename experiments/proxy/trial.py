"""One seed of the evaluation of proxies: how well does each rank a pool?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel.demo.scenes.texts import Sizes, Texts, deal, tuned
from jaxsel.models import Target, Tokens
from jaxsel.proxy import (
    Manifest,
    ProbeSpec,
    Proxy,
    Samples,
    Spec,
    choice_cost,
    cost,
    draw_bootstrap,
    embed,
    emulate,
    entropy,
    fit_probe,
    monotonicity,
    probe_manifest,
    proxy_ranks,
    prune,
    target_manifest,
    tune,
)

from .points import Candidate, Lesson, Point


def trial(
    texts: Texts,
    other: Texts,
    sizes: Sizes,
    candidates: Mapping[str, Candidate],
    points: Mapping[str, Point],
    seed: int,
) -> dict[str, np.ndarray]:
    """Choose from one pool in all ways.

    Args:
        texts: Where the pool is from, and the texts that the model owner has.
        other: Texts of another source, to distil on.
        sizes: How large the pool is.
        candidates: The proxies, by name.
        points: What to compare.
        seed: Deals the texts, and draws all else.

    Returns:
        The fields of `ProxyPool` without their first axis.
    """
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(5)]
    dealt = deal(texts.labels, sizes, keys[0])
    n = len(dealt.pool)
    first = draw_bootstrap(keys[1], n, sizes.bootstrap)
    bought, left = dealt.pool[first], np.delete(dealt.pool, first)
    labels = texts.labels[bought]
    target = tuned(texts, bought, keys[2])
    logits = target.logits(texts.inputs(left))
    oracle = np.asarray(entropy(jnp.asarray(logits)))
    maker = _Maker(texts, other, target, bought, dealt.own, keys[3])
    scores, manifests, stopped = maker.scores(candidates, left)
    budget = round(sizes.budget * n) - len(bought)
    rare = _rare(texts.labels[dealt.pool], sizes)
    best = _top(oracle, budget)
    ways = [
        _sieve(point, scores, n, len(bought), budget, len(left))
        for point in points.values()
    ]
    draw = np.asarray(jax.random.permutation(keys[4], len(left)))[:budget]
    chosen = [np.sort(rows) for rows in (draw, best, *(way[-1] for way in ways))]
    last = [point.phases[-1][0] for point in points.values()]
    is_rare = rare[texts.labels[left]]
    return {
        "accuracy": np.mean(logits.argmax(1) == texts.labels[left]),
        "prior": np.bincount(labels, minlength=texts.n_classes) / len(labels),
        "rare_offered": is_rare.mean(),
        "spearman": np.array([monotonicity(scores[name], oracle) for name in last]),
        "overlap": np.array([np.isin(rows, best).mean() for rows in chosen]),
        "rare": np.array([is_rare[rows].mean() for rows in chosen]),
        "bytes": np.array(
            [
                _bytes(point, manifests, way, len(left))
                for point, way in zip(points.values(), ways, strict=True)
            ]
        ),
        "stopped": np.array([stopped[name] for name in candidates]),
    }


@dataclasses.dataclass(frozen=True, eq=False)
class _Maker:
    """Makes all candidates of a seed, emulators in one loop."""

    texts: Texts
    other: Texts
    target: Target
    bought: np.ndarray
    own: np.ndarray
    key: jax.Array

    def scores(
        self, candidates: Mapping[str, Candidate], rows: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, Manifest], dict[str, bool]]:
        """Return the scores of some rows by each candidate, by its name.

        Also the candidates' manifests, and whether their training stopped early.
        """
        asked: list[Lesson] = sorted({c.lesson for c in candidates.values()})
        lessons = {lesson: self._lesson(lesson) for lesson in asked}
        cut = {
            name: prune(
                self.target,
                target_manifest(
                    c.spec,
                    self.target,
                    n_classes=self.texts.n_classes,
                    length=self.texts.tokens.ids.shape[1],
                ),
            )
            for name, c in candidates.items()
            if isinstance(c.spec, Spec)
        }
        x, mask = embed(self.texts.target, self.texts.inputs(self.bought))
        key = jax.random.fold_in(self.key, 0)
        fitted = emulate([*cut.values()], x, mask, key=key, source="both")
        ready = dict(zip(cut, fitted, strict=True))
        scores, manifests, stopped = {}, {}, {}
        for i, (name, one) in enumerate(candidates.items()):
            key = jax.random.fold_in(self.key, 1 + i)
            tokens, features, goals = lessons[one.lesson]
            goal = goals[one.goal]
            if isinstance(one.spec, ProbeSpec):
                proxy, ended = self._probe(one, features, goal, key), None
                held = Samples(features=self._features(one, self.texts.features[rows]))
            else:
                proxy, trained = tune(
                    ready[name],
                    *embed(self.texts.target, tokens),
                    goal,
                    goal=one.goal,
                    key=key,
                    min_correlation=-1.0,
                    **dataclasses.asdict(one.training),
                )
                held, ended = Samples(self.texts.inputs(rows)), trained.stopped
            found = proxy_ranks(proxy, held, base=self.texts.target)
            # What overflowed ranks last.
            scores[name] = np.nan_to_num(found, nan=-np.inf, posinf=-np.inf)
            manifests[name], stopped[name] = proxy.manifest, ended is not None
        return scores, manifests, stopped

    def _lesson(self, lesson: Lesson) -> tuple[Tokens, np.ndarray, dict[str, Any]]:
        """Return tokens, features, and targets by goal, of what there is to learn."""
        texts, rows = self.texts, self.bought
        if lesson == "own":
            rows = np.concatenate([rows, self.own])
        tokens, features = texts.inputs(rows), texts.features[rows]
        if lesson == "bootstrap":
            return tokens, features, {"labels": texts.labels[rows]}
        if lesson == "other":
            more = np.arange(len(self.own))
            extra = self.other.inputs(more), self.other.features[more]
            tokens, features = jax.tree.map(
                lambda *parts: np.concatenate(parts), (tokens, features), extra
            )
        logits = self.target.logits(tokens)
        ranks = np.asarray(entropy(jnp.asarray(logits)))
        return tokens, features, {"logits": logits, "ranks": ranks}

    def _features(self, one: Candidate, features: np.ndarray) -> np.ndarray:
        width = self.target.config.hidden
        columns = [features[:, i * width : (i + 1) * width] for i in one.layers]
        return np.concatenate(columns, axis=1)

    def _probe(
        self, one: Candidate, features: np.ndarray, goal: np.ndarray, key: jax.Array
    ) -> Proxy:
        assert isinstance(one.spec, ProbeSpec)
        n_classes, x = self.texts.n_classes, self._features(one, features)
        head = fit_probe(
            x,
            goal,
            loss=one.goal,
            n_classes=n_classes,
            key=key,
            **dataclasses.asdict(one.spec),
        )
        described = probe_manifest(
            width=x.shape[1], n_classes=n_classes, head=one.spec.hidden
        )
        return emulate([Proxy.of_probe(described, head)], x, None, key=key)[0]


def _sieve(
    point: Point,
    scores: Mapping[str, np.ndarray],
    n: int,
    bought: int,
    budget: int,
    left: int,
) -> list[np.ndarray]:
    """Return the rows that each phase leaves."""
    rows, kept = np.arange(left), []
    for name, share in point.phases:
        keep = budget if share is None else round(share * n) - bought
        rows = rows[_top(scores[name][rows], keep)]
        kept.append(rows)
    return kept


def _top(scores: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:count]


def _bytes(
    point: Point,
    manifests: Mapping[str, Manifest],
    kept: Sequence[np.ndarray],
    left: int,
) -> float:
    """Return the payload of the phases: forward passes, and choices."""
    total = 0.0
    for (name, _), rows in zip(point.phases, kept, strict=True):
        total += cost(manifests[name], left).bytes
        total += choice_cost(left, len(rows)).bytes
        left = len(rows)
    return total


def _rare(labels: np.ndarray, sizes: Sizes) -> np.ndarray:
    """Return which classes are rare, `[C]`: all but the kept one, or none."""
    counts = np.bincount(labels)
    return (counts < counts.max()) & (sizes.kept > 1)
