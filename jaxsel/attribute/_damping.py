"""A damping that a training itself implies."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import jit, tree_map

from ._recipe import Recipe

_SLOPE = 1e-6  # small enough for limits on the length of a gradient


def default_damping(recipe: Recipe, trained: Any, n: int) -> float:
    """Return 1/T, with T the mean way of a parameter per unit of constant gradient.

    After T along a quadratic with curvature c, gradient flow has reached 1 - exp(-c T)
    of the way to the minimum, and 1/(c + 1/T) is close to that divided by c.

    Args:
        recipe: The training.
        trained: Parameters with a leading axis, one entry a run.
        n: Number of samples.

    Raises:
        ValueError: If the way is not in proportion to the gradient.
    """
    zeros = tree_map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), trained)
    # Twice the gradient must go twice as far: Adam's steps hardly depend on its length,
    # so that no time T follows from them.
    once, twice = (
        float(_way(recipe, zeros, factor * _SLOPE, steps=recipe.steps(n))) / _SLOPE
        for factor in (1.0, 2.0)
    )
    if not np.isfinite(twice) or once <= 0 or abs(twice / once - 2) > 0.02:
        raise ValueError(
            "damping must be stated for an optimizer whose steps are not in proportion "
            "to the gradient, such as Adam, got None: choose it on subsets that do not "
            "score it"
        )
    return 1 / once


@jit(static_argnames=("recipe", "steps"))
def _way(recipe: Recipe, params: Any, slope: float, *, steps: int) -> jax.Array:
    """Return the mean way of the parameters from 0 against a constant gradient."""
    import optax

    gradient = tree_map(lambda leaf: jnp.full_like(leaf, slope), params)

    def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        params, state = carry
        updates, state = recipe.optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    start = params, recipe.optimizer.init(params)
    (params, _), _ = jax.lax.scan(step, start, None, length=steps)
    leaves = jax.tree.leaves(params)
    total = sum((jnp.sum(leaf) for leaf in leaves), jnp.zeros(()))
    return -total / sum(leaf.size for leaf in leaves)
