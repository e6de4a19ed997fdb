"""Hybrid semivalues: the nearest points exactly, the rest by distance level.

Beyond the first hundred ranks the weights change so slowly that the order within a
narrow band of distance hardly matters. Each band is treated as one group of ties, whose
average value has a closed form (`tie_average`), so that a histogram takes the place of
the sort. What the true order within the bands could change is bounded, point by point.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float32, Real

from jaxsel._devices.platform import scatter_index, take
from jaxsel._inputs.checks import check_row
from jaxsel.neighbors import Exact, top_k
from jaxsel.neighbors._exact import TOLERANCE, slacks

from ._semivalue import BLOCK, reverse_sum, tie_average
from ._weights import RankTable, check_table, difference

HEAD = 384
LEVELS = 448
EPSILON = 1.2e-7  # float32


def semivalue_hybrid(
    distances: Real[jax.Array, " n"],
    gains: Real[jax.Array, " n"],
    table: RankTable,
    *,
    binary: bool = True,
    head: int = HEAD,
    levels: int = LEVELS,
    exact: Exact | None = None,
) -> tuple[Float32[jax.Array, " n"], Float32[jax.Array, " n"]]:
    """Value every training point approximately, with a certificate: a pure kernel.

    Args:
        distances: Array of shape `[n]`, not negative.
        gains: Array of shape `[n]`.
        table: `rank_table` of the n rank weights, which must not increase with rank.
        binary: Whether all gains are 0 or 1, which needs one histogram, not three.
        head: How many of the nearest points to value exactly; less than n.
        levels: Number of distance bands for the others.
        exact: Settles the order of points that float32 distances leave open. Its
            distances must be repaired; without it the bound takes them as they are.

    Returns:
        values, bound: Arrays of shape `[n]`. Each value is within its bound of
        `semivalue`, float32 rounding included. Costs O(n + levels): no sort.

    Raises:
        ValueError: If a shape is not as stated, or `head` is not from 1 to n - 1.
    """
    (n,) = check_row("distances", distances)
    check_row("gains", gains, n=n)
    check_table(table, n, running=True)
    if not 1 <= head < n:
        raise ValueError(f"head must be from 1 to n - 1 = {n - 1}, got {head}")
    distances = distances.astype(jnp.float32)
    gains = gains.astype(jnp.float32)
    near, index = top_k(distances, head, exact=exact)
    u = take(gains, index)
    at_head = scatter_index(index)

    # Bands are even in the square root of the float's bits above those of the last
    # point of the head: narrow where ranks still matter, and whatever the scale of the
    # distances, no outlier can push all others into one band. Band 0 is the head.
    # Bit patterns are compared throughout: XLA:CPU flushes denormals to zero, and the
    # order must not.
    edge, far = _bits(near[-1]), jnp.max(_bits(distances))
    # 1e-3 avoids a division by zero where all points are at the edge. Otherwise the
    # root is of a whole number, at least 1, which that hardly moves.
    scale = levels / (jnp.sqrt((far - edge).astype(jnp.float32)) + 1e-3)

    def band_of(distances: jax.Array) -> jax.Array:
        above = jnp.maximum((_bits(distances) - edge).astype(jnp.float32), 0.0)
        level = jnp.floor(jnp.minimum(jnp.sqrt(above) * scale, levels - 1))
        band = level.astype(jnp.int32) + 1
        # By index: a point at the edge's distance may be in the head or behind it.
        return band.at[at_head].set(0, mode="promise_in_bounds")

    if exact is None:
        band = farthest = band_of(distances)
        cross = None
    else:
        room = slacks(distances, exact)
        band = band_of(jnp.maximum(distances - room, 0.0))
        farthest = band_of(distances + room)
        cross = _crossing(band, farthest, levels)

    if binary:
        row = 2 * band + (gains > 0.5).astype(jnp.int32)
        counts = _histogram(row, jnp.ones_like(row), 2 * levels + 2)
        size, gain = counts.reshape(-1, 2).sum(1), counts[1::2].astype(jnp.float32)
    else:
        row = band
        size = _histogram(band, jnp.ones_like(band), levels + 1)
        gain = _histogram(band, gains, levels + 1)
    # The head has exact values, so its band counts no points.
    size, gain = size.at[0].set(0), gain.at[0].set(0)
    stop = jnp.minimum(head + jnp.cumsum(size), n)
    first = stop - size
    count = size.astype(jnp.float32)
    many = jnp.maximum(count, 1)
    mean = gain / many

    slope, level = tie_average(first, stop, gain, table)
    # The drops at ranks first + 1 to stop telescope to w_first - w_stop. All nearer
    # points lose this times the mean gain, if the order in the band is random.
    fall = jnp.where(size > 0, -difference(table.level, first, stop), 0.0)
    loss = mean * fall
    beyond = reverse_sum(loss)

    # Another order within a band moves what the band takes from nearer points by at
    # most half the range of its drops times sum |u - mean|, and the range is at most
    # their variation. A point's own part, w_r u less what the points behind it in its
    # band take, lies with its average in an interval of the range of the band's
    # weights times the range of the gains.
    if binary:
        peak, fuzz = 1.0, 0.0
        scatter = 2 * gain * (count - gain) / many
    else:
        peak = _range(gains)
        fuzz = EPSILON * count * peak  # of the mean of so many gains
        # Cauchy-Schwarz for sum |u - mean|.
        squares = _histogram(band, (gains - take(mean, band)) ** 2, levels + 1)
        scatter = jnp.sqrt(count * squares)
    second = jnp.minimum(first + 1, stop)
    variation = jnp.maximum(difference(table.bend, second, stop), 0.0)
    doubt = fall * fuzz
    if cross is not None:
        # So many points may lie on the other side of either edge of a band: they
        # change its gains, and those that it may lose or get its first rank.
        guests = peak * (cross[:-1] + cross[1:]).astype(jnp.float32)
        scatter = scatter + 2 * guests
        doubt = doubt + guests * fall / many
        second = jnp.maximum(second - cross[:-1], 1)
    doubt = doubt + 0.5 * variation * scatter
    doubt_beyond = reverse_sum(doubt) + rounding(table.weight, gains)
    reach = jnp.maximum(-difference(table.level, second, stop), 0.0) * (peak + fuzz)
    doubt_here = reach + doubt_beyond

    if binary:
        # One row for each band, one column for each gain. As a matrix product, which
        # XLA:CPU does not fuse into the gather and so computes once for each band.
        columns = jnp.array([[0.0, 1.0], [1.0, 1.0]], jnp.float32)
        rows = jnp.stack([slope, -(level + beyond)], axis=1)
        by_gain = jnp.matmul(rows, columns, precision="highest")
        values = take(by_gain.reshape(-1), row)
        bound = take(jnp.repeat(doubt_here, 2), row)
    else:
        values = take(slope, band) * gains - take(level + beyond, band)
        bound = take(doubt_here, band)
    if exact is not None:
        # A point whose true band may be a later one may have a lower weight.
        lowest = table.level[0][stop]
        lower = take(lowest, band) - take(lowest, farthest)
        bound = bound + lower * (peak + EPSILON * n * peak * (not binary))
    # Band 0 counts no points: `beyond[0]` is the loss to all points behind the head.
    head_values = (
        table.weight[:head] * u - reverse_sum(table.drop[:head] * u) - beyond[0]
    )
    return (
        values.at[at_head].set(
            head_values, mode="promise_in_bounds", unique_indices=True
        ),
        bound.at[at_head].set(
            doubt_beyond[0], mode="promise_in_bounds", unique_indices=True
        ),
    )


def _bits(distances: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(distances, jnp.int32)


def _crossing(band: jax.Array, farthest: jax.Array, levels: int) -> jax.Array:
    """Count the points that may lie on either side of each band's first edge.

    Args:
        band: Array of shape `[n]`: the first band that each point may be in.
        farthest: Array of shape `[n]`: the last one.
        levels: How many bands there are, besides the head.

    Returns:
        Array of shape `[levels + 2]`, the end of the last band included.
    """
    open_ = (farthest > band).astype(jnp.int32)
    # A difference array: its running sum counts the intervals across each edge.
    enter = _histogram(band + 1, open_, levels + 2)
    leave = _histogram(farthest + 1, open_, levels + 2)
    return jnp.cumsum(enter - leave)


def rounding(weight: jax.Array, gains: jax.Array) -> jax.Array:
    """Bound the float32 error of a value summed in blocks."""
    return 64 * EPSILON * jnp.max(jnp.abs(weight)) * _range(gains)


def compiled_rounding(table: RankTable, gains: jax.Array) -> jax.Array:
    """Bound the error of values that the compiled operation computes in order.

    Its sums are float64. What is left: the table's float32 numbers, of which the weight
    at the end of each block starts its sums anew; the rounding of the values; and near
    ties, which stay as they are where they move a value by less than `TOLERANCE`.
    """
    weight, falls = jnp.abs(table.weight), jnp.sum(jnp.abs(table.drop))
    size = falls + weight.max() + jnp.sum(weight[BLOCK - 1 :: BLOCK])
    return _range(gains) * (EPSILON * size + TOLERANCE * falls)


def _range(gains: jax.Array) -> jax.Array:
    return jnp.max(gains, initial=0.0) - jnp.min(gains, initial=0.0)


def _histogram(band: jax.Array, weights: jax.Array, size: int) -> jax.Array:
    zeros = jnp.zeros(size, weights.dtype)
    return zeros.at[scatter_index(band)].add(weights, mode="promise_in_bounds")
