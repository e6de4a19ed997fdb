"""Examples that learners are trained on: features, and classes or targets."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, runtime_checkable

import jax
from jaxtyping import Float, Key, Shaped

from jaxsel._inputs.show import brief


@brief
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
    """Training data of a learner.

    Attributes:
        x: Features, `[n, d]`; examples of any shape `[n, ...]` for Flax models.
        y: Classes `[n]`, integers in `[0, n_classes)`, or targets `[n]`, floats.
        extra: Results that the learner precomputed in `prepare`.
        n_classes: Number of classes; 0 where y holds targets.
    """

    x: jax.Array
    y: jax.Array
    extra: Any = None
    n_classes: int = dataclasses.field(default=0, metadata={"static": True})


@runtime_checkable
class Learner(Protocol):
    """A model that is trained on many weighted subsets of one data set at once.

    Learners are immutable and hashable: their fields are hyperparameters. One with a
    true attribute `shift_invariant`, whose predictions stay as they are when a constant
    is added to a column, gets columns far from zero nearer to it, and their digits.
    """

    @property
    def probabilistic(self) -> bool:
        """True if scores are log probabilities, up to a constant for each sample."""
        ...

    @property
    def regression(self) -> bool:
        """True if targets may be numbers."""
        ...

    @property
    def warm(self) -> bool:
        """True if `fit` uses `start`."""
        ...

    @property
    def host(self) -> bool:
        """True if it runs outside JAX: no `jit`, no devices."""
        ...

    def prepare(self, data: Examples) -> Examples:
        """Return the examples with `extra`, arrays that `fit` shares among subsets."""
        ...

    def fit(
        self,
        data: Examples,
        weights: Shaped[jax.Array, "B n"],
        key: Key[jax.Array, ""] | None,
        start: Any = None,
    ) -> Any:
        """Train on each of B weighted subsets.

        Args:
            data: Of `prepare`.
            weights: `[B, n]`, how often each example counts, 0 for not at all.
            key: One key for all subsets, or None; a learner that draws refuses that.
            start: Parameters of similar subsets, to begin from.

        Returns:
            Parameters of all B models. With an attribute `converged`, `[B]`, those for
            which it is false are counted as failures, with a warning.
        """
        ...

    def predict(
        self, params: Any, x: Shaped[jax.Array, "m ..."]
    ) -> Float[jax.Array, "B m C"]:
        """Return the scores of samples, `[B, m, classes]` or `[B, m, 1]`.

        The highest is the class predicted; -inf for classes that a subset lacks. A
        learner that runs outside JAX returns NaN for a subset on which it failed.
        """
        ...


def host_workers(learner: Learner) -> int | None:
    """Return how many subsets a learner of the host trains at once; None on devices."""
    return getattr(learner, "workers", 1) if learner.host else None
