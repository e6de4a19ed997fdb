"""Times and decays of the segments of a training, by its optimiser alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import jit, tree_map

from ._recipe import Recipe

_SLOPE = 1e-6  # small enough for limits on the length of a gradient
_NEAR = 0.02  # relative difference of ways that count as equal


def segment_times(
    recipe: Recipe, params: Any, stops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the time of each segment, and its decay.

    The time is the way that a gradient of 1 in all steps of the segment, and 0 in all
    others, takes each parameter until the end of the training: for SGD the sum of
    learning rate / (1 - momentum) over its steps, without the momentum that the end of
    the training cuts off. The decay is the way that a parameter of 1, in the same
    steps, takes towards 0.

    Args:
        recipe: The training.
        params: Parameters of one network, for their shapes.
        stops: The last step of each segment, `[L]`, rising.

    Returns:
        Times and decays, `[L]`.

    Raises:
        ValueError: If steps are not in proportion to the gradient, or differ between
            parameters.
    """
    zeros = tree_map(jnp.zeros_like, params)
    ways = np.asarray(_ways(recipe, zeros, jnp.asarray(stops), steps=int(stops[-1])))
    # Least and largest: of a gradient, of one twice as long, and of parameters.
    least, most = np.moveaxis(ways.astype(np.float64), -1, 0) / _SLOPE
    once, twice, decays = most
    peak = once.max()
    linear = np.abs(twice - 2 * once).max() <= _NEAR * peak
    uniform = np.all(most - least <= _NEAR * np.abs(most).max(axis=1, keepdims=True))
    if not (np.isfinite(ways).all() and peak > 0 and linear and uniform):
        raise ValueError(
            "optimizer must take steps in proportion to the gradient, at one rate and "
            "with one decay for all parameters: optax.sgd, with or without momentum, a "
            "schedule and weight decay. Adam, and others that rescale gradients, are "
            f"not: for these take network_influence with a damping, got {recipe!r}"
        )
    return once, np.maximum(decays, 0)


@jit(static_argnames=("recipe", "steps"))
def _ways(recipe: Recipe, zeros: Any, stops: jax.Array, *, steps: int) -> jax.Array:
    """Return least and largest ways against 0, `[3, L, 2]`."""
    starts = jnp.concatenate([jnp.zeros_like(stops[:1]), stops[:-1]])

    def way(gradient: jax.Array, parameter: jax.Array, start: Any, stop: Any) -> Any:
        def filled(value: jax.Array) -> Any:
            return tree_map(lambda leaf: jnp.full_like(leaf, value), zeros)

        def step(carry: tuple[Any, Any], number: jax.Array) -> tuple[Any, None]:
            moved, state = carry
            inside = (start <= number) & (number < stop)
            # Parameters are not moved on: a decay that fades with them would mix the
            # time of a segment with its decay.
            updates, state = recipe.optimizer.update(
                filled(jnp.where(inside, gradient, 0)),
                state,
                filled(jnp.where(inside, parameter, 0)),
            )
            return (tree_map(jnp.subtract, moved, updates), state), None

        begin = zeros, recipe.optimizer.init(zeros)
        (moved, _), _ = jax.lax.scan(step, begin, jnp.arange(steps))
        leaves = jax.tree.leaves(moved)
        least = jnp.min(jnp.stack([leaf.min() for leaf in leaves]))
        most = jnp.max(jnp.stack([leaf.max() for leaf in leaves]))
        return jnp.stack([least, most])

    gradients = jnp.array([_SLOPE, 2 * _SLOPE, 0])
    parameters = jnp.array([0, 0, _SLOPE])
    of_probe = jax.vmap(way, (None, None, 0, 0))
    return jax.vmap(of_probe, (0, 0, None, None))(gradients, parameters, starts, stops)
