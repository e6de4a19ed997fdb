"""Draws of rows in proportion to weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

# Most rows for one draw: uniform float32 has 2^23 values, so 128 a row or more.
_ONE_DRAW = 2**16


def drawer(weights: jax.Array) -> Callable[[jax.Array, int], jax.Array]:
    """Build `draw(key, count)`, which draws rows by their weight: a pure kernel.

    With replacement, and in proportion to the weights: a row of weight 0 is never
    drawn. A uniform float32 has 2^23 values, and a float32 sum of 2^24 ones no longer
    grows: of more than 2^16 rows one draw takes a block, and another a row of it.

    Args:
        weights: `[n]`, not negative, not all zero.
    """
    n = weights.shape[0]
    # Blocks of about sqrt(n) rows: both cumulative sums stay short.
    width = 1 if n <= _ONE_DRAW else 1 << math.ceil(math.log2(n) / 2)
    blocks = jnp.pad(weights, (0, -n % width)).reshape(-1, width)
    total = jnp.cumsum(blocks.sum(axis=1) if width > 1 else weights)

    def draw(key: jax.Array, count: int) -> jax.Array:
        # The largest draw, 1 - 2^-23, times the total stays below it in float32: no
        # draw falls behind the last row of positive weight.
        if width == 1:
            draws = jax.random.uniform(key, (count,), jnp.float32)
            return jnp.searchsorted(total, draws * total[-1], side="right")
        draws = jax.random.uniform(key, (2, count), jnp.float32)
        block = jnp.searchsorted(total, draws[0] * total[-1], side="right")
        within = jnp.cumsum(blocks[block], axis=1)
        # `searchsorted(side="right")` of each draw in the block of its own.
        place = (within <= (draws[1] * within[:, -1])[:, None]).sum(axis=1)
        return block * width + place

    return draw
