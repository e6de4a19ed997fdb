"""Near ties of rows of distances, with the features on several devices.

A row has an entry for every point of all devices, and memory for few arrays of that
length is left: ranks behind the nearest thousands are examined by strides.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxsel._devices.platform import take

from ._exact import (
    NEAR,
    STRIDE,
    TOLERANCE,
    Exact,
    most_slack,
    settle,
    settle_groups,
)
from ._together import once


def settle_ranks(
    order: jax.Array,
    distances: jax.Array,
    gains: jax.Array,
    drop: jax.Array,
    exact: Exact,
    *,
    with_near: bool,
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
    """Settle near ties like `settle`, from unsorted rows, with few gathers.

    Args:
        order: Array of shape `[n]`.
        distances: Array of shape `[n]`, repaired: the first point's first.
        gains: Array of shape `[n]`, the first point's first.
        drop: Array of shape `[n]`, by rank.
        exact: Features and error bounds of the distances.
        with_near: Whether to return the distances by rank, too.

    Returns:
        The order; the distances by rank, or None; and whether ranks are left open that
        only `exact.thorough` settles.
    """

    def sorted_(order: jax.Array) -> tuple[jax.Array, jax.Array]:
        return take(distances, order), take(gains, order)

    n, near_ones, stride = len(order), NEAR, STRIDE
    if n <= near_ones:
        near, gained = sorted_(order)
        near, order = settle(near, order, gained, drop, exact)
        return order, near if with_near else None, jnp.zeros((), bool)
    span = jnp.max(gains, initial=0.0) - jnp.min(gains, initial=0.0)
    by_stride = jnp.pad(jnp.abs(drop), (0, -n % stride)).reshape(-1, stride)
    falls = jnp.sum(by_stride, axis=1)
    worth = TOLERANCE * jnp.sum(falls) * span
    crowded = _crowded(order, distances, jnp.cumsum(falls), worth / span, exact)
    head = order[:near_ones]
    near, gained = sorted_(head)
    near, head = settle_groups(near, head, exact, (gained, drop[:near_ones], worth))
    order, near_all = order.at[:near_ones].set(head), None
    if with_near:
        near_all = take(distances, order).at[:near_ones].set(near)
    state = order, near_all

    def all_(state: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        order, near = state
        _, gained = sorted_(order)
        near = take(distances, order) if near is None else near
        near, order = settle_groups(near, order, exact, (gained, drop, worth))
        return order, near if with_near else None

    if not exact.thorough:
        return *state, crowded
    return *once(crowded, all_, state, axis=exact.axis), jnp.zeros((), bool)


def _crowded(
    order: jax.Array,
    distances: jax.Array,
    falls: jax.Array,
    least: jax.Array,
    exact: Exact,
) -> jax.Array:
    """Return whether ranks behind the nearest have near ties that matter.

    It matters if the stretch lies within the error of a distance, and weights fall over
    it by more than `least`. Stretches of one stride, two, four, and so on are tested.
    `falls` are cumulative sums of the drops up to the end of each stride.
    """
    ranks = jnp.arange(NEAR - 1, len(order), STRIDE)
    near, falls = take(distances, take(order, ranks)), take(falls, ranks // STRIDE)
    crowded, length = jnp.zeros((), bool), 1
    while length < len(ranks):
        ahead = near[length:]
        close = ahead - near[:-length] <= 2 * most_slack(ahead, exact)
        crowded |= jnp.any(close & (falls[length:] - falls[:-length] > least))
        length *= 2
    return crowded
