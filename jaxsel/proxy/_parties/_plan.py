"""Parts of a selection in phases: samples, proxies to make, training."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any, TypeVar

import jax
import numpy as np

from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel._inputs.chunk import take_rows_at
from jaxsel._inputs.show import brief
from jaxsel.models import Target
from jaxsel.proxy._exvivo import SOURCES, Source
from jaxsel.proxy._spec import Spec
from jaxsel.proxy._training._invivo import Goal

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Training:
    """Length and speed of training.

    Attributes:
        epochs: Passes over the samples.
        batch_size: Samples in a step.
        learning_rate: The highest one.
    """

    epochs: float = 10
    batch_size: int = 32
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        check_positive("epochs", self.epochs)
        check_count("batch_size", self.batch_size)
        check_positive("learning_rate", self.learning_rate)


@dataclasses.dataclass(frozen=True)
class ProbeSpec:
    """A probe on public features of each sample; a linear one is one secure product.

    Attributes:
        hidden: Hidden ReLU units, 0 for a linear probe.
        l2: Weight of half the squared weights.
        steps: L-BFGS steps.
    """

    hidden: int = 0
    l2: float = 1e-3
    steps: int = 200

    def __post_init__(self) -> None:
        check_count("hidden", self.hidden, minimum=0)
        check_positive("l2", self.l2, zero=True)
        check_count("steps", self.steps)


@brief
@dataclasses.dataclass(frozen=True)
class Phase:
    """One pass over the rest of the pool, with one proxy.

    Attributes:
        proxy: A proxy of the target, or a probe on public features.
        keep: Share of the pool that is left afterwards, the bootstrap set counted;
            None in the last phase, which leaves the budget.
        goal: The targets of training: "labels" of the bootstrap set, or the tuned
            target's outputs on samples that the model owner has (`distil`) and on the
            bootstrap set: its "logits", or the "ranks" of its scores.
        training: For a proxy of the target; a probe needs none.
        min_correlation: The smallest rank correlation of emulated with exact entropies
            that is accepted, see `check_monotonicity`; None accepts any.
        source: Ex vivo training samples of its emulators' MLPs, see `train_mlps`:
            "rows", "gaussian" as in the paper, or "both". None takes "rows" for a proxy
            of the target and "both" for a probe.
        n_points: Samples that each of these MLPs sees; the paper synthesises 5.12
            million.
        refit: Whether a proxy's emulator of the entropy is trained again after the in
            vivo training, on the logits as they are then.
    """

    proxy: Spec | ProbeSpec
    keep: float | None = None
    goal: Goal = "labels"
    training: Training = Training()
    min_correlation: float | None = 0.9
    source: Source | None = None
    n_points: int = 1_024_000
    refit: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.proxy, Spec | ProbeSpec):
            raise TypeError(f"proxy must be a Spec or a ProbeSpec, got {self.proxy!r}")
        check_choice("goal", self.goal, ("labels", "logits", "ranks"))
        if not isinstance(self.training, Training):
            raise TypeError(f"training must be a Training, got {self.training!r}")
        check_choice("source", self.source, (None, *SOURCES))
        check_count("n_points", self.n_points)
        if not isinstance(self.refit, bool):
            raise TypeError(f"refit must be True or False, got {self.refit!r}")
        least = self.min_correlation
        if least is not None:
            if isinstance(least, bool) or not isinstance(least, numbers.Real):
                raise TypeError(
                    f"min_correlation must be a number or None, got {least!r}"
                )
            if not -1 <= least <= 1:
                raise ValueError(f"min_correlation must lie in [-1, 1], got {least}")
        if self.keep is not None and not 0 < self.keep < 1:
            raise ValueError(f"keep must lie between 0 and 1, got {self.keep}")


@brief
@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """Samples as a party holds them.

    Attributes:
        inputs: The target's inputs: `Tokens` or images, n of them; None if there are
            only probes.
        features: Of a public encoder, for probes, `[n, d]`; None if there are none.
    """

    inputs: Any = None
    features: np.ndarray | None = None

    def __post_init__(self) -> None:
        arrays = jax.tree.leaves((self.inputs, self.features))
        if not arrays or len({len(array) for array in arrays}) != 1:
            raise ValueError(
                "inputs and features must have one length, and one of them be given: "
                f"got lengths {[len(array) for array in arrays]}"
            )

    def __len__(self) -> int:
        return len(jax.tree.leaves((self.inputs, self.features))[0])

    def take(self, rows: np.ndarray) -> Samples:
        """Return the samples at `rows`."""
        return Samples(*take_rows_at((self.inputs, self.features), rows))


def check_inputs(name: str, samples: Samples, target: Target | None) -> None:
    """Check that samples' inputs fit a target.

    Raises:
        TypeError: If they are of another type.
        ValueError: If they do not fit the target.
    """
    if target is None or samples.inputs is None:
        return
    read = target.check(samples.inputs)
    if type(read) is not type(samples.inputs):
        raise TypeError(
            f"{name}.inputs must be {type(read).__name__}, got "
            f"{type(samples.inputs).__name__}"
        )


def required(name: str, value: _T | None) -> _T:
    """Return a value that must not be None.

    Raises:
        ValueError: If it is None; `name` stands in the message.
    """
    if value is None:
        raise ValueError(f"{name} must be given, got None")
    return value
