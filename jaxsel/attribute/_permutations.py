"""Random orders, as fast on CPUs as a sort of single numbers."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Key, Shaped

from jaxsel._devices.platform import on_platform


def permutations(
    keys: Key[jax.Array, " e"], rows: Shaped[jax.Array, " n"]
) -> Shaped[jax.Array, "e n"]:
    """Permute rows by each key exactly as `jax.random.permutation`.

    XLA's CPU compiler sorts pairs by calls of a comparator, in four times the time of
    64-bit numbers that hold a random number and the index of its row.
    """
    return on_platform(_by_numbers, _by_pairs, keys, rows)


def _by_pairs(keys: jax.Array, rows: jax.Array) -> jax.Array:
    return lax.map(lambda key: jax.random.permutation(key, rows), keys)


def _by_numbers(keys: jax.Array, rows: jax.Array) -> jax.Array:
    n = rows.shape[0]

    def draw(key: jax.Array) -> jax.Array:
        return jax.random.bits(key, (n,), jnp.uint32)

    def shuffle(bits_and_rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        bits, rows = bits_and_rows
        with jax.enable_x64(True):
            index = lax.iota(jnp.uint64, n)
            words = lax.sort(bits.astype(jnp.uint64) << 32 | index, is_stable=False)
            return rows[words.astype(jnp.uint32).astype(jnp.int32)]

    orders = jnp.broadcast_to(rows, (len(keys), n))
    # Repeated until equal random numbers are no concern.
    for _ in range(math.ceil(3 * math.log(max(1, n)) / math.log(2**32 - 1))):
        pairs = jax.vmap(jax.random.split)(keys)
        keys = pairs[:, 0]
        orders = lax.map(shuffle, (jax.vmap(draw)(pairs[:, 1]), orders))
    return orders
