"""Dense gradients: the rows of a matrix in memory."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy.typing as npt
from jaxtyping import Float

from jaxsel._inputs.checks import widen

from ._oracle import Gradient, Oracle, grouped_rows, products
from ._shards import finite_rows


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class Dense(Oracle):
    """Gradients as the rows of a matrix; `dense` makes it, checked.

    Attributes:
        gradients: Array of shape `[n, p]`.
    """

    gradients: jax.Array

    def diag(self) -> Float[jax.Array, " n"]:
        return jnp.sum(widen(self.gradients) ** 2, axis=-1)

    def rows_held(self) -> Float[jax.Array, "n p"]:
        return self.gradients

    def corr(self, v: Gradient) -> Float[jax.Array, " n"]:
        return jnp.matmul(widen(self.gradients), v, precision="highest")

    def gram(self, atoms: Dense) -> Float[jax.Array, "m n"]:
        return products(atoms.gradients, self.gradients)

    def combine(self, weights: Float[jax.Array, " n"]) -> Gradient:
        return jnp.matmul(weights, widen(self.gradients), precision="highest")

    def group(self, rows: jax.Array, shares: jax.Array) -> Dense:
        return Dense(grouped_rows(self.gradients, rows, shares))


def dense(gradients: npt.ArrayLike | jax.Array) -> Dense:
    """Wrap gradients, or any vectors to be matched, that fit in memory.

    Args:
        gradients: Array of shape `[n, p]`: one row a candidate. One that is split over
            the devices of a mesh stays so.

    Returns:
        An oracle; a column costs n·p multiply-adds.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they are not of shape `[n, p]`, are empty, or are not finite.
    """
    return Dense(finite_rows("gradients", gradients))
