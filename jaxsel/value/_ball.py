"""Closed balls: which points are no farther than a radius, decided exactly.

A distance from a float32 matrix product is off by more than what separates a point on
the border from one beyond it. How far off it can be is known, so the few points within
that of the radius are looked at again, as near ties are: by float64 distances of the
features as they were given.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsel._devices.typed import finfo
from jaxsel.neighbors import Exact, Metric
from jaxsel.neighbors._exact import (
    BY_QUERY,
    ROUNDING,
    TINY,
    once,
    true_distances,
)

_FEW, _MANY = 128, 1024  # points of the border that are decided together
_SLACK = 2  # how many epsilons of the features' type the border is wide


class Ball(NamedTuple):
    """A radius, a few epsilons wider, on the scale of `neighbors.distances`.

    Attributes:
        reach: Scalar, float32: the largest number that is no larger.
        limit: `[2]`, uint32: the halves of the number, a float64.
    """

    reach: Any
    limit: Any


def make_ball(
    x: np.ndarray | jax.Array,
    x_val: np.ndarray | jax.Array,
    radius: float,
    metric: Metric,
) -> Ball:
    """Prepare a radius for `in_ball`.

    Args:
        x: Training features, `[n, d]`, as they were given.
        x_val: Validation features, `[m, d]`.
        radius: A distance (not squared).
        metric: Distance.
    """
    epsilon = _SLACK * max(map(_epsilon, (x, x_val)))
    if metric == "cosine":  # half the square of the chord
        limit = (np.sqrt(2 * radius) * (1 + epsilon) + epsilon) ** 2 / 2
    else:
        # d / 2^53 is the rounding of a float64 sum of d squares: the border is inside.
        limit = (radius * (1 + epsilon + x.shape[1] * 2.0**-53)) ** 2
    limit = np.float64(limit)
    reach = np.float32(min(limit, np.finfo(np.float32).max))
    if reach > limit:
        reach = np.nextafter(reach, np.float32(0))
    return Ball(reach, limit.reshape(1).view(np.uint32))


def in_ball(distances: jax.Array, ball: Ball, exact: Exact | None) -> jax.Array:
    """Return which points lie in the closed ball around one query, `[n]`.

    Args:
        distances: Array of shape `[n]`, computed.
        ball: From `make_ball`.
        exact: Source of exact distances; None if `distances` are exact.
    """
    inside = distances <= ball.reach
    if exact is None:
        return inside
    room = exact.error + exact.query_error[0] + ball.reach * ROUNDING + TINY
    border = jnp.abs(distances - ball.reach) <= room

    def decide(size: int, state: tuple[jax.Array, jax.Array]) -> Any:
        inside, undecided = state
        # Padding has the index n: clipped for the gather, dropped by the scatter.
        index = jnp.nonzero(undecided, size=size, fill_value=n)[0].astype(jnp.int32)
        whose = jnp.minimum(index, n - 1)
        with jax.enable_x64(True):
            limit = lax.bitcast_convert_type(ball.limit, jnp.float64)
            near = true_distances(exact, whose) <= limit
        return (
            inside.at[index].set(near, mode="drop"),
            undecided.at[index].set(False, mode="drop"),
        )

    n = len(distances)
    state = inside, border
    if n > _MANY:  # a border that wide is rare: all at once
        state = once(jnp.sum(border) > _MANY, partial(decide, n), state)
    few = partial(decide, min(n, _FEW))
    return lax.while_loop(lambda state: jnp.any(state[1]), few, state)[0]


def in_balls(distances: jax.Array, ball: Ball, exact: Exact) -> jax.Array:
    """Apply `in_ball` to several queries, `[m, n]`, with `exact` for all of them."""
    axes = dataclasses.replace(exact, **BY_QUERY)
    return jax.vmap(in_ball, in_axes=(0, None, axes))(distances, ball, exact)


def _epsilon(array: np.ndarray | jax.Array) -> float:
    """Return the machine epsilon of the features' type; integers are like float64."""
    if jnp.issubdtype(array.dtype, jnp.floating):
        return finfo(array.dtype).eps
    return 2.0**-52
