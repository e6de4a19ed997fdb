"""Makes the proxies of one seed, and lets each score the pool."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.seeds import free_programs
from experiments.selectformer.sources import Encoded, Pool
from jaxsel.models import Target, Tokens
from jaxsel.proxy import (
    Manifest,
    ProbeSpec,
    Proxy,
    Spec,
    embed,
    emulate,
    entropy,
    fit_probe,
    leakage,
    log_prior,
    monotonicity,
    out_of_bounds,
    probe_manifest,
    prune,
    target_manifest,
    tune,
    with_bounds,
)

from .points import ATTACKED, Candidate, Lesson


class Made(NamedTuple):
    """What came of a candidate.

    Attributes:
        scores: Of what is left of the pool, `[m]`; minus infinity where it overflowed.
        exact: The same without an emulator of the entropy, or as `scores`.
        manifest: With bounds, those of the bootstrap set.
        stopped: Whether its training stopped early.
        accuracy: On test samples; NaN for a proxy that learns ranks only.
        emulated: Rank correlation of its scores with the exact ones of its logits.
        outside: Share of what is left whose inputs are beyond the bounds.
        recovered: Of a probe that is attacked: the cosine and the rank correlation that
            the data owner recovers from a choice; NaN for the others.
    """

    scores: np.ndarray
    exact: np.ndarray
    manifest: Manifest
    stopped: bool
    accuracy: float
    emulated: float
    outside: float
    recovered: tuple[float, float]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Maker:
    """Makes all candidates of a seed, emulators in one loop.

    Attributes:
        source: Where the pool is from.
        other: Another source, to distil on.
        target: Fine-tuned on the bootstrap set.
        pool: What was dealt.
        bought: Rows of the bootstrap set.
        left: Rows that are left to choose from.
        test: Rows by which a proxy's own predictions are judged.
        keep: How many rows a choice leaves.
        key: Of all that is drawn.
    """

    source: Encoded
    other: Encoded
    target: Target
    pool: Pool
    bought: np.ndarray
    left: np.ndarray
    test: np.ndarray
    keep: int
    key: jax.Array

    def make(self, candidates: Mapping[str, Candidate]) -> dict[str, Made]:
        """Make every candidate."""
        cut = {
            name: prune(
                self.target,
                target_manifest(
                    one.spec,
                    self.target,
                    n_classes=self.source.n_classes,
                    length=self._length,
                ),
            )
            for name, one in candidates.items()
            if isinstance(one.spec, Spec)
        }
        key = jax.random.fold_in(self.key, 0)
        fitted = emulate([*cut.values()], *self._bought, key=key, source="both")
        ready = dict(zip(cut, fitted, strict=True))
        made: dict[str, Made] = {}
        for i, (name, one) in enumerate(candidates.items()):
            key = jax.random.fold_in(self.key, 1 + i)
            if isinstance(one.spec, ProbeSpec):
                made[name] = self._probe(name, one, one.spec, key)
            else:
                made[name] = self._layers(ready[name], one, key)
            free_programs()
        return made

    def _layers(self, untrained: Proxy, one: Candidate, key: jax.Array) -> Made:
        read, targets = self._lesson(one.lesson)
        proxy, trained = tune(
            untrained,
            *read,
            targets[one.goal],
            goal=one.goal,
            key=key,
            min_correlation=None,
            **dataclasses.asdict(one.training),
        )
        return self._made(
            proxy,
            self._bought,
            self._left,
            self._test,
            stopped=trained.stopped is not None,
        )

    def _probe(
        self, name: str, one: Candidate, spec: ProbeSpec, key: jax.Array
    ) -> Made:
        features, targets = self._read(one.lesson, one)
        n_classes, goal = self.source.n_classes, targets[one.goal]
        head = fit_probe(
            features,
            goal,
            loss=one.goal,
            n_classes=n_classes,
            key=key,
            **dataclasses.asdict(spec),
        )
        described = probe_manifest(
            width=features.shape[1],
            n_classes=n_classes,
            head=spec.hidden,
            score=one.kind,
        )
        proxy = Proxy.of_probe(described, head)
        if one.kind == "prior_entropy":
            offset = log_prior(self.prior, n_classes)
            proxy = Proxy(proxy.manifest, proxy.params | {"offset": offset})
        seen, held, tested = (
            self._columns(self.source.features[rows], one)
            for rows in (self.bought, self.left, self.test)
        )
        (proxy,) = emulate([proxy], features, None, key=key, source="both")
        made = self._made(
            proxy,
            (seen, None),
            (held, None),
            (tested, None),
            stopped=False,
            predicts=one.goal != "ranks",
        )
        if name not in ATTACKED:
            return made
        found = leakage(proxy, held, self.keep, leak="set").chosen
        cosine = np.nan if found.cosine is None else found.cosine
        return made._replace(recovered=(cosine, found.rank_correlation))

    def _made(
        self,
        proxy: Proxy,
        seen: tuple[np.ndarray, Any],
        held: tuple[np.ndarray, Any],
        tested: tuple[np.ndarray, Any],
        *,
        stopped: bool,
        predicts: bool = True,
    ) -> Made:
        logits = proxy.logits(*held)
        scores, kind = proxy.scores(logits, finite=False), proxy.manifest.score.kind
        finite = bool(np.isfinite(scores).all() and np.isfinite(logits).all())
        exact = scores
        if kind != "margin":
            exact = np.asarray(entropy(logits - proxy.params["offset"]))
        manifest = with_bounds(proxy, *seen).manifest if finite else proxy.manifest
        accuracy = np.nan
        if predicts:
            right = proxy.logits(*tested).argmax(1) == self.source.y[self.test]
            accuracy = float(right.mean())
        return Made(
            scores=_ranks(scores),
            exact=_ranks(exact),
            manifest=manifest,
            stopped=stopped,
            accuracy=accuracy,
            emulated=monotonicity(scores, exact) if finite else np.nan,
            outside=len(out_of_bounds(manifest, held[0]).rows) / len(held[0]),
            recovered=(np.nan, np.nan),
        )

    @property
    def _length(self) -> int:
        inputs = self.source.inputs
        is_text = isinstance(inputs, Tokens)
        return inputs.ids.shape[1] if is_text else self.target.config.length

    @functools.cached_property
    def prior(self) -> np.ndarray:
        """Shares of the classes in the bootstrap set, one sample added to each."""
        labels = self.source.y[self.bought]
        counts = np.bincount(labels, minlength=self.source.n_classes) + 1
        return counts / counts.sum()

    def _embedded(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return embed(self.source.target, self.source.take(rows))

    @functools.cached_property
    def _bought(self) -> tuple[np.ndarray, np.ndarray]:
        return self._embedded(self.bought)

    @functools.cached_property
    def _left(self) -> tuple[np.ndarray, np.ndarray]:
        return self._embedded(self.left)

    @functools.cached_property
    def _test(self) -> tuple[np.ndarray, np.ndarray]:
        return self._embedded(self.test)

    @functools.cached_property
    def _extra(self) -> dict[Lesson, Any]:
        """Inputs besides the bootstrap set, by lesson."""
        return {
            "own": self.source.take(self.pool.own),
            "other": self.other.take(np.arange(len(self.pool.own))),
        }

    @functools.cached_property
    def _targets(self) -> dict[Lesson, dict[str, np.ndarray]]:
        """What there is to learn, by lesson and goal."""
        rows = self.source.take(self.bought)
        known = self.target.logits(rows)
        found: dict[Lesson, dict[str, np.ndarray]] = {
            "bootstrap": {"labels": self.source.y[self.bought], "logits": known}
        }
        for lesson, inputs in self._extra.items():
            logits = np.concatenate([known, self.target.logits(inputs)])
            ranks = np.asarray(entropy(jnp.asarray(logits)))
            found[lesson] = {"logits": logits, "ranks": ranks}
        return found

    def _lesson(
        self, lesson: Lesson
    ) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, np.ndarray]]:
        """Return embedded samples with their mask, and targets by goal."""
        x, mask = self._bought
        if lesson != "bootstrap":
            more, more_mask = embed(self.source.target, self._extra[lesson])
            x, mask = np.concatenate([x, more]), np.concatenate([mask, more_mask])
        return (x, mask), self._targets[lesson]

    def _read(
        self, lesson: Lesson, one: Candidate
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the features that a probe reads, and targets by goal."""
        parts = [self.source.features[self.bought]]
        if lesson == "own":
            parts.append(self.source.features[self.pool.own])
        elif lesson == "other":
            parts.append(self.other.features[: len(self.pool.own)])
        return self._columns(np.concatenate(parts), one), self._targets[lesson]

    def _columns(self, features: np.ndarray, one: Candidate) -> np.ndarray:
        width = self.target.config.hidden
        columns = [features[:, i * width : (i + 1) * width] for i in one.layers]
        return np.concatenate(columns, axis=1)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return scores among which what overflowed ranks last."""
    return np.nan_to_num(scores, nan=-np.inf, posinf=-np.inf)
