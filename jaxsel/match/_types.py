"""Result of matching: a `Selection` with the quality of the fit."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import tree_map
from jaxsel._inputs.checks import is_readable
from jaxsel._inputs.show import compared
from jaxsel._results.types import Selection

BUDGET, TOLERANCE, EXHAUSTED, PRECISION, OVERFLOW = range(5)
REASONS = (
    "the budget is spent",
    "the target is matched within the tolerance",
    "no candidate is left that would bring the sum closer",
    "rounding keeps the sum from coming closer: raise l2, or match in float64",
    "squared lengths overflow: scale candidates and target, or match in float64",
)


@compared
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Match(Selection):
    """Weighted candidates that match a target, in the order of choice.

    With several targets every array has a leading axis, with an entry for each target;
    `match[t]` is the match of one target.

    Attributes:
        objective: Array of shape `[k]`: the objective after each step, ridge and
            penalty included; NaN from `steps` on. A step chooses one candidate, or one
            minibatch (`batch_size`).
        target_norm: Scalar: the squared length of the target, the objective before the
            first step.
        steps: Scalar int32: how many candidates, or minibatches, were chosen. Those
            whose weight returned to zero count here, but not in `n_valid`.
        status: Scalar int32: the reason for stopping; `reasons` has it in words.
        dropped: Scalar int32: how many chosen candidates, or minibatches, have returned
            to weight zero. If the budget is spent, so many fewer than the budget are
            left; a larger budget continues from the same choices. None in results
            that were saved before it was recorded.
        rounded: Scalar: whether a choice was in doubt, since its correlation with what
            is left of the target was not far above rounding. None in results that were
            saved before it was recorded.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> gradients = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
        >>> match = jaxsel.omp(gradients, np.array([1.0, 1.0]), 3, l2=0.0)
        >>> print(len(match), "chosen:", match.reasons)
        2 chosen: the target is matched within the tolerance
    """

    objective: jax.Array
    target_norm: jax.Array
    steps: jax.Array
    status: jax.Array
    dropped: jax.Array | None = None
    rounded: jax.Array | None = None

    def __repr__(self) -> str:
        text = super().__repr__()
        parts = (self.objective, self.target_norm, self.steps)
        if self.indices.ndim != 1 or not is_readable(*parts):
            return text
        # As `error`, without a computation by JAX.
        objective, norm, steps = map(np.asarray, parts)
        end = objective[steps - 1] if steps > 0 else norm
        return f"{text[:-1]}, error={end / (norm if norm > 0 else 1):.4g})"

    @property
    def error(self) -> jax.Array:
        """The objective at the end, relative to the target's squared length, `[]`."""
        last = jnp.maximum(self.steps - 1, 0)[..., None]
        end = jnp.take_along_axis(self.objective, last, axis=-1)[..., 0]
        end = jnp.where(self.steps > 0, end, self.target_norm)
        return end / jnp.where(self.target_norm > 0, self.target_norm, 1)

    @property
    def reasons(self) -> str | list[str]:
        """Reason for stopping, in words; a list with several targets."""
        codes = np.asarray(self.status)
        return REASONS[codes] if codes.ndim == 0 else [REASONS[code] for code in codes]

    def __iter__(self) -> Iterator[Any]:
        if self.indices.ndim == 1:
            return super().__iter__()
        return map(self.__getitem__, range(len(self.indices)))

    def __getitem__(self, key: Any) -> Any:
        """Return the match of one of several targets; of one, a position, see above."""
        if self.indices.ndim == 1:
            return super().__getitem__(key)
        target = operator.index(key)
        count = self.indices.shape[0]
        if not -count <= target < count:
            raise IndexError(f"target must lie in [{-count}, {count}), got {target}")
        return tree_map(lambda array: array[target], self).unpadded()
