"""Influence by EK-FAC alone, an approximation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, Shaped

from ._ekfac import ekfac
from ._ekfac_matrix import Ekfac, product
from ._gauss_newton import Influence, chunks_of
from ._recipe import Output, Recipe
from ._solutions import (
    FEW,
    by_batches,
    over_targets,
    rows_at_once,
    solution_scores,
    target_gradients,
)


def ekfac_influence(
    recipe: Recipe,
    params: Any,
    x: Shaped[jax.Array, "n ..."],
    y: Shaped[jax.Array, " n"],
    x_val: Shaped[jax.Array, "t ..."],
    y_val: Shaped[jax.Array, " t"],
    damping: Float[jax.Array, ""] | float,
    *,
    output: Output = "loss",
    of_mean: bool = False,
    chunk_size: int = 64,
) -> Influence:
    """Approximate the influence of each sample on each target: a pure kernel.

    The scores of `gauss_newton` with the approximate matrix of `ekfac` in place of the
    exact one: layers are independent of each other, and each is diagonal in its basis.

    Args:
        recipe: The model and its loss.
        params: Trained parameters.
        x: Training samples, `[n, ...]`.
        y: Labels or targets, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        damping: Above 0.
        output: The output of a target: see `Recipe.measure`.
        of_mean: Whether to solve for the mean over targets, `[1, n]`.
        chunk_size: Samples whose inputs and deltas are in memory at once.

    Returns:
        As `gauss_newton`; `peak` is the largest eigenvalue of the approximation. Costs
        those of `ekfac`, and of `solution_scores`.
    """
    n = x.shape[0]
    chunks = chunks_of(x, y, min(chunk_size, n))
    approximate = ekfac(recipe, params, chunks)
    if of_mean or y_val.shape[0] <= FEW:
        targets = target_gradients(
            recipe, params, x_val, y_val, output, of_mean=of_mean
        )
        solution = approximate.solve(targets, damping)
        scores = solution_scores(recipe, params, chunks, solution)
    else:
        pairs = _Pairs(recipe, approximate, damping, chunks, y_val.shape[0])
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
        kernel = functools.partial(pairs.scores, output)
        scores = over_targets(kernel, x_val, y_val, size)
    return Influence(-scores[:, :n] / n, approximate.peak, approximate.convexity)


class _Pairs:
    """Products of many targets' solutions with samples' gradients.

    A gradient in a layer is the product of inputs and deltas, summed over positions:
    to turn these into the eigenbases takes `positions · (in² + out²)` multiplications,
    and the gradient itself `in · out · (in + out)`.
    """

    def __init__(
        self,
        recipe: Recipe,
        approximate: Ekfac,
        damping: jax.Array | float,
        chunks: tuple[jax.Array, ...],
        targets: int,
    ):
        self.recipe, self.approximate, self.damping = recipe, approximate, damping
        self.chunks = chunks
        x, y, _ = chunks
        inputs = jax.eval_shape(lambda x: approximate.layers.vjp(x)[1], x[0])
        # Either samples are turned, or solutions are turned back.
        forth = back = 0
        for part, block in zip(inputs, approximate.blocks, strict=True):
            rows, columns = block.eigenvalues.shape
            forth += part.shape[1] * (rows**2 + columns**2) * y.size
            back += rows * columns * (rows + columns) * targets
        self.turns_samples = forth < back

    def scores(self, output: Output, x_val: jax.Array, y_val: jax.Array) -> jax.Array:
        """Return the scores of samples for targets, `[t, samples]`."""
        diagonal = self.approximate.diagonal
        squares = self._rest(self.approximate.unravel(diagonal))
        size = rows_at_once(diagonal.size, len(y_val))

        def solution(target: tuple[jax.Array, jax.Array]) -> list[jax.Array]:
            x, y = target
            parts, rest = self._gradient(
                x, lambda values: self.recipe.measure(output, values, y[None])[0], True
            )
            blocks = self.approximate.blocks
            parts = [
                part / (block.eigenvalues + self.damping)
                for part, block in zip(parts, blocks, strict=True)
            ]
            if not self.turns_samples:
                parts = [
                    product(product(block.inputs, part), block.deltas.T)
                    for part, block in zip(parts, blocks, strict=True)
                ]
            return parts + [
                part / (square + self.damping)
                for part, square in zip(rest, squares, strict=True)
            ]

        solutions = [
            part.reshape(len(y_val), -1)
            for part in jax.lax.map(
                solution, (x_val, y_val), batch_size=min(size, len(y_val))
            )
        ]

        def gradient(x: jax.Array, y: jax.Array) -> list[jax.Array]:
            parts, rest = self._gradient(
                x,
                lambda values: self.recipe.losses(values, y[None])[0],
                self.turns_samples,
            )
            return parts + rest

        def of_batch(x: jax.Array, y: jax.Array) -> jax.Array:
            products = [
                product(solution, part.reshape(len(y), -1).T)
                for solution, part in zip(
                    solutions, jax.vmap(gradient)(x, y), strict=True
                )
            ]
            return sum(products[1:], products[0])

        def of_chunk(chunk: Any) -> jax.Array:
            x, y, _ = chunk
            return by_batches(of_batch, x, y, size)

        parts = jax.lax.map(of_chunk, self.chunks)
        return jnp.moveaxis(parts, 1, 0).reshape(len(y_val), -1)

    def _gradient(
        self, x: jax.Array, measure: Callable[[jax.Array], jax.Array], turns: bool
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Return the gradient in layers, `[in, out]`, and by all other parameters."""
        values, inputs, back = self.approximate.layers.vjp(x[None])
        deltas, rest = back(jax.grad(measure)(values))
        parts = [(a[0], d[0]) for a, d in zip(inputs, deltas, strict=True)]
        if turns:
            parts = [
                (product(a, block.inputs), product(d, block.deltas))
                for (a, d), block in zip(parts, self.approximate.blocks, strict=True)
            ]
        return [product(a.T, d) for a, d in parts], [
            leaf[0] for leaf in self._rest(rest)
        ]

    def _rest(self, tree: Any) -> list[jax.Array]:
        leaves = jax.tree.leaves(tree)
        return [leaves[i] for i in self.approximate.layers.rest]
