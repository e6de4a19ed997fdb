"""The model owner's work between phases: making and training their proxies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel.models import Target, Tokens

from ._bounds import with_bounds
from ._build import embed, emulate, proxy_inputs, prune
from ._heads import gradient_importance
from ._invivo import Goal, check_ranking, tune
from ._manifest import Kind, Manifest
from ._plan import Phase, ProbeSpec, Samples
from ._probe import fit_probe
from ._proxy import Proxy
from ._scores import log_prior, score
from ._spec import Spec


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Maker:
    """Makes the phases' proxies: what the model owner does between them."""

    base: Target | None
    tuned: Target | None
    bought: Samples
    y: np.ndarray
    distil: Samples | None
    kind: Kind
    prior: np.ndarray | None
    classes: int
    heads: str
    descriptions: dict[Spec | ProbeSpec, Manifest]
    key: jax.Array
    progress: bool

    def make(self, i: int, phase: Phase, checkpoint: Path | None) -> Proxy:
        """Return the proxy of phase i, trained."""
        key = jax.random.fold_in(self.key, 2 + i)
        keys = [jax.random.fold_in(key, j) for j in range(2)]
        probe = isinstance(phase.proxy, ProbeSpec)
        samples, targets = self._lessons(phase.goal, probe=probe)
        if isinstance(phase.proxy, ProbeSpec):
            return self._probe(phase, phase.proxy, samples, targets, keys)
        assert self.base is not None
        untrained = self.untrained[phase.proxy]
        proxy, trained = tune(
            untrained,
            *proxy_inputs(untrained.manifest, self.base, samples.inputs),
            targets,
            goal=phase.goal,
            key=keys[1],
            min_correlation=phase.min_correlation,
            checkpoint=checkpoint,
            progress=self.progress,
            **dataclasses.asdict(phase.training),
        )
        if trained.stopped:
            raise ValueError(
                f"training the proxy of phase {i} failed: {trained.stopped}. Lower its "
                "learning rate, or take fewer layers or a lower power for attention"
            )
        return proxy

    def bounded(self, proxy: Proxy) -> Proxy:
        """Return a proxy with bounds on its numbers, those of the bootstrap set."""
        if not proxy.manifest.layers:
            assert self.bought.features is not None
            return with_bounds(proxy, self.bought.features)
        assert self.base is not None
        return with_bounds(
            proxy, *proxy_inputs(proxy.manifest, self.base, self.bought.inputs)
        )

    @functools.cached_property
    def untrained(self) -> dict[Spec, Proxy]:
        """The proxies of all phases before training, emulators fitted in one loop."""
        assert self.tuned is not None
        importance = None
        if self.heads == "gradient":
            importance = gradient_importance(self.tuned, self.bought.inputs, self.y)
        specs = [spec for spec in self.descriptions if isinstance(spec, Spec)]
        cut = [
            self._with_prior(
                prune(self.tuned, self.descriptions[spec], importance=importance)
            )
            for spec in specs
        ]
        assert self.base is not None
        inputs: Any = self.bought.inputs
        fitted = emulate(
            cut,
            *embed(self.base, inputs),
            key=jax.random.fold_in(self.key, 1),
            ids=inputs.ids if isinstance(inputs, Tokens) else None,
        )
        return dict(zip(specs, fitted, strict=True))

    def _lessons(self, goal: Goal, *, probe: bool) -> tuple[Samples, np.ndarray]:
        """Return what a proxy is trained on, and its targets."""
        if goal == "labels":
            return self.bought, self.y
        assert self.tuned is not None
        parts = [self.bought] if self.distil is None else [self.distil, self.bought]
        join = lambda *arrays: np.concatenate(arrays)
        inputs = jax.tree.map(join, *(part.inputs for part in parts))
        features = None
        if probe:
            features = np.concatenate([np.asarray(part.features) for part in parts])
        samples = Samples(inputs, features)
        logits = self.tuned.logits(inputs)
        if goal == "logits":
            return samples, logits
        ranks = score(jnp.asarray(logits), self.kind, prior=self.prior)
        return samples, np.asarray(ranks)

    def _probe(
        self,
        phase: Phase,
        spec: ProbeSpec,
        samples: Samples,
        targets: np.ndarray,
        keys: Sequence[jax.Array],
    ) -> Proxy:
        assert samples.features is not None
        assert self.bought.features is not None
        head = fit_probe(
            samples.features,
            targets,
            loss=phase.goal,
            classes=self.classes,
            key=keys[1],
            **dataclasses.asdict(spec),
        )
        proxy = Proxy.of_probe(self.descriptions[spec], head)
        proxy = self._with_prior(proxy, phase.goal)
        (proxy,) = emulate([proxy], self.bought.features, None, key=keys[0])
        logits = proxy.logits(self.bought.features)
        check_ranking(proxy, logits, min_correlation=phase.min_correlation)
        return proxy

    def _with_prior(self, proxy: Proxy, goal: Goal = "labels") -> Proxy:
        """Take the prior off the logits, unless they were trained without it."""
        if self.prior is None or (goal == "ranks" and not proxy.manifest.layers):
            return proxy
        offset = log_prior(self.prior, self.classes)
        return Proxy(proxy.manifest, proxy.params | {"offset": offset})
