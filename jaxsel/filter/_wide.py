"""Whole numbers of any width in JAX, which has 32 bits: tuples of limbs of 16 bits.

The lowest limb comes first; all are uint32 arrays below 2^16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp

Wide: TypeAlias = "tuple[jax.Array, ...]"

_BITS = 16
_MASK = (1 << _BITS) - 1


def wide(value: jax.Array | int) -> Wide:
    """Return a number in [0, 2^32)."""
    whole = jnp.asarray(value, jnp.uint32)
    return whole & _MASK, whole >> _BITS


def times(a: Wide, b: Wide) -> Wide:
    """Return a product, with the limbs of both factors together."""
    columns: list[jax.Array | int] = [0] * (len(a) + len(b))
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            product = x * y
            # Halves of products, so that a column of many still fits 32 bits.
            columns[i + j] += product & _MASK
            columns[i + j + 1] += product >> _BITS
    out: list[jax.Array] = []
    carry = jnp.uint32(0)
    for column in columns:
        total = column + carry
        out.append(total & _MASK)
        carry = total >> _BITS
    return tuple(out)


def less(a: Wide, b: Wide) -> jax.Array:
    """Return where a < b, both with the same number of limbs."""
    is_less = jnp.asarray(False)
    for x, y in zip(a, b, strict=True):
        # Limbs come in ascending order: the last that differs decides.
        is_less = (x < y) | ((x == y) & is_less)
    return is_less


def excess(a: Wide, b: Wide) -> Wide:
    """Return max(a - b, 0), both with the same number of limbs."""
    out: list[jax.Array] = []
    borrow = jnp.uint32(0)
    for x, y in zip(a, b, strict=True):
        difference = x - y - borrow  # modulo 2^32
        out.append(difference & _MASK)
        # Limbs are below 2^16: the top bit is set only if the difference has wrapped
        # around.
        borrow = difference >> 31
    return tuple(jnp.where(borrow == 1, 0, limb) for limb in out)


def largest(a: Wide) -> Wide:
    """Return the largest number along the last axis."""
    out: list[jax.Array] = []
    among = jnp.ones(jnp.broadcast_shapes(*(x.shape for x in a)), bool)
    for limb in reversed(a):
        # From the highest limb down, among numbers that agree with the maximum so far.
        most = jnp.max(jnp.where(among, limb, 0), axis=-1, keepdims=True)
        among &= limb == most
        out.append(most[..., 0])
    return tuple(reversed(out))


def to_float(a: Sequence[jax.Array]) -> jax.Array:
    """Return a number as float32, rounded."""
    scales = jnp.asarray([2.0 ** (_BITS * i) for i in range(len(a))], jnp.float32)
    return jnp.sum(jnp.stack(a, axis=-1).astype(jnp.float32) * scales, axis=-1)
