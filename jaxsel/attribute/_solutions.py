"""Right sides of an influence, and scores of the solutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from ._recipe import Output, Recipe


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
        solution: One row a target.
    """
    flat, unravel = ravel_pytree(params)

    def of_chunk(chunk: Any) -> jax.Array:
        x, y, _ = chunk
        _, along = jax.linearize(
            lambda p: recipe.losses(recipe.apply(unravel(p), x), y), flat
        )
        return jax.vmap(along)(solution)

    parts = jax.lax.map(of_chunk, chunks)
    return jnp.moveaxis(parts, 1, 0).reshape(len(solution), -1)
