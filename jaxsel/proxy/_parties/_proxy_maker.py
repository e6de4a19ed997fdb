"""The model owner's later steps: make and train the proxy of each phase."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.show import brief
from jaxsel.models import Target, Tokens
from jaxsel.proxy._bounds import with_bounds
from jaxsel.proxy._exvivo import Source
from jaxsel.proxy._manifest import Kind, Manifest
from jaxsel.proxy._probe import fit_probe
from jaxsel.proxy._proxy import Proxy
from jaxsel.proxy._scores import log_prior, score
from jaxsel.proxy._spec import Spec
from jaxsel.proxy._training._build import embed, emulate, proxy_inputs, prune
from jaxsel.proxy._training._heads import gradient_importance
from jaxsel.proxy._training._invivo import (
    Goal,
    check_ranking,
    first_logits,
    refit_score,
    tune,
)

from ._messages import Bootstrap, Plan, Published
from ._plan import Phase, ProbeSpec, Samples, required

Folder = str | os.PathLike[str]


class Settings(Protocol):
    """The settings of a `ModelOwner` by which its proxies are made."""

    @property
    def schedule(self) -> Sequence[Phase]: ...
    @property
    def secret(self) -> jax.Array: ...
    @property
    def base(self) -> Target | None: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def distil(self) -> Samples | None: ...
    @property
    def heads(self) -> Literal["weights", "gradient"]: ...


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ProxyMaker:
    """Makes the proxies of a plan's phases; all of it is the model owner's secret.

    Attributes:
        owner: The model owner, with target and settings.
        plan: The plan, which both parties know.
        sold: The bootstrap set.
        tuned: The target, fine-tuned on it; None if no phase needs it.
    """

    owner: Settings
    plan: Plan
    sold: Bootstrap
    tuned: Target | None = dataclasses.field(repr=False)

    def make(
        self, i: int, *, checkpoint: Folder | None = None, progress: bool = False
    ) -> Proxy:
        """Return the proxy of phase i, trained, with bounds in its manifest.

        Args:
            i: The phase's place in the schedule, from 0.
            checkpoint: Folder in which the training's state is saved.
            progress: Show a bar.

        Raises:
            ValueError: If training diverges, or the proxy's emulated entropies do not
                rank as the exact ones do.
        """
        proxy, why = self.attempt(i, checkpoint=checkpoint, progress=progress)
        if why is not None:
            raise ValueError(f"training the proxy of phase {i} failed: {why}")
        return proxy

    def attempt(
        self, i: int, *, checkpoint: Folder | None = None, progress: bool = False
    ) -> tuple[Proxy, str | None]:
        """Return the proxy of phase i, and why `make` would refuse it, if it would.

        After a training that diverged it has the best parameters until then.
        """
        phase = self.owner.schedule[i]
        # 0 and 1 are for the target's tuning and the emulators ex vivo.
        key = jax.random.fold_in(self.owner.secret, 2 + i)
        if isinstance(phase.proxy, ProbeSpec):
            keys = jax.random.fold_in(key, 0), jax.random.fold_in(key, 1)
            proxy, logits = self._probe(i, phase, phase.proxy, *keys)
        else:
            untrained = self._untrained[phase.proxy, *_lesson_ex_vivo(phase)]
            samples, targets = self._lessons(phase.goal, features=False)
            base = required("target", self.owner.base)
            read = proxy_inputs(untrained.manifest, base, samples.inputs)
            proxy, trained = tune(
                untrained,
                *read,
                targets,
                goal=phase.goal,
                key=jax.random.fold_in(key, 1),
                min_correlation=None,
                checkpoint=checkpoint,
                progress=progress,
                **dataclasses.asdict(phase.training),
            )
            if trained.stopped:
                return self._bounded(proxy), (
                    f"{trained.stopped}. Lower its learning rate, or take fewer layers "
                    "or a lower power for attention"
                )
            if phase.refit:
                source, n_points = _lesson_ex_vivo(phase)
                refit_key = jax.random.fold_in(key, 2)
                bought = proxy_inputs(proxy.manifest, base, self.sold.samples.inputs)
                proxy = refit_score(
                    proxy, *bought, key=refit_key, source=source, n_points=n_points
                )
            logits = first_logits(proxy, *read)
        try:
            check_ranking(proxy, logits, min_correlation=phase.min_correlation)
        except ValueError as error:
            return self._bounded(proxy), str(error)
        return self._bounded(proxy), None

    def restore(self, i: int, arrays: Mapping[str, npt.ArrayLike]) -> Proxy:
        """Return the proxy of phase i from the arrays that it had when it was made."""
        return self._bounded(Proxy.from_arrays(self.plan.manifests[i], arrays))

    def prepare(
        self, *, checkpoint: Folder | None = None, progress: bool = False
    ) -> Prepared:
        """Make the proxies of all phases, for the secure run.

        Args:
            checkpoint: Folder in which the state of each training is saved.
            progress: Show bars.

        Raises:
            ValueError: As `make` does.
        """
        places = [
            None if checkpoint is None else Path(checkpoint) / f"phase-{i}"
            for i in range(len(self.plan.keeps))
        ]
        proxies = tuple(
            self.make(i, checkpoint=place, progress=progress)
            for i, place in enumerate(places)
        )
        published = Published(
            n=self.plan.n,
            bootstrap=tuple(self.sold.rows.tolist()),
            keeps=self.plan.keeps,
            manifests=tuple(proxy.manifest for proxy in proxies),
        )
        return Prepared(published=published, proxies=proxies)

    @functools.cached_property
    def _prior(self) -> np.ndarray | None:
        """Class shares that scores are corrected by, `[C]`."""
        if self.owner.kind != "prior_entropy":
            return None
        y, n_classes = self.sold.labels, self.plan.n_classes
        # Laplace's rule: a class that the bootstrap set lacks keeps a share.
        return (np.bincount(y, minlength=n_classes) + 1) / (len(y) + n_classes)

    @functools.cached_property
    def _untrained(self) -> dict[tuple[Spec, Source, int], Proxy]:
        """Proxies before in vivo training, by spec and ex vivo samples.

        The emulators of phases that learn from the same samples are fitted in one loop.
        """
        base, tuned = (
            required("target", self.owner.base),
            required("target", self.tuned),
        )
        inputs: Any = self.sold.samples.inputs
        importance = None
        if self.owner.heads == "gradient":
            importance = gradient_importance(tuned, inputs, self.sold.labels)
        groups: dict[tuple[Source, int], dict[Spec, Manifest]] = {}
        for phase, manifest in zip(
            self.owner.schedule, self.plan.manifests, strict=True
        ):
            if isinstance(phase.proxy, Spec):
                group = groups.setdefault(_lesson_ex_vivo(phase), {})
                group[phase.proxy] = manifest
        rows = embed(base, inputs)
        proxies: dict[tuple[Spec, Source, int], Proxy] = {}
        for (source, n_points), described in groups.items():
            cut = [
                self._with_prior(prune(tuned, manifest, importance=importance))
                for manifest in described.values()
            ]
            fitted = emulate(
                cut,
                *rows,
                key=jax.random.fold_in(self.owner.secret, 1),
                ids=inputs.ids if isinstance(inputs, Tokens) else None,
                source=source,
                n_points=n_points,
            )
            for spec, proxy in zip(described, fitted, strict=True):
                proxies[spec, source, n_points] = proxy
        return proxies

    def _lessons(self, goal: Goal, *, features: bool) -> tuple[Samples, np.ndarray]:
        """Return samples to train a proxy on, with features if asked, and targets."""
        sold, distil = self.sold.samples, self.owner.distil
        if goal == "labels":
            return sold, self.sold.labels
        parts = [sold] if distil is None else [distil, sold]
        inputs = jax.tree.map(
            lambda *arrays: np.concatenate(arrays), *(part.inputs for part in parts)
        )
        read = None
        if features:
            read = np.concatenate([np.asarray(part.features) for part in parts])
        samples = Samples(inputs, read)
        if goal == "ranks":
            return samples, self.target_scores(inputs)
        return samples, required("target", self.tuned).logits(inputs)

    def target_scores(self, inputs: Any) -> np.ndarray:
        """Return the scores that proxies stand in for, `[n]`: the tuned target's own.

        Args:
            inputs: n samples as the target reads them.
        """
        logits = required("target", self.tuned).logits(inputs)
        ranks = score(jnp.asarray(logits), self.owner.kind, prior=self._prior)
        return np.asarray(ranks)

    def _probe(
        self,
        i: int,
        phase: Phase,
        spec: ProbeSpec,
        fit_key: jax.Array,
        head_key: jax.Array,
    ) -> tuple[Proxy, np.ndarray]:
        samples, targets = self._lessons(phase.goal, features=True)
        features = required("features", self.sold.samples.features)
        head = fit_probe(
            required("features", samples.features),
            targets,
            loss=phase.goal,
            n_classes=self.plan.n_classes,
            key=head_key,
            **dataclasses.asdict(spec),
        )
        proxy = Proxy.of_probe(self.plan.manifests[i], head)
        if phase.goal != "ranks":  # ranks are of corrected scores already
            proxy = self._with_prior(proxy)
        # Logits of a few dozen samples show too little of the pool's distribution.
        distil, known = self.owner.distil, np.asarray(features)
        if distil is not None and distil.features is not None:
            known = np.concatenate([distil.features, known])
        source, n_points = _lesson_ex_vivo(phase)
        (proxy,) = emulate(
            [proxy], known, None, key=fit_key, source=source, n_points=n_points
        )
        return proxy, proxy.logits(features)

    def _with_prior(self, proxy: Proxy) -> Proxy:
        """Subtract the log prior from the logits, if there is one."""
        if self._prior is None:
            return proxy
        offset = log_prior(self._prior, self.plan.n_classes)
        return Proxy(proxy.manifest, proxy.params | {"offset": offset})

    def _bounded(self, proxy: Proxy) -> Proxy:
        """Return a proxy with bounds on its numbers, measured on the bootstrap set."""
        sold = self.sold.samples
        if not proxy.manifest.layers:
            return with_bounds(proxy, required("features", sold.features))
        base = required("target", self.owner.base)
        return with_bounds(proxy, *proxy_inputs(proxy.manifest, base, sold.inputs))


def _lesson_ex_vivo(phase: Phase) -> tuple[Source, int]:
    """Return the source of a phase's ex vivo training and its number of samples."""
    usual: Source = "both" if isinstance(phase.proxy, ProbeSpec) else "rows"
    return phase.source or usual, phase.n_points


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """The phases that a model owner has prepared for the secure run.

    Attributes:
        published: The public part, for the data owner.
        proxies: The proxy of each phase: their parameters are secret.
    """

    published: Published
    proxies: tuple[Proxy, ...] = dataclasses.field(repr=False)
