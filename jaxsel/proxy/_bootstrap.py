"""The bootstrap set: rows that both parties draw under a key that both chose."""

from __future__ import annotations

import hashlib

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._checks import check_count
from jaxsel._typed import wrapped_key


def joint_key(ours: int, theirs: int) -> jax.Array:
    """Return a key that both parties chose: neither knows it alone.

    Each draws a number of 128 bits or so, commits to it, and then shows it; the order
    is that of the parties, the model owner first.

    Args:
        ours: The model owner's number.
        theirs: The data owner's number.

    Raises:
        ValueError: If a number is negative.
    """
    for name, value in (("ours", ours), ("theirs", theirs)):
        check_count(name, value, minimum=0)
    digest = hashlib.sha256(f"jaxsel {ours} {theirs}".encode()).digest()
    return wrapped_key(jnp.asarray(np.frombuffer(digest[:8], np.uint32)))


def draw_bootstrap(key: jax.Array, n: int, share: float) -> np.ndarray:
    """Return the rows of the bootstrap set, ascending: `share` of n, rounded.

    The data owner draws it under the joint key, and the model owner can check it.

    Args:
        key: The joint key, see `joint_key`.
        n: Samples of the pool.
        share: What part of them to draw.

    Raises:
        ValueError: If `share` does not lie between 0 and 1, or comes to no row.
    """
    count = bootstrap_size(n, share)
    return np.sort(np.asarray(jax.random.permutation(key, n))[:count])


def bootstrap_size(n: int, share: float) -> int:
    """Return how many rows the bootstrap set has.

    Raises:
        ValueError: If `share` does not lie between 0 and 1, or comes to no row.
    """
    count = round(share * n)
    if not 0 < share < 1 or not count:
        raise ValueError(
            f"bootstrap must be a share of the pool, at least one of {n} samples, got "
            f"{share}"
        )
    return count
