"""The k smallest of a row by their digits, without sorting the row.

Where k is above a hundred or so, XLA's GPU compiler turns `top_k` into a sort of whole
rows. A key of 32 bits has eight digits: eight passes of counts find the k-th smallest
key, running sums bring together what is not larger, and only that is sorted.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxsel._devices.typed import fori_loop

_DIGIT = 4  # bits; a pass compares each key with 2^4 - 1 others


def smallest(distances: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """Return the k smallest entries of one row, in order: a pure kernel.

    -0 equals 0, NaN comes last, and equal entries are ordered by index. Costs 8 passes
    of 15 comparisons an entry, two running sums, a scatter, and a sort of k.

    Args:
        distances: Array of shape `[n]`, float32.
        k: How many, at most n.

    Returns:
        The entries and their indices (int32), each `[k]`.
    """
    (n,) = distances.shape
    if not k:
        return distances[:0], jnp.zeros(0, jnp.int32)
    keys = _keys(distances)
    last = _kth(keys, k)
    below, equal = keys < last, keys == last
    # As many of the equal ones as there is room for, the first of them.
    before = jnp.cumsum(below, dtype=jnp.int32)
    place = jnp.where(below, before, before[-1] + jnp.cumsum(equal, dtype=jnp.int32))
    rank = lax.iota(jnp.int32, n)
    chosen = (below | equal) & (place <= k)
    # No two go to one place, not even those that go nowhere.
    target = jnp.where(chosen, place - 1, k + rank)
    index = (
        jnp.zeros(k, jnp.int32).at[target].set(rank, mode="drop", unique_indices=True)
    )
    # In the order of their indices among equals: below, and then equal to the last.
    chosen_keys = keys.at[index].get(mode="promise_in_bounds")
    _, index = lax.sort((chosen_keys, index), num_keys=1, is_stable=True)
    return distances.at[index].get(mode="promise_in_bounds"), index


def _keys(values: jax.Array) -> jax.Array:
    """Return whole numbers in the order of the values: -0 is 0, NaN the largest."""
    # By bits throughout: to some devices the smallest numbers equal 0.
    bits = lax.bitcast_convert_type(lax.stop_gradient(values), jnp.uint32)
    size = bits & jnp.uint32(0x7FFFFFFF)
    is_negative = (bits != size) & (size > 0)
    keys = jnp.where(is_negative, ~bits, size | jnp.uint32(1 << 31))
    is_nan = size > jnp.uint32(0x7F800000)
    return jnp.where(is_nan, jnp.uint32(0xFFFFFFFF), keys)


def _kth(keys: jax.Array, k: int) -> jax.Array:
    """Return the k-th smallest key, digit by digit from the highest."""
    digits = jnp.arange(1, 1 << _DIGIT, dtype=jnp.uint32)

    def add(i: jax.Array, prefix: jax.Array) -> jax.Array:
        shift = (32 - _DIGIT * (i + 1)).astype(jnp.uint32)
        least = prefix | digits << shift
        below = jnp.sum(keys < least[:, None], axis=1, dtype=jnp.int32)
        # Fewer than k are below each digit up to that of the k-th.
        digit = jnp.sum(below < k, dtype=jnp.uint32)
        return prefix | digit << shift

    return fori_loop(0, 32 // _DIGIT, add, jnp.uint32(0))
