"""What matching returns: a `Selection` that also says how well it fits, and why."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._types import Selection

BUDGET, TOLERANCE, EXHAUSTED, PRECISION, OVERFLOW = range(5)
REASONS = (
    "the budget is spent",
    "the target is matched within the tolerance",
    "no candidate is left that would bring the sum closer",
    "rounding keeps the sum from coming closer: raise l2, or match in float64",
    "squared lengths overflow: scale candidates and target, or match in float64",
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Match(Selection):
    """Candidates whose weighted sum matches a target, in the order of choice.

    With several targets every array has a leading axis, one entry for each; `match[t]`
    is that of one target.

    Attributes:
        objective: Array of shape `[k]`: the objective after each step, ridge and
            penalty included; NaN from `steps` on. A step chooses one candidate, or one
            minibatch (`batch_size`).
        target_norm: Scalar: the squared length of the target, the objective before the
            first step.
        steps: Scalar int32: how many candidates, or minibatches, were chosen. Those
            whose weight went back to zero count here, but not in `n_valid`.
        status: Scalar int32: why it stopped; `reasons` says it in words.
        dropped: Scalar int32: how many of the steps went to candidates, or minibatches,
            whose weight went back to zero. Where the budget is spent, that is how many
            of it are missing: a larger one goes on from the same choices. None in
            results that were saved before it was recorded.
    """

    objective: jax.Array
    target_norm: jax.Array
    steps: jax.Array
    status: jax.Array
    dropped: jax.Array | None = None

    @property
    def error(self) -> jax.Array:
        """The objective at the end, relative to the target's squared length, `[]`."""
        last = jnp.maximum(self.steps - 1, 0)[..., None]
        end = jnp.take_along_axis(self.objective, last, axis=-1)[..., 0]
        end = jnp.where(self.steps > 0, end, self.target_norm)
        return end / jnp.where(self.target_norm > 0, self.target_norm, 1)

    @property
    def reasons(self) -> str | list[str]:
        """Why it stopped, in words; a list with several targets."""
        codes = np.asarray(self.status)
        return REASONS[codes] if codes.ndim == 0 else [REASONS[code] for code in codes]

    def __getitem__(self, target: int) -> Match:
        """Return the match of one of several targets."""
        if self.indices.ndim == 1:
            raise TypeError("this match has a single target")
        count = self.indices.shape[0]
        if not -count <= target < count:
            raise IndexError(f"target must lie in [{-count}, {count}), got {target}")
        return jax.tree.map(lambda array: array[target], self)
