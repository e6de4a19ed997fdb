"""Random permutations, coalitions and bags; sample t depends on the key and t alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, Float, Float32, Int32, Integer, Key

from jaxsel._devices.typed import fori_loop, jit
from jaxsel.neighbors import argsort, unsort


@jit(static_argnames=("count", "n"))
def permutation_ranks(
    key: Key[jax.Array, ""], first: Integer[jax.Array, ""] | int, *, count: int, n: int
) -> Int32[jax.Array, "{count} {n}"]:
    """Return the place of each point in permutations first, first + 1, ...

    Args:
        key: A key.
        first: Number of the first permutation.
        count: How many.
        n: Number of points.

    Returns:
        `[count, n]` int32.
    """

    def ranks_of(key: jax.Array) -> jax.Array:
        # Random floats of 30 bits, all of them normal, which sort fast.
        bits = (jax.random.bits(key, (n,), jnp.uint32) >> 2) + jnp.uint32(1 << 23)
        return argsort(lax.bitcast_convert_type(bits, jnp.float32))

    return jax.vmap(ranks_of)(_keys(key, first, count))


def order_of(ranks: jax.Array) -> jax.Array:
    """Return the points of permutations in their order: the inverse, `[count, n]`."""
    places = jnp.arange(ranks.shape[1], dtype=jnp.int32)

    def inverse(ranks: jax.Array) -> jax.Array:
        return unsort(ranks, places)

    return jax.vmap(inverse)(ranks)


@jit(static_argnames=("count", "n"))
def random_coalitions(
    key: Key[jax.Array, ""],
    first: Integer[jax.Array, ""] | int,
    used: Integer[jax.Array, ""] | int,
    *,
    count: int,
    n: int,
) -> Bool[jax.Array, "{count} {n}"]:
    """Return coalitions that each point joins with probability 1/2.

    Args:
        key: A key.
        first: Number of the first coalition.
        used: The rows from this on are empty.
        count: How many rows.
        n: Number of points.

    Returns:
        `[count, n]` bool.
    """

    def draw(key: jax.Array) -> jax.Array:
        return jax.random.bernoulli(key, jnp.float32(0.5), (n,))

    return jax.vmap(draw)(_keys(key, first, count)) & _leading(used, count)


@jit(static_argnames=("count", "n"))
def sized_coalitions(
    key: Key[jax.Array, ""],
    first: Integer[jax.Array, ""] | int,
    used: Integer[jax.Array, ""] | int,
    cumulative: Float[jax.Array, " sizes"],
    *,
    count: int,
    n: int,
) -> Bool[jax.Array, "{count} {n}"]:
    """Return random coalitions: their size is drawn first, then the points.

    These are the points with the smallest random numbers, by bisection of their limit,
    which is eight times as fast as a sort. Should two numbers at the limit be equal, at
    a chance of n / 2**32, the coalition is the smaller one.

    Args:
        key: A key.
        first: Number of the first coalition.
        used: The rows from this on are empty.
        cumulative: `[sizes]`: the chance of size 1, of at most 2, and so on up to 1.
        count: How many rows.
        n: Number of points.

    Returns:
        `[count, n]` bool.
    """

    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        of_size, of_points = jax.random.split(key)
        share = jax.random.uniform(of_size, dtype=jnp.float32)
        below = jnp.searchsorted(cumulative, share, side="right")
        bits = jax.random.bits(of_points, (n,), jnp.uint32)
        # Rounding may leave the last cumulative chance below 1, and a share above it.
        return bits, jnp.minimum(below, len(cumulative) - 1)

    bits, sizes = jax.vmap(draw)(_keys(key, first, count))

    # Bit by bit from the highest: the largest limit with at most 1 + sizes members.
    def raise_limit(i: jax.Array, limit: jax.Array) -> jax.Array:
        higher = limit | (jnp.uint32(1 << 31) >> jnp.uint32(i))
        members = (bits < higher[:, None]).sum(1)
        return jnp.where(members <= 1 + sizes, higher, limit)

    limit = fori_loop(0, 32, raise_limit, jnp.zeros(count, jnp.uint32))
    return (bits < limit[:, None]) & _leading(used, count)


@jit(static_argnames=("count", "n"))
def bootstrap_counts(
    key: Key[jax.Array, ""], first: Integer[jax.Array, ""] | int, *, count: int, n: int
) -> Float32[jax.Array, "{count} {n}"]:
    """Return how often each point is drawn in n draws with replacement.

    Args:
        key: A key.
        first: Number of the first bag.
        count: How many bags.
        n: Number of points, and of draws.

    Returns:
        `[count, n]` float32.
    """

    def draw(key: jax.Array) -> jax.Array:
        points = jax.random.randint(key, (n,), 0, n, jnp.int32)
        return jnp.zeros(n, jnp.float32).at[points].add(1)

    return jax.vmap(draw)(_keys(key, first, count))


@jit(static_argnames=("block",))
def prefix_masks(
    ranks: Int32[jax.Array, "p n"],
    lanes: Integer[jax.Array, " lanes"] | Integer[np.ndarray, " lanes"],
    first: Integer[jax.Array, ""] | int,
    last: Integer[jax.Array, ""] | int,
    *,
    block: int,
) -> Bool[jax.Array, "lanes*{block} n"]:
    """Return the prefixes of sizes first, ..., first + block - 1 of permutations.

    Args:
        ranks: Of `permutation_ranks`, `[p, n]`.
        lanes: Which permutations, `[lanes]`; negative for none.
        first: The smallest prefix.
        last: The largest prefix; rows beyond it, and of no permutation, are empty.
        block: How many prefixes.

    Returns:
        `[lanes * block, n]` bool, a permutation's prefixes one after the other.
    """
    sizes = first + jnp.arange(block)
    wanted = (lanes >= 0)[:, None] & (sizes <= last)[None]
    masks = ranks[jnp.maximum(lanes, 0), None] < jnp.where(wanted, sizes, 0)[..., None]
    return masks.reshape(-1, ranks.shape[1])


def _keys(key: jax.Array, first: jax.Array | int, count: int) -> jax.Array:
    def key_of(t: jax.Array) -> jax.Array:
        return jax.random.fold_in(key, t)

    return jax.vmap(key_of)(first + jnp.arange(count))


def _leading(used: jax.Array | int, count: int) -> jax.Array:
    return (jnp.arange(count) < used)[:, None]
