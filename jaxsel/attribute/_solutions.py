"""Right sides of an influence, and scores of the solutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from ._recipe import Output, Recipe

_FEW = 50  # targets; for more, written gradients take less time
_NUMBERS = 2**25  # of samples' gradients that are in memory at once


def target_gradients(
    recipe: Recipe,
    params: Any,
    x_val: jax.Array,
    y_val: jax.Array,
    output: Output,
    *,
    of_mean: bool,
) -> jax.Array:
    """Return the gradient of each target's output, `[t, P]`, or the mean, `[1, P]`."""
    flat, unravel = ravel_pytree(params)

    def measured(flat: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return recipe.measure(output, recipe.apply(unravel(flat), x[None]), y[None])[0]

    def gradient(target: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jax.grad(measured)(flat, *target)

    targets = jax.lax.map(gradient, (x_val, y_val))
    return jnp.mean(targets, axis=0, keepdims=True) if of_mean else targets


def solution_scores(
    recipe: Recipe, params: Any, chunks: tuple[jax.Array, ...], solution: jax.Array
) -> jax.Array:
    """Return products of solutions `[t, P]` with samples' gradients, `[t, samples]`.

    Args:
        recipe: The model and its loss.
        params: Trained parameters.
        chunks: Samples as of `chunks_of`, and so in the result, with those that fill up
            the last chunk.
        solution: One row a target. For few targets each costs a forward-mode pass over
            all samples; for more, samples' gradients are written out and multiplied,
            which takes `P` multiplications a pair and a backward pass a sample.
    """
    flat, unravel = ravel_pytree(params)

    def losses(flat: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return recipe.losses(recipe.apply(unravel(flat), x), y)

    def loss(flat: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return losses(flat, x[None], y[None])[0]

    def of_sample(sample: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.matmul(solution, jax.grad(loss)(flat, *sample), precision="highest")

    def of_chunk(chunk: Any) -> jax.Array:
        x, y, _ = chunk
        if len(solution) > _FEW:
            size = max(_NUMBERS // flat.size, 1)
            return jax.lax.map(of_sample, (x, y), batch_size=min(size, len(x))).T
        _, along = jax.linearize(lambda flat: losses(flat, x, y), flat)
        return jax.vmap(along)(solution)

    parts = jax.lax.map(of_chunk, chunks)
    return jnp.moveaxis(parts, 1, 0).reshape(len(solution), -1)
