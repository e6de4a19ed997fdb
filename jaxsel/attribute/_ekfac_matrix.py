"""A Gauss-Newton matrix in the eigenbases of layers' Kronecker factors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxsel.gradients import FollowedLayers


class Block(NamedTuple):
    """A layer's block of the matrix, diagonal in a product of two bases.

    Attributes:
        inputs: The basis of the inputs, in columns, `[in, in]`.
        deltas: The basis of the deltas, `[out, out]`.
        eigenvalues: Mean squares of the roots' gradients in these bases, `[in, out]`.
    """

    inputs: jax.Array
    deltas: jax.Array
    eigenvalues: jax.Array


@dataclasses.dataclass(frozen=True)
class Ekfac:
    """An approximation of a Gauss-Newton matrix, within one trace.

    Attributes:
        layers: Layers that were followed.
        unravel: From `[P]` to the parameters.
        blocks: One a layer.
        diagonal: The matrix's diagonal at all other parameters, 0 at layers', `[P]`.
        others: 1 at all other parameters, 0 at layers', `[P]`.
        convexity: The least eigenvalue of the loss by the outputs, over all samples.
    """

    layers: FollowedLayers
    unravel: Callable[[jax.Array], Any]
    blocks: list[Block]
    diagonal: jax.Array
    others: jax.Array
    convexity: jax.Array

    @property
    def peak(self) -> jax.Array:
        """Return the largest eigenvalue, without the damping."""
        parts = [self.diagonal, *(b.eigenvalues.reshape(-1) for b in self.blocks)]
        return jnp.max(jnp.concatenate(parts))

    def solve(
        self, rows: jax.Array, damping: jax.Array | float, power: float = 1.0
    ) -> jax.Array:
        """Multiply rows by a power of the inverse of the damped matrix.

        Args:
            rows: `[t, P]`.
            damping: Added to all eigenvalues.
            power: 1 for the inverse.

        Returns:
            `[t, P]`.
        """
        return self.multiply(
            rows, lambda part, squares: part / (squares + damping) ** power
        )

    def multiply(
        self, rows: jax.Array, function: Callable[[jax.Array, jax.Array], jax.Array]
    ) -> jax.Array:
        """Multiply rows by a function of the matrix.

        Args:
            rows: `[t, P]`.
            function: From coordinates in the eigenbasis, and their eigenvalues, to new
                coordinates: 0 to 0.

        Returns:
            `[t, P]`. Costs `in · out · 2 (in + out)` multiplications a row and layer.
        """

        def of_block(block: Block, part: jax.Array) -> jax.Array:
            turned = product(product(block.inputs.T, part), block.deltas)
            turned = function(turned, block.eigenvalues)
            return product(product(block.inputs, turned), block.deltas.T)

        scale = function(self.others, self.diagonal)

        def of_row(row: jax.Array) -> jax.Array:
            parts = self.layers.matrices(self.unravel(row))
            parts = [of_block(*pair) for pair in zip(self.blocks, parts, strict=True)]
            return row * scale + ravel_pytree(self.layers.tree(parts))[0]

        return jax.vmap(of_row)(rows)


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Multiply two matrices in full precision, on accelerators too."""
    return jnp.matmul(a, b, precision="highest")
