"""The semivalue kernel: every KNN value that is linear in the gains.

Order the training points by distance to one validation point and let u_r be the gain
of the r-th (1 if its label matches). For the utility U(S) = (1/K) * the gains of the K
nearest in S, the value with rank weights w is

    v_r = w_r u_r - sum over j > r of (w_{j-1} - w_j) u_j
        = sum over j >= r of w_j (u_j - u_{j+1}), u_{n+1} = 0,

which is one sort, one reverse cumulative sum and one scatter. In the first form, the
terms of points of equal gains cancel, and their digits are lost where weights are small
behind them; in the second they are 0. Checked against enumeration of all subsets in
tests/value.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float, Float32, Real

from jaxsel import _native
from jaxsel._devices.platform import on_platform, scatter_index, take
from jaxsel._devices.typed import custom_jvp
from jaxsel._inputs.checks import check_row
from jaxsel.neighbors import Exact, Sort, argsort, top_k, unsort
from jaxsel.neighbors._exact import settle
from jaxsel.neighbors._order import (
    check_sort,
    ranked,
    settled_argsort as settled_argsort,
)

from ._weights import RankTable, check_table, difference


def semivalue(
    distances: Real[jax.Array, " n"],
    gains: Real[jax.Array, " n"],
    table: RankTable,
    *,
    sort: Sort = "auto",
    exact: Exact | None = None,
    binary: bool = False,
) -> Float32[jax.Array, " n"]:
    """Value every training point for one validation point: a pure kernel.

    Equal distances (as float32) are ordered by index.

    Args:
        distances: Array of shape `[n]`, not negative: any increasing function of the
            distance will do.
        gains: Array of shape `[n]`: each point's contribution as a neighbour.
        table: `rank_table` of the n rank weights.
        sort: How to sort; see `jaxsel.neighbors.argsort`.
        exact: Settles the order of points that float32 distances leave open.
        binary: Whether all gains are 0 or 1, which the compiled operation reads faster.

    Returns:
        Array of shape `[n]`. Costs one sort, O(n log n), and O(n) besides. It is linear
        in the gains, and in the table; its derivative by distances is zero.

    Raises:
        ValueError: If a shape is not as stated, or `sort` is unknown or not there.
    """
    by_sort = partial(_stable, sort=sort)
    return _run(by_sort, False, sort, distances, gains, table, exact, binary)


def semivalue_tied(
    distances: Real[jax.Array, " n"],
    gains: Real[jax.Array, " n"],
    table: RankTable,
    *,
    sort: Sort = "auto",
    exact: Exact | None = None,
    binary: bool = False,
) -> Float32[jax.Array, " n"]:
    """Value every training point, averaged over all orders of tied points.

    Points at equal distance (as float32) and with equal gains get equal values,
    whatever their index. A pure kernel; arguments and result as for `semivalue`.
    """
    by_sort = partial(_tied, sort=sort)
    return _run(by_sort, True, sort, distances, gains, table, exact, binary)


def _run(
    by_sort: Callable[..., jax.Array],
    average: bool,
    sort: Sort,
    distances: jax.Array,
    gains: jax.Array,
    table: RankTable,
    exact: Exact | None,
    binary: bool,
) -> jax.Array:
    """Take the compiled operation on CPUs where it was built, else `by_sort`."""
    check_sort(sort)
    check_table(table, check_row("distances", distances)[0], running=average)
    check_row("gains", gains, n=table.weight.shape[0])
    gains = jnp.asarray(gains, jnp.float32)
    distances = jnp.asarray(distances, jnp.float32)
    if exact is not None and exact.axis is not None:
        return _of_parts(average, sort, distances, gains, table, exact)
    if sort == "native" or (sort == "auto" and _native.available()):
        return _compiled(by_sort, average, binary, distances, gains, table, exact)
    return by_sort(distances, gains, table, exact)


def _of_parts(
    average: bool,
    sort: Sort,
    distances: jax.Array,
    gains: jax.Array,
    table: RankTable,
    exact: Exact,
) -> jax.Array:
    """Value points with features on several devices, which settle near ties."""
    order, near, open_ = ranked(
        distances, gains, table.drop, exact=exact, sort=sort, with_near=average
    )

    def on_cpu(near: Any, order: Any, gains: Any, table: Any) -> jax.Array:
        return _native.ranked(order, near, gains, table.weight, table.drop)

    def elsewhere(near: Any, order: Any, gains: Any, table: Any) -> jax.Array:
        of_rank = _tied_ranks if average else _stable_ranks
        return of_rank(near, order, take(gains, order), table)

    native = sort == "native" or (sort == "auto" and _native.available())
    kernel = partial(on_platform, on_cpu, elsewhere) if native else elsewhere
    values = kernel(near, order, gains, table)
    if exact.thorough:
        return values
    # NaN marks an order left open: `_split` then repeats the chunk with thorough=True.
    return values.at[0].set(jnp.where(open_, jnp.nan, values[0]))


@custom_jvp(nondiff_argnums=(0, 1, 2))
def _compiled(
    by_sort: Callable[..., jax.Array],
    average: bool,
    binary: bool,
    distances: jax.Array,
    gains: jax.Array,
    table: RankTable,
    exact: Exact | None,
) -> jax.Array:
    def on_cpu(
        distances: jax.Array, gains: jax.Array, table: RankTable, exact: Exact | None
    ) -> jax.Array:
        gains = gains != 0 if binary else gains
        return _native.semivalue(
            distances, gains, table.weight, table.drop, exact, average=average
        )

    return on_platform(on_cpu, by_sort, distances, gains, table, exact)


@_compiled.defjvp
def _compiled_jvp(
    by_sort: Callable[..., jax.Array],
    average: bool,
    binary: bool,
    primals: Any,
    tangents: Any,
) -> tuple[jax.Array, jax.Array]:
    distances, gains, table, exact = primals
    gains_dot, table_dot = tangents[1:3]
    # No tangent of the distances: the value is piecewise constant in them.
    # Bilinear: by the pure JAX twin, which JAX can transpose.
    change = by_sort(distances, gains_dot, table, exact)
    change += by_sort(distances, gains, table_dot, exact)
    return _compiled(by_sort, average, binary, *primals), change


def _ranked(
    distances: jax.Array,
    gains: jax.Array,
    table: RankTable,
    exact: Exact | None,
    sort: Sort,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return sorted distances, with the points and gains in that order."""
    order = argsort(distances, sort=sort)
    near, u = take(distances, order), take(gains, order)
    if exact is None:
        return near, order, u
    near, order = settle(near, order, u, table.drop, exact)
    return near, order, take(gains, order)


def _stable(
    distances: jax.Array,
    gains: jax.Array,
    table: RankTable,
    exact: Exact | None,
    *,
    sort: Sort,
) -> jax.Array:
    return _stable_ranks(*_ranked(distances, gains, table, exact, sort), table)


def _stable_ranks(
    near: jax.Array | None, order: jax.Array, u: jax.Array, table: RankTable
) -> jax.Array:
    del near
    return unsort(order, _by_rank(u, table.weight, table.drop))


def _by_rank(u: jax.Array, weight: jax.Array, drop: jax.Array) -> jax.Array:
    """Value points from their gains by rank, all `[n]`; linear in gains and weights.

    In blocks, within which weights count from the block's last one: where weights
    hardly fall, n terms of full weight would add up their roundings.
    """
    n = u.shape[0]
    block = max(1, min(n, BLOCK))

    def in_blocks(row: jax.Array, **fill: Any) -> jax.Array:
        return jnp.pad(row, (0, -n % block), **fill).reshape(-1, block)

    # The table is the same for all rows, so vmap computes this once.
    fall = in_blocks(drop)
    above = lax.cumsum(fall, axis=1, reverse=True) - fall
    # Edge padding, since drops behind rank n are 0: the last block counts from w_n.
    least = in_blocks(weight, mode="edge")[:, -1:]

    # Within a block w_j = above_j + least: the first part is summed term by term, the
    # constant one telescopes to least * (u_r - the next block's first gain).
    u_blocks = in_blocks(u)
    step = in_blocks(u - jnp.append(u[1:], 0))
    inside = lax.cumsum(above * step, axis=1, reverse=True)
    later = jnp.append(u_blocks[1:, :1], jnp.zeros((1, 1), u.dtype), axis=0)
    inside += least * (u_blocks - later)
    inside += reverse_sum(inside[:, 0])[:, None]
    return inside.reshape(-1)[:n]


def _tied(
    distances: jax.Array,
    gains: jax.Array,
    table: RankTable,
    exact: Exact | None,
    *,
    sort: Sort,
) -> jax.Array:
    return _tied_ranks(*_ranked(distances, gains, table, exact, sort), table)


def _tied_ranks(
    near: jax.Array, order: jax.Array, u: jax.Array, table: RankTable
) -> jax.Array:
    n = near.shape[0]
    # Compare bit patterns: XLA:CPU flushes denormals to zero.
    near = lax.bitcast_convert_type(near, jnp.int32)

    # Groups are runs of equal bits: cummax and cummin spread their ends over members.
    rank = lax.iota(jnp.int32, n)
    starts = jnp.concatenate([jnp.ones(1, bool), near[1:] != near[:-1]])
    first = lax.cummax(jnp.where(starts, rank, 0))
    ends = jnp.concatenate([starts[1:], jnp.ones(1, bool)])
    last = lax.cummin(jnp.where(ends, rank, n), reverse=True)
    group = jnp.cumsum(starts, dtype=jnp.int32) - 1
    gain = take(
        jnp.zeros(n, u.dtype).at[scatter_index(group)].add(u, mode="promise_in_bounds"),
        group,
    )

    # At its group's mean gain a point is worth `shared`, in any order of the ties: only
    # the deviation from the mean meets the slope, so that nothing large cancels.
    slope, _ = tie_average(first, last + 1, gain, table)
    mean = gain / (last + 1 - first).astype(gain.dtype)
    shared = _by_rank(mean, table.weight, table.drop)
    return unsort(order, shared + slope * (u - mean))


def tie_average(
    first: jax.Array, stop: jax.Array, gain: jax.Array, table: RankTable
) -> tuple[jax.Array, jax.Array]:
    """Average the value over all orders within a group of tied points.

    Args:
        first: Zero-based rank at which each group starts.
        stop: Rank at which it ends, exclusive.
        gain: Sum of the gains in the group.
        table: Rank weights.

    Returns:
        slope, level: A point of gain u in the group is worth `slope * u - level`,
        less what all later groups take away.
    """
    size = stop - first
    many = jnp.maximum(size, 1).astype(gain.dtype)
    others = jnp.maximum(size - 1, 1).astype(gain.dtype)
    # In a random order, ranks behind r take w_r - w_stop, on average mean - behind, of
    # the mean gain of the others, (gain - u) / others.
    behind = table.level[0][stop]
    mean = jnp.where(size > 1, difference(table.total, first, stop) / many, behind)
    spread = (mean - behind) / others
    return mean + spread, gain * spread


def semivalue_top(
    distances: Real[jax.Array, " n"],
    gains: Real[jax.Array, " n"],
    weight: Float[jax.Array, " t"],
    drop: Float[jax.Array, " t"],
    *,
    exact: Exact | None = None,
) -> Float32[jax.Array, " n"]:
    """Value with rank weights that vanish beyond the first t ranks: a pure kernel.

    Args:
        distances: Array of shape `[n]`.
        gains: Array of shape `[n]`.
        weight: Array of shape `[t]`: the first rank weights; all others count as 0.
        drop: Array of shape `[t]`: `RankTable.drop` at the same ranks.
        exact: Settles the order of points that float32 distances leave open.

    Returns:
        Array of shape `[n]`, 0 for all but the t nearest. Costs O(n): no sort.

    Raises:
        ValueError: If a shape is not as stated, or t is more than n.
    """
    check_row("gains", gains, n=check_row("distances", distances)[0])
    check_row("drop", drop, n=check_row("weight", weight)[0])
    if weight.shape[0] > distances.shape[0]:
        raise ValueError(
            f"weight must have at most n = {distances.shape[0]} entries, got "
            f"{weight.shape[0]}"
        )
    _, index = top_k(distances.astype(jnp.float32), weight.shape[0], exact=exact)
    u = take(gains.astype(jnp.float32), index)
    # The gain behind rank t counts as 0: the term left out is w_t u_{t+1}, so w_t must
    # be negligible. See `_linear._reach`.
    values = _by_rank(u, weight, drop)
    return (
        jnp.zeros(distances.shape, jnp.float32)
        .at[scatter_index(index)]
        .set(values, mode="promise_in_bounds", unique_indices=True)
    )


BLOCK = 1024


def reverse_sum(terms: jax.Array) -> jax.Array:
    """Return the sum of all later terms at each place, `[n]` -> `[n]`.

    In blocks, since a running float32 sum over a million terms loses two digits.
    """
    n = terms.shape[0]
    if n > BLOCK:
        padded = jnp.pad(terms, (0, -n % BLOCK)).reshape(-1, BLOCK)
        inside = lax.cumsum(padded, axis=1, reverse=True)
        # Totals of blocks, summed in the same way: no running sum has more than 1024
        # terms, and n = 1e9 takes three levels.
        later = reverse_sum(inside[:, 0])
        inclusive = inside + later[:, None]
        return (inclusive - padded).reshape(-1)[:n]
    return lax.cumsum(terms, axis=0, reverse=True) - terms
