"""Threshold KNN-Shapley: neighbours within a radius, so no order is needed.

References:
    Wang, Zhu, Wang, Jia and Mittal, Threshold KNN-Shapley: a linear-time and
    privacy-friendly approach to data valuation, NeurIPS 2023.
"""

import jax
import jax.numpy as jnp
import numpy as np


def threshold_shapley(
    distances: jax.Array,
    gains: jax.Array,
    radius: jax.Array,
    harmonic: jax.Array,
    prior: jax.Array,
) -> jax.Array:
    """Value every training point for one validation point: a pure kernel.

    The utility is the mean gain of the points within the closed ball, and `prior`
    (1 / number of classes) of none.

    Args:
        distances: Array of shape `[n]`.
        gains: Array of shape `[n]`.
        radius: Scalar, on the scale of `distances` (squared for "l2").
        harmonic: Array of shape `[n + 1]`: `harmonic_numbers(n)`.
        prior: Scalar: the utility of the empty set.

    Returns:
        Array of shape `[n]`, 0 outside the ball. Costs O(n), exact.
    """
    inside = distances <= radius
    size = jnp.sum(inside, dtype=jnp.int32)
    total = jnp.sum(jnp.where(inside, gains, 0.0), dtype=jnp.float32)
    # Affine in the gain, with coefficients that all points in the ball share.
    count = jnp.maximum(size, 1).astype(jnp.float32)
    others = jnp.maximum(count - 1, 1)
    later = jnp.where(size > 1, harmonic[size] - 1, 0.0)
    slope = (1 + later + later / others) / count
    level = (prior + later * total / others) / count
    return jnp.where(inside, slope * gains - level, 0.0)


def harmonic_numbers(n: int) -> np.ndarray:
    """Return 0, 1, 1 + 1/2, ..., H_n, `[n + 1]`, float64."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])
