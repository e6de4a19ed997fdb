"""Closed balls: which points are no farther than a radius, decided exactly.

A distance from a float32 matrix product is off by more than what separates a point on
the border from one beyond it. How far off it can be is known, so the few points within
that of the radius are looked at again: by direct differences, in float64, of the
features as they were given.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsel.neighbors import Metric, _native, take
from jaxsel.neighbors._distance import rounded_mean
from jaxsel.neighbors._platform import on_platform

_BLOCK = 8  # points that are looked at again together
_TOGETHER = 1 << 17  # features that are, in one step
_SLACK = 2  # how many epsilons of the features' type the border is wide


class Ball(NamedTuple):
    """What decides about the border, for all queries.

    Attributes:
        reach: Scalar: the radius as a computed distance (squared for "l2").
        limit: `[2]`, uint32: the radius, a few epsilons wider, as `to_bits` gives it.
    """

    reach: Any
    limit: Any


def make_ball(
    x: np.ndarray | jax.Array,
    x_val: np.ndarray | jax.Array,
    radius: float,
    metric: Metric,
) -> tuple[Ball, np.ndarray | jax.Array, tuple[np.ndarray, np.ndarray]]:
    """Prepare features for `in_ball`.

    Args:
        x: Training features, `[n, d]`, as they were given.
        x_val: Validation features, `[m, d]`.
        radius: A distance (not squared).
        metric: Distance.

    Returns:
        The ball; the points, for `in_ball`; and the queries and, for each of them, by
        how much a computed distance near the radius can be off, `[m]`.
    """
    d = x.shape[1]
    # Twice what products and norms of d terms lose to rounding, and features before.
    unit = (d + 8) * 2.0**-22
    epsilon = _SLACK * max(map(_epsilon, (x, x_val)))
    if metric == "cosine":
        limit = np.sqrt(2 * radius) * (1 + epsilon) + epsilon
        reach, widest = radius, limit**2 / 2
        slack = np.full(len(x_val), unit)
    else:
        # For a point at distance r from q both are at most |q| + r from the centre.
        far = np.asarray(x_val, np.float64) - rounded_mean(x)
        far = np.sqrt(np.einsum("ij,ij->i", far, far))
        limit = radius * (1 + epsilon + d * 2.0**-53)
        reach, widest = radius**2, limit**2
        slack = unit / 2 * ((far + limit) ** 2 + far**2)
    slack = (slack + 1.01 * (widest - reach)).astype(np.float32)
    points, asked = to_bits(x), to_bits(x_val)
    if points.dtype != asked.dtype:  # both as float64, then
        points, asked = (to_bits(np.asarray(a, np.float64)) for a in (x, x_val))
    queries = np.asarray(asked), slack
    return Ball(np.float32(reach), to_bits(np.float64(limit))), points, queries


def to_bits(array: Any) -> np.ndarray | jax.Array:
    """Return numbers so that they pass through JAX whole, whatever its mode.

    float32 where that holds them exactly, else the two halves of each float64 as
    uint32, `[..., 2]`. Whole numbers above 2**53 are rounded.
    """
    if jnp.promote_types(array.dtype, jnp.float32) == jnp.float32:
        small = array.dtype.kind not in "iu" or array.dtype.itemsize < 4
        if small:
            return array.astype(np.float32)
    wide = np.ascontiguousarray(np.asarray(array), np.float64)
    return wide.reshape(*np.shape(array), 1).view(np.uint32)


def in_ball(
    distances: jax.Array,
    ball: Ball,
    points: jax.Array,
    query: tuple[jax.Array, jax.Array],
    *,
    metric: Metric,
) -> jax.Array:
    """Return which points lie in the closed ball around one query, `[n]`.

    Args:
        distances: Array of shape `[n]`, computed.
        ball: From `make_ball`, as are all that follow.
        points: The features of the n points.
        query: Those of the query, and how far off its distances can be.
        metric: Distance.
    """

    @jax.custom_batching.custom_vmap
    def one(distances: Any, ball: Any, points: Any, query: Any) -> jax.Array:
        rows = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (distances, query))
        return _in_balls(rows[0], ball, points, rows[1], metric)[0]

    # Mapped by hand: vmap would copy all of a loop's state at each of its steps.
    @one.def_vmap
    def _(size: int, batched: Any, *operands: Any) -> tuple[jax.Array, bool]:
        def spread(leaf: jax.Array, is_batched: bool) -> jax.Array:
            return leaf if is_batched else jnp.broadcast_to(leaf, (size, *leaf.shape))

        distances, ball, points, query = operands
        if any(jax.tree.leaves(batched[1:3])):
            raise NotImplementedError("balls of one radius around one set of points")
        distances, query = jax.tree.map(
            spread, (distances, query), (batched[0], batched[3])
        )
        return _in_balls(distances, ball, points, query, metric), True

    def native(distances: Any, ball: Any, points: Any, query: Any) -> jax.Array:
        at, slack = query
        decided = _native.ball(
            *(distances, slack, points, at, ball.reach, ball.limit),
            cosine=metric == "cosine",
        )
        return decided <= ball.reach

    if not _native.available():
        return one(distances, ball, points, query)
    return on_platform(native, one, distances, ball, points, query)


def _in_balls(
    distances: jax.Array, ball: Ball, points: jax.Array, query: Any, metric: Metric
) -> jax.Array:
    """`in_ball` for several queries: `[m, n]`."""
    queries, slack = query
    m, n = distances.shape
    blocks = -(-n // _BLOCK)
    inside = distances <= ball.reach
    border = jnp.abs(distances - ball.reach) <= slack[:, None]
    inside, border = (
        jnp.pad(a, ((0, 0), (0, -n % _BLOCK))).reshape(m * blocks, _BLOCK)
        for a in (inside, border)
    )
    found = jnp.cumsum(border.any(axis=1), dtype=jnp.int32)
    step = max(1, _TOGETHER // (_BLOCK * points.shape[1]))

    def decide(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        done, inside = state
        # The next few blocks with a border; beyond the last one the scatter drops them.
        place = jnp.searchsorted(found, done + 1 + lax.iota(jnp.int32, step))
        place = place.astype(jnp.int32)
        here = jnp.minimum(place, m * blocks - 1)
        rows = here % blocks * _BLOCK
        rows = jnp.minimum(rows[:, None] + lax.iota(jnp.int32, _BLOCK), n - 1)
        near = _is_near(
            take(points, rows), take(queries, here // blocks), ball.limit, metric
        )
        now = jnp.where(take(border, here), near, take(inside, here))
        return done + step, inside.at[place].set(now, mode="drop")

    start = jnp.int32(0), inside
    _, inside = lax.while_loop(lambda state: state[0] < found[-1], decide, start)
    return inside.reshape(m, -1)[:, :n]


def _is_near(
    points: jax.Array, queries: jax.Array, limit: jax.Array, metric: Metric
) -> jax.Array:
    """Compare `[p, b, ...]` points with `[p, ...]` queries, in float64."""
    with jax.enable_x64(True):
        x, q = _from_bits(points), _from_bits(queries)[:, None]
        if metric == "l2":
            return _length(x - q) <= _from_bits(limit)
        x, q = _unit(x), _unit(q)
        # 1 - cos is half the square of the chord; rows of zeros are at 1.
        zero = (_length(x) == 0) | (_length(q) == 0)
        chord = jnp.where(zero, jnp.sqrt(2.0), _length(x - q))
        return chord <= _from_bits(limit)


def _from_bits(bits: jax.Array) -> jax.Array:
    if bits.dtype == jnp.uint32:
        return lax.bitcast_convert_type(bits, jnp.float64)
    return bits.astype(jnp.float64)


def _length(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


def _unit(x: jax.Array) -> jax.Array:
    peak = jnp.max(jnp.abs(x), axis=-1, keepdims=True)
    x = x / jnp.where(peak > 0, peak, 1)
    length = _length(x)[..., None]
    return x / jnp.where(length > 0, length, 1)


def _epsilon(array: np.ndarray | jax.Array) -> float:
    """The relative spacing of the type in which features were given."""
    if jnp.issubdtype(array.dtype, jnp.floating):
        return float(jnp.finfo(array.dtype).eps)
    return 2.0**-52
