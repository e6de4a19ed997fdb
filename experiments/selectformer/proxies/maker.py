"""Makes the proxies of one seed, and lets each score the pool."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments._kit.seeds import free_programs
from experiments.selectformer.sources import Encoded, Pool
from jaxsel.models import Target, Tokens
from jaxsel.proxy import (
    Manifest,
    ProbeSpec,
    Proxy,
    Spec,
    check_monotonicity,
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
    refit_score,
    target_manifest,
    tune,
    with_bounds,
)

from .points import DEEPEST, STARTS, Candidate, Lesson, Source
from .targets import sub_model


class Made(NamedTuple):
    """A candidate after training, judged on the pool.

    Attributes:
        scores: Of the rows left of the pool, `[m]`; minus infinity on overflow.
        exact: The same without an emulator of the entropy, or as `scores`.
        manifest: With the bounds of the bootstrap set.
        stopped: Whether its training stopped early.
        refused: Why a selection would refuse it; empty if it would not.
        accuracy: On test samples; NaN for a proxy that learns ranks only.
        emulated: Rank correlation of its scores with the exact ones of its logits.
        outside: Share of the rows left with inputs beyond the bounds.
        recovered: Of a probe that is attacked: the cosine and the rank correlation that
            the data owner recovers from a choice; NaN for the others.
    """

    scores: np.ndarray
    exact: np.ndarray
    manifest: Manifest
    stopped: bool
    refused: str
    accuracy: float
    emulated: float
    outside: float
    recovered: tuple[float, float]


class Trained(NamedTuple):
    """A candidate with one setting.

    Attributes:
        proxy: After training.
        read: Samples as the proxy reads them, by a row of the source each, and their
            mask.
        stopped: Whether its training stopped early.
        refused: Why a selection would refuse it; empty if it would not.
        predicts: Whether it predicts classes.
    """

    proxy: Proxy
    read: Callable[[np.ndarray], tuple[np.ndarray, Any]]
    stopped: bool
    refused: str
    predicts: bool


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Maker:
    """Makes all candidates of a seed, emulators in one loop.

    Attributes:
        source: Where the pool is from.
        other: Another source, to distil on.
        target: Fine-tuned on the bootstrap set.
        pool: The samples dealt.
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

    def untrained(self, candidates: Mapping[str, Candidate]) -> dict[str, Proxy]:
        """Cut the candidates that have layers, and fit their emulators ex vivo.

        Those that learn from the same samples are fitted in one loop.
        """
        groups: dict[tuple[bool, Source, int], dict[str, Spec]] = {}
        for name, candidate in candidates.items():
            if isinstance(candidate.spec, Spec):
                group = groups.setdefault(
                    (candidate.backbone, candidate.source, candidate.n_points), {}
                )
                group[name] = candidate.spec
        key, proxies = jax.random.fold_in(self.key, 0), dict[str, Proxy]()
        for (backbone, source, n_points), specs in groups.items():
            target = self._sub_model if backbone else self.target
            fitted = emulate(
                [self._cut(target, spec) for spec in specs.values()],
                *self._embedded(self.bought),
                key=key,
                source=source,
                n_points=n_points,
                backbone=self._cut(target, _whole(target)) if backbone else None,
                seeds=STARTS,
            )
            proxies |= zip(specs, fitted, strict=True)
        return proxies

    def train(self, one: Candidate, untrained: Proxy | None, i: int) -> Trained:
        """Train a candidate as it is, and ask the library's guard.

        Args:
            one: The candidate, with the setting to try.
            untrained: Its proxy from `untrained`; None for a probe.
            i: Its place among the candidates, which its key comes from.
        """
        key = jax.random.fold_in(self.key, 1 + i)
        if isinstance(one.spec, ProbeSpec):
            trained = self._probe(one, one.spec, key)
        else:
            assert untrained is not None
            trained = self._layers(untrained, one, key)
        free_programs()
        return trained

    def rank(self, trained: Trained, rows: np.ndarray) -> np.ndarray:
        """Score rows of the source by a proxy; rows that overflow rank last."""
        proxy = trained.proxy
        scores = proxy.scores(proxy.logits(*trained.read(rows)), finite=False)
        return _ranks(scores)

    def _layers(self, untrained: Proxy, one: Candidate, key: jax.Array) -> Trained:
        read, targets = self._lesson(one.lesson)
        proxy, training = tune(
            untrained,
            *read,
            targets[one.goal],
            goal=one.goal,
            key=key,
            min_correlation=None,  # asked by `_refusal`, once all is trained
            **dataclasses.asdict(one.training),
        )
        stopped = training.stopped is not None
        if one.refit and not stopped:
            proxy = refit_score(
                proxy,
                *self._embedded(self.bought),
                key=jax.random.fold_in(key, 1),
                source=one.source,
                n_points=one.n_points,
                seeds=STARTS,
            )
        refused = training.stopped or _refusal(proxy, *self._embedded(self.bought))
        return Trained(proxy, self._embedded, stopped, refused, one.goal != "ranks")

    def _probe(self, one: Candidate, spec: ProbeSpec, key: jax.Array) -> Trained:
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
        (proxy,) = emulate(
            [proxy],
            features,
            None,
            key=key,
            source=one.source,
            n_points=one.n_points,
            seeds=STARTS,
        )

        def read(rows: np.ndarray) -> tuple[np.ndarray, None]:
            return self._columns(self.source.features[rows], one), None

        refused = _refusal(proxy, *read(self.bought))
        return Trained(proxy, read, False, refused, one.goal != "ranks")

    def made(self, trained: Trained, *, attack: bool) -> Made:
        """Judge a trained candidate.

        Args:
            trained: From `train`.
            attack: Whether to recover it from a choice, as the data owner might.
        """
        proxy, read, stopped, refused, predicts = trained
        held = read(self.left)
        logits = proxy.logits(*held)
        scores, kind = proxy.scores(logits, finite=False), proxy.manifest.score.kind
        finite = bool(np.isfinite(scores).all() and np.isfinite(logits).all())
        exact = scores
        if kind != "margin":
            # The offset is the log prior of a prior entropy, and 0 for other scores.
            exact = np.asarray(entropy(logits - proxy.params["offset"]))
        manifest = proxy.manifest
        if finite:
            manifest = with_bounds(proxy, *read(self.bought)).manifest
        accuracy, recovered = np.nan, (np.nan, np.nan)
        if predicts:
            right = proxy.logits(*read(self.test)).argmax(1) == self.source.y[self.test]
            accuracy = float(right.mean())
        if attack:
            attacked = leakage(proxy, held[0], self.keep, leak="set").chosen
            cosine = np.nan if attacked.cosine is None else attacked.cosine
            recovered = cosine, attacked.rank_correlation
        return Made(
            scores=_ranks(scores),
            exact=_ranks(exact),
            manifest=manifest,
            stopped=stopped,
            refused=refused,
            accuracy=accuracy,
            emulated=monotonicity(scores, exact) if finite else np.nan,
            outside=len(out_of_bounds(manifest, held[0]).rows) / len(held[0]),
            recovered=recovered,
        )

    def _cut(self, target: Target, spec: Spec) -> Proxy:
        described = target_manifest(
            spec, target, n_classes=self.source.n_classes, length=self._length
        )
        return prune(target, described)

    @functools.cached_property
    def _sub_model(self) -> Target:
        """The paper's M_g: as many of the bottom layers as its deepest proxy has."""
        # Beyond the keys `1 + i` of the candidates.
        key = jax.random.fold_in(self.key, 2**20)
        return sub_model(self.source, self.bought, DEEPEST, key)

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
        """Embed samples of the source, each set of rows once."""
        known, key = self._known, rows.tobytes()
        if key not in known:
            known[key] = embed(self.source.target, self.source.take(rows))
        return known[key]

    @functools.cached_property
    def _known(self) -> dict[bytes, tuple[np.ndarray, np.ndarray]]:
        return {}

    def _more(self, lesson: Lesson) -> tuple[Encoded, np.ndarray]:
        """Return the source and the rows of the further samples of a lesson."""
        if lesson == "other":
            return self.other, np.arange(len(self.pool.own))
        return self.source, self.pool.own

    def _targets(self, lesson: Lesson) -> dict[str, np.ndarray]:
        """Return the targets of training by goal."""
        if lesson not in self._taught:
            logits = self.target.logits(self.source.take(self.bought))
            if lesson == "bootstrap":
                goals = {"labels": self.source.y[self.bought], "logits": logits}
            else:
                more, rows = self._more(lesson)
                further = self.target.logits(more.take(rows))
                logits = np.concatenate([logits, further])
                ranks = np.asarray(entropy(jnp.asarray(logits)))
                goals = {"logits": logits, "ranks": ranks}
            self._taught[lesson] = goals
        return self._taught[lesson]

    @functools.cached_property
    def _taught(self) -> dict[Lesson, dict[str, np.ndarray]]:
        return {}

    def _lesson(
        self, lesson: Lesson
    ) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, np.ndarray]]:
        """Return embedded samples with their mask, and targets by goal."""
        x, mask = self._embedded(self.bought)
        if lesson != "bootstrap":
            source, rows = self._more(lesson)
            if source is self.source:
                more, more_mask = self._embedded(rows)
            else:
                more, more_mask = embed(self.source.target, source.take(rows))
            x, mask = np.concatenate([x, more]), np.concatenate([mask, more_mask])
        return (x, mask), self._targets(lesson)

    def _read(
        self, lesson: Lesson, one: Candidate
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the features that a probe reads, and targets by goal."""
        parts = [self.source.features[self.bought]]
        if lesson != "bootstrap":
            source, rows = self._more(lesson)
            parts.append(source.features[rows])
        return self._columns(np.concatenate(parts), one), self._targets(lesson)

    def _columns(self, features: np.ndarray, one: Candidate) -> np.ndarray:
        width = self.target.config.hidden
        columns = [features[:, i * width : (i + 1) * width] for i in one.layers]
        return np.concatenate(columns, axis=1)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Replace NaN and inf by -inf, so that overflowed scores rank last."""
    return np.nan_to_num(scores, nan=-np.inf, posinf=-np.inf)


def _whole(target: Target) -> Spec:
    """Describe all layers and heads of a model, exact: emulators are fitted to it."""
    config = target.config
    return Spec(
        config.layers,
        config.heads,
        attention="exact",
        norm="exact",
        ffn="relu" if config.activation == "relu" else "gelu",
        read="mean",
        secure="exact",
    )


def _refusal(proxy: Proxy, x: np.ndarray, mask: np.ndarray | None) -> str:
    """Return why a selection would refuse a proxy, by its scores of these samples."""
    try:
        logits = proxy.logits(x, mask)
        scores = proxy.scores(logits)
        if proxy.manifest.score.secure.family == "mlp":
            check_monotonicity(scores, entropy(logits - proxy.params["offset"]))
    except ValueError as error:
        return str(error)
    return ""
