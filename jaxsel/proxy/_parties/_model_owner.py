"""The model owner's first steps: plan the phases, and learn from the bootstrap set."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np

from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._inputs.show import brief
from jaxsel.models import Target, finetune
from jaxsel.proxy._manifest import KINDS, Kind, Manifest
from jaxsel.proxy._spec import Spec, probe_manifest
from jaxsel.proxy._training._build import target_manifest

from ._bootstrap import bootstrap_size, draw_bootstrap
from ._messages import Bootstrap, Offer, Plan, check_labels
from ._plan import Phase, ProbeSpec, Samples, Training, check_inputs, required
from ._proxy_maker import ProxyMaker


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ModelOwner:
    """The model owner's side of a selection in phases.

    Its steps, in order: `plan` answers the data owner's offer, `learn` takes the
    bootstrap set, and the `ProxyMaker` that it returns makes the phases' proxies.

    Attributes:
        schedule: The phases, the cheapest first.
        budget: Samples to buy, the bootstrap set counted.
        secret: Key of all that is random, but the bootstrap set: with a known key and a
            public base model, the data owner could train the same target.
        target: The public base model with a head of C classes; needed by proxies, and
            by probes unless their goal is "labels".
        n_classes: C, if there is no target.
        bootstrap: Share of the pool that is drawn at random.
        kind: Score that ranks samples, see `score`; the prior is that of the
            bootstrap set, each class counted once more than it is there.
        distil: Unlabelled samples that the model owner has.
        tuning: How the target is fine-tuned.
        heads: Which heads a proxy keeps: the most important ones, by their weights or
            by the gradient of the loss on the bootstrap set.

    Raises:
        TypeError: If `distil` holds other inputs than the target reads.
        ValueError: If a setting is out of range, or something that a phase needs is
            missing: the phase is named.
    """

    schedule: Sequence[Phase]
    budget: int
    secret: jax.Array = dataclasses.field(repr=False)
    target: Target | None = dataclasses.field(default=None, repr=False)
    n_classes: int | None = None
    bootstrap: float = 0.05
    kind: Kind = "entropy"
    distil: Samples | None = dataclasses.field(default=None, repr=False)
    tuning: Training = Training(6, 16, 1e-4)
    heads: Literal["weights", "gradient"] = "weights"

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", tuple(self.schedule))
        check_choice("kind", self.kind, KINDS)
        check_choice("heads", self.heads, ("weights", "gradient"))
        for i, phase in enumerate(self.schedule):
            if _needs_target(phase) and self.target is None:
                raise ValueError(f"target must be given for schedule[{i}], got None")
            if self.distil is not None and phase.goal != "labels":
                inputs = self.distil.inputs is not None
                features = self.distil.features is not None
                _check_parts("distil", inputs, features, phase, i)
        if self.distil is not None:
            check_inputs("distil", self.distil, self.target)
        if self._n_classes is None:
            raise ValueError(
                "n_classes must be given if there is no target, and a target must have "
                "a head: got None"
            )

    @property
    def _n_classes(self) -> int | None:
        return self.n_classes if self.target is None else self.target.n_classes

    @property
    def base(self) -> Target | None:
        """The target as it came, or None if no phase needs it."""
        return self.target if any(map(_needs_target, self.schedule)) else None

    def plan(self, offer: Offer) -> Plan:
        """Answer an offer with the sizes of the purchase and the proxies' architecture.

        Settings that would fail after the bootstrap set is bought are refused here.

        Raises:
            ValueError: If the schedule does not lead to the budget, or the pool, the
                target or `distil` does not have what a phase reads.
        """
        for i, phase in enumerate(self.schedule):
            inputs, features = offer.inputs is not None, offer.features is not None
            _check_parts("pool", inputs, features, phase, i)
        if self.distil is not None:
            _check_like_pool(self.distil, offer)
        bought = bootstrap_size(offer.n, self.bootstrap)
        n_classes = required("n_classes", self._n_classes)
        return Plan(
            n=offer.n,
            bootstrap=self.bootstrap,
            n_classes=n_classes,
            keeps=_keeps(offer.n, bought, self.schedule, self.budget),
            manifests=tuple(
                self._manifest(phase.proxy, offer, n_classes) for phase in self.schedule
            ),
        )

    def learn(
        self,
        plan: Plan,
        sold: Bootstrap,
        *,
        key: jax.Array,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool = False,
    ) -> ProxyMaker:
        """Fine-tune the target on the bootstrap set, if a phase needs it.

        Args:
            plan: The result of `plan`.
            sold: The bootstrap set, from the data owner.
            key: The joint key that the bootstrap set must have been drawn with.
            checkpoint: Folder in which the training's state is saved; a run that was
                killed resumes there.
            progress: Show a bar.

        Raises:
            ValueError: If other rows than the key's were sold, labels lie out of range,
                or the training diverges.
        """
        if not np.array_equal(sold.rows, draw_bootstrap(key, plan.n, plan.bootstrap)):
            raise ValueError("sold must hold the rows that the joint key draws")
        y = check_labels(sold.labels, len(sold.rows), plan.n_classes)
        sold = dataclasses.replace(sold, labels=y)
        tuned = None
        if self.base is not None:
            tuned = self.tune(sold, checkpoint=checkpoint, progress=progress)
        return ProxyMaker(owner=self, plan=plan, sold=sold, tuned=tuned)

    def tune(
        self,
        sold: Bootstrap,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool = False,
    ) -> Target:
        """Return the target, fine-tuned on the bootstrap set; part of `learn`.

        Args:
            sold: The bootstrap set.
            checkpoint: Folder in which the training's state is saved.
            progress: Show a bar.

        Raises:
            ValueError: If there is no target, or the training diverges.
        """
        target = required("target", self.target)
        trained = finetune(
            target.graphdef,
            target.params,
            sold.samples.inputs,
            sold.labels,
            key=jax.random.fold_in(self.secret, 0),
            checkpoint=checkpoint,
            progress=progress,
            **dataclasses.asdict(self.tuning),
        )
        if trained.stopped:
            raise ValueError(f"fine-tuning the target failed: {trained.stopped}")
        return dataclasses.replace(target, params=trained.params)

    def _manifest(
        self, spec: Spec | ProbeSpec, offer: Offer, n_classes: int
    ) -> Manifest:
        if isinstance(spec, ProbeSpec):
            (width,) = required("features", offer.features)
            return probe_manifest(
                width=width, n_classes=n_classes, head=spec.hidden, score=self.kind
            )
        inputs = required("inputs", offer.inputs)
        return target_manifest(
            spec,
            required("target", self.target),
            length=inputs[0][0] if offer.tokens else None,
            n_classes=n_classes,
            score=self.kind,
        )


def _needs_target(phase: Phase) -> bool:
    return isinstance(phase.proxy, Spec) or phase.goal != "labels"


def _check_parts(name: str, inputs: bool, features: bool, phase: Phase, i: int) -> None:
    """Raise if samples lack the inputs or the features that phase i reads."""
    probe = isinstance(phase.proxy, ProbeSpec)
    if probe and not features:
        raise ValueError(f"{name} must have features for schedule[{i}]")
    if (not probe or phase.goal != "labels") and not inputs:
        raise ValueError(f"{name} must have inputs for schedule[{i}]")


def _check_like_pool(distil: Samples, offer: Offer) -> None:
    """Raise if rows of `distil` have other shapes than the pool's."""
    features = None if offer.features is None else (offer.features,)
    for part, wanted in (("inputs", offer.inputs), ("features", features)):
        shapes = tuple(
            np.shape(leaf)[1:] for leaf in jax.tree.leaves(getattr(distil, part))
        )
        if shapes and wanted and shapes != wanted:
            raise ValueError(
                f"distil.{part} must have rows of shape {wanted[0]} as the pool's, "
                f"got {shapes[0]}"
            )


def _keeps(
    n: int, bought: int, schedule: Sequence[Phase], budget: int
) -> tuple[int, ...]:
    """Return how many rows each phase leaves, without the bootstrap set.

    Raises:
        ValueError: If that does not get fewer from phase to phase.
    """
    if not schedule:
        raise ValueError("schedule must hold at least one phase")
    if not bought < check_count("budget", budget) < n:
        raise ValueError(
            f"budget must be above the bootstrap set's {bought} samples and below the "
            f"pool's {n}, got {budget}"
        )
    keeps: list[int] = []
    before = n - bought
    for i, phase in enumerate(schedule):
        last = i == len(schedule) - 1
        if last != (phase.keep is None):
            raise ValueError(
                f"schedule[{i}].keep must be "
                f"{'None: the last phase leaves the budget' if last else 'a share'}, "
                f"got {phase.keep}"
            )
        keep = (budget if phase.keep is None else round(phase.keep * n)) - bought
        if not 0 < keep < before or keep < budget - bought:
            raise ValueError(
                f"schedule[{i}].keep must leave fewer than the {before + bought} "
                f"samples before it, and at least the budget {budget}, got "
                f"{keep + bought}"
            )
        keeps.append(keep)
        before = keep
    return tuple(keeps)
