"""Order of near neighbours that float32 distances cannot tell apart.

A distance computed by a matrix product, `|x|^2 + |q|^2 - 2 x.q`, is off by a few
float32 roundings of `|x|^2 + |q|^2`, however near the two points are. Features with an
outlier, a timestamp or two far clusters lose the order of their neighbours that way. So
the features are kept as they were given, float32 or float64, and

- distances that lost more than `TRUST` of themselves are computed again as sums of
  squared differences in float64 (`repair`);
- after the sort, points whose order the remaining error leaves open are ordered by such
  float64 distances (`settle`), wherever that moves a value by more than `TOLERANCE` of
  the most that a point can be worth.

On the benchmarks' data the first step finds nothing to do, and the second some dozens
of points a query, whatever n: ranks beyond some thousands hardly differ in weight. The
compiled operations do both after their sort.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsel import _native
from jaxsel._devices.platform import on_platform, take
from jaxsel._devices.typed import all_gather, all_to_all, cond, lax_map
from jaxsel._inputs.show import brief

from ._together import once, repeat

# Relative error above which a distance is computed again.
TRUST = 1e-4
# What a wrong order may cost, as a share of the most that a point can be worth.
TOLERANCE = 1e-6
# Relative difference up to which two float64 distances are tied: sums of the same
# squares in another order differ by as much.
TIE = 2.0**-50
# The error of a float32 distance that was computed in float64, relative and absolute.
ROUNDING, TINY = 2.0**-23, 2.0**-126
# Ranks within which every open pair is examined; beyond, only groups that span more
# than `STRIDE` ranks are.
NEAR, STRIDE = 4096, 256
_FEW = 128
# Points whose features are read at once.
_ROWS = 64


@brief
@partial(
    jax.tree_util.register_dataclass,
    data_fields=["points", "query", "error", "query_error"],
    meta_fields=["cosine", "axis", "thorough"],
)
@dataclasses.dataclass(frozen=True)
class Exact:
    """Features and error bounds that settle the order of one query's distances.

    Attributes:
        points: The features as they were given, `[n, d]` float32, or `[n, 2 d]` uint32:
            the bits of float64. For "cosine", of unit length, and NaN in zero rows.
        query: The query in the same form: `[d]` or `[2 d]`.
        error: `[n]`: how much each point adds to the bound on a distance's error.
        query_error: `[3]`: how much the query adds to it; the bound at most; and a
            distance beyond which none has lost its digits.
        cosine: Whether distances are `1 - cos`: half the squared difference.
        axis: The axis of a mesh whose devices each settle the order of one query of
            all points, but have the features of some only, equally many: `points` are
            the device's own, and `query` has one row for each device. None on a device
            that has all.
        thorough: Whether, with an axis, to settle also ties that need whole rows of
            memory. If not, `settle_ranks` only reports that there are some.
    """

    points: jax.Array
    query: jax.Array
    error: jax.Array
    query_error: jax.Array
    cosine: bool
    axis: str | None = None
    thorough: bool = True


# Which axes of it `jax.vmap` maps over, for one query each.
BY_QUERY: dict[str, Any] = {
    "points": None,
    "query": 0,
    "error": None,
    "query_error": 0,
}


def errors(
    points: jax.Array, queries: jax.Array, d: int
) -> tuple[jax.Array, jax.Array]:
    """Bound the error of float32 distances: a term for each point plus one per query.

    The unit is a rounding of `|x|^2 + |q|^2`. Features that were centred and stored as
    float32 cost a few, and the sums of the product d at worst; on random data they come
    to 4 in all, whatever d, on equal products, the worst case found, to d / 16.

    Args:
        points: Array of shape `[n]`: the squared length of each point.
        queries: Array of shape `[m]`: the squared length of each query.
        d: How many features there are.

    Returns:
        `error`, `[n]`, and `query_error`, `[m, 3]`, of `Exact`.
    """
    unit = (8 + d / 16) * 2.0**-24
    # A distance D is lost below share * (|x|^2 + |q|^2), where |x| <= |q| + sqrt(D).
    # With its error on top, sqrt(D) / |q| is at most `reach`, a quadratic's root.
    share = unit / TRUST
    most = share + unit
    if most < 0.5:
        reach = (most + (2 * most - most**2) ** 0.5) / (1 - most)
        within = 1.01 * share * (1 + (1 + reach) ** 2)
    else:
        within = np.inf
    error, of_query = unit * points, unit * queries
    parts = of_query, of_query + jnp.max(error), within * jnp.maximum(queries, TINY)
    return error, jnp.stack(parts, axis=1)


def repair(distances: jax.Array, exact: Exact, *, for_order: bool = False) -> jax.Array:
    """Recompute in float64 the distances that cancellation leaves without digits.

    Args:
        distances: Array of shape `[m, n]`, of `neighbors.distances`.
        exact: Their features and error bounds, for m queries: its `query` is `[m, d]`,
            its `query_error` `[m, 3]`.
        for_order: Whether they are only put in order, together with `exact`: the
            compiled operations then do this themselves, of the nearest only.

    Returns:
        Array of shape `[m, n]`. Costs one pass where nothing cancelled.
    """
    if _native.available():
        native = _unrepaired if for_order else _native.repair
        return on_platform(native, _repair, distances, exact)
    return _repair(distances, exact)


def slack(distances: jax.Array, index: jax.Array, exact: Exact) -> jax.Array:
    """Bound how far repaired distances are from the true ones.

    Args:
        distances: Array of shape `[k]`.
        index: Array of shape `[k]`: the index of each point.
        exact: Features and error bounds of the distances.
    """
    return _slack(distances, take(exact.error, index), exact)


def slacks(distances: jax.Array, exact: Exact) -> jax.Array:
    """Bound how far each of the repaired distances of all points, `[n]`, is off."""
    return _slack(distances, exact.error, exact)


def _slack(distances: jax.Array, error: jax.Array, exact: Exact) -> jax.Array:
    bound = error + exact.query_error[0]
    # As in `_repair`: these were computed in float64, then rounded to float32 once.
    lost = distances * TRUST < bound
    return _least(distances, exact) + jnp.where(lost, distances * ROUNDING, bound)


def most_slack(distances: jax.Array, exact: Exact) -> jax.Array:
    """Bound the `slack` of any point at given distances."""
    most = jnp.minimum(exact.query_error[1], distances * TRUST)
    return _least(distances, exact) + most


def _least(distances: jax.Array, exact: Exact) -> jax.Array | float:
    """Bound the error that recomputing leaves: rounding of unit rows, for "cosine"."""
    if not exact.cosine:
        return TINY
    return TINY + _tie(jnp.maximum(distances, 0), exact)


def settle(
    near: jax.Array,
    order: jax.Array,
    gains: jax.Array,
    drop: jax.Array,
    exact: Exact,
) -> tuple[jax.Array, jax.Array]:
    """Sort near ties by their float64 distances, where their order matters.

    Args:
        near: Array of shape `[n]`: repaired distances, the smallest first.
        order: Array of shape `[n]`: the index of each point.
        gains: Array of shape `[n]`: contribution of each rank's point as a neighbour.
        drop: Array of shape `[n]`: how much less each rank weighs than the one before.
        exact: Features and error bounds of the distances.

    Returns:
        near and order, rewritten at near ties that matter.
    """
    n = len(order)
    span = jnp.max(gains, initial=0.0) - jnp.min(gains, initial=0.0)
    worth = TOLERANCE * jnp.sum(jnp.abs(drop)) * span
    if n <= NEAR:
        return settle_groups(near, order, exact, (gains, drop, worth))
    weighed = gains[:NEAR], drop[:NEAR], worth
    first, whose = settle_groups(near[:NEAR], order[:NEAR], exact, weighed)
    result = (
        jnp.concatenate([first, near[NEAR:]]),
        jnp.concatenate([whose, order[NEAR:]]),
    )
    # A far cluster may be one group of thousands: rare, and then all are settled.
    behind, ahead = near[NEAR - STRIDE : -STRIDE : STRIDE], near[NEAR::STRIDE]
    crowded = jnp.any(ahead - behind <= 2 * most_slack(ahead, exact))
    return once(
        crowded,
        lambda result: settle_groups(result[0], result[1], exact, (gains, drop, worth)),
        result,
        axis=exact.axis,
    )


def nearest(
    distances: jax.Array,
    k: int,
    exact: Exact,
    top_k: Callable[[jax.Array, int], tuple[jax.Array, jax.Array]],
) -> tuple[jax.Array, jax.Array]:
    """Return the k nearest points in their true order.

    Args:
        distances: Array of shape `[n]`, repaired.
        k: How many.
        exact: Features and error bounds of the distances.
        top_k: Finds the smallest entries of a row, and their indices.

    Returns:
        Their distances and their indices, each `[k]`.
    """
    n = len(distances)

    def among(distances: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
        near, index = top_k(distances, count)
        return settle_groups(near, index, exact)

    def first(near: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
        return near[:k], index[:k]

    count = min(n, k + max(64, k // 2))
    near, index = among(distances, count)
    result = first(near, index)
    if count == n:
        return result
    # Points that were left out are no nearer than this.
    beyond = near[-1] - most_slack(near[-1], exact)
    reach = jnp.max(result[0] + slack(result[0], result[1], exact))

    def among_all(result: Any) -> tuple[jax.Array, jax.Array]:
        # Makes the sort depend on the loop's state: XLA would hoist it out of `once`.
        row = lax.optimization_barrier((distances, result))[0]
        return first(*among(row, n))

    return once(reach >= beyond, among_all, result, axis=exact.axis)


def settle_groups(
    near: jax.Array,
    index: jax.Array,
    exact: Exact,
    worth: tuple[jax.Array, jax.Array, jax.Array] | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Settle the order of near ties among `[w]` points, of all or of those that matter.

    `worth` holds gains and drops by rank, and the least change of a value that matters.
    """
    w = len(near)
    room = slack(near, index, exact)
    # True distances lie within near ± room. A group begins where the least that any
    # later point can have exceeds the most that any earlier one can: order across that
    # border is certain, so groups are sorted one by one, each within its own ranks.
    low = lax.cummin(near - room, reverse=True)
    high = lax.cummax(near + room)
    alone = jnp.concatenate([jnp.ones(1, bool), low[1:] > high[:-1]])  # from the last
    group = jnp.cumsum(alone, dtype=jnp.int32) - 1
    if worth is None:
        members = jnp.zeros(w, jnp.int32).at[group].add(1)
        matters = members > 1
    else:
        gains, drop, least = worth
        # A value is w_r u_r less the sum of drop_s u_s over later ranks s: the order of
        # a group moves it by at most the group's sum of drops times its span of gains.
        # The drop at its first rank is from the group before, and does not count.
        most = jnp.full(w, -jnp.inf).at[group].max(gains)
        span = most - jnp.full(w, jnp.inf).at[group].min(gains)
        fall = jnp.zeros(w).at[group].add(jnp.where(alone, 0, jnp.abs(drop)))
        # Numbers beyond the last group have span -inf and fall 0: no NaN of these.
        matters = jnp.where(fall > 0, span * fall, 0) > least
    open_ = take(matters, group)

    def resolve(size: int, state: Any) -> Any:
        """Settle the first open groups, at most `size` points of them."""
        near, index, unsettled, _ = state
        place = jnp.nonzero(unsettled, size=size, fill_value=w)[0].astype(jnp.int32)
        of = group.at[place].get(mode="fill", fill_value=w)
        if size < w:  # the last group may go on: leave it for the next time
            # Groups are contiguous, so no other can be cut off; a filler (w) at the end
            # shows that none is.
            place = jnp.where((of < of[-1]) | (of[-1] == w), place, w)
            of = jnp.where(place < w, of, w)
        whose = index.at[place].get(mode="fill", fill_value=0)
        with jax.enable_x64(True):
            exact_near = true_distances(exact, whose)
            of, exact_near, whose = lax.sort((of, exact_near, whose), num_keys=2)
            apart = exact_near[1:] - exact_near[:-1] > _tie(exact_near[1:], exact)
            tied = jnp.cumsum(apart | (of[1:] > of[:-1]), dtype=jnp.int32)
            tied = jnp.concatenate([jnp.zeros(1, jnp.int32), tied])
            exact_near = exact_near.astype(jnp.float32)
            # Ties by index. Numbers of ties ascend with those of groups, as do `at`: so
            # each group is written back to its own ranks, and fillers (w) to none.
            _, whose = lax.sort((tied, whose), num_keys=2)
        return (
            near.at[place].set(exact_near, mode="drop"),
            index.at[place].set(whose, mode="drop"),
            unsettled.at[place].set(False, mode="drop"),
            jnp.all(place == w),  # the first group is larger than that
        )

    # Most rows have a few dozen open points: settle blocks of `_FEW`, and all w points
    # at once only if a group is larger than a block.
    state = near, index, open_, jnp.zeros((), bool)
    if w > _FEW:
        state = repeat(
            lambda state: jnp.any(state[2]) & ~state[3],
            partial(resolve, _FEW),
            state,
            axis=exact.axis,
        )
    near, index, _, _ = once(
        jnp.any(state[2]), partial(resolve, w), state, axis=exact.axis
    )
    return near, index


def true_distances(exact: Exact, index: jax.Array) -> jax.Array:
    """Return the distances of some points, float64: call it with x64 enabled."""
    count = len(index)
    if exact.axis is None:

        def squared(index: jax.Array) -> jax.Array:
            by = _float64(take(exact.points, index)) - _float64(exact.query)[None]
            return jnp.sum(by**2, axis=-1)

        # A few rows of features at a time: all of them might not fit.
        rows = _ROWS
    else:
        squared, rows = partial(_ask, exact=exact, axis=exact.axis), _FEW
    blocks = jnp.pad(index, (0, -count % rows)).reshape(-1, rows)
    total = lax_map(squared, blocks)
    return _to_distance(total.reshape(-1)[:count], exact)


def _ask(index: jax.Array, *, exact: Exact, axis: str) -> jax.Array:
    """Return squared distances `[w]` of points, each from the device that has it."""
    asked = all_gather(index, axis)  # [devices, w]
    local = asked - lax.axis_index(axis) * len(exact.points)
    is_local = (local >= 0) & (local < len(exact.points))

    def of_device(asker: tuple[jax.Array, jax.Array]) -> jax.Array:
        local, query = asker
        by = _float64(take(exact.points, local)) - _float64(query)[None]
        return jnp.sum(by**2, axis=-1)

    squared = lax_map(of_device, (jnp.where(is_local, local, 0), exact.query))
    answers = all_to_all(jnp.where(is_local, squared, 0), axis, 0, 0)
    return jnp.sum(answers, axis=0)  # one device has each point: all others send 0


def _unrepaired(distances: jax.Array, exact: Exact) -> jax.Array:
    del exact
    return distances


def _repair(distances: jax.Array, exact: Exact) -> jax.Array:
    bound = exact.error[None] + exact.query_error[:, :1]
    lost = distances * TRUST < bound

    def again(distances: jax.Array) -> jax.Array:
        def row(query: jax.Array) -> jax.Array:
            with jax.enable_x64(True):
                by = _float64(exact.points) - _float64(query)[None]
                near = _to_distance(jnp.sum(by**2, axis=-1), exact)
                return near.astype(jnp.float32)

        return jnp.where(lost, lax_map(row, exact.query), distances)

    return cond(jnp.any(lost), again, lambda distances: distances, distances)


def _float64(array: jax.Array) -> jax.Array:
    if array.dtype == jnp.uint32:
        pairs = array.reshape(*array.shape[:-1], -1, 2)
        return lax.bitcast_convert_type(pairs, jnp.float64)
    return array.astype(jnp.float64)


def _to_distance(squared: jax.Array, exact: Exact) -> jax.Array:
    if not exact.cosine:
        return squared
    return jnp.where(jnp.isnan(squared), 1.0, squared / 2)  # NaN: a row of zeros


def _tie(distances: jax.Array, exact: Exact) -> jax.Array:
    """Bound the difference of equal float64 distances, from rounding."""
    if not exact.cosine:
        return TIE * distances
    # Of unit rows rounded to float64: errors of TIE in each difference come to
    # TIE * sqrt(distance) in the sum of squares, and to TIE^2 * d at distance 0.
    d = exact.points.shape[1] // 2
    return TIE * (distances + jnp.sqrt(distances) + TIE * d)
