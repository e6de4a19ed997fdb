"""Kernels of threshold KNN-Shapley: values of the points in one ball, and counts.

References:
    Wang, Zhu, Wang, Jia and Mittal, Threshold KNN-Shapley: a linear-time and
    privacy-friendly approach to data valuation, NeurIPS 2023.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from jaxtyping import Bool, Float, Integer, Real

from jaxsel import _native
from jaxsel._devices.platform import on_platform, take
from jaxsel._inputs.checks import check_row
from jaxsel.neighbors import Exact

from ._ball import in_ball, in_balls
from ._linear import Gains


def threshold_shapley(
    distances: Real[jax.Array, " n"],
    gains: Real[jax.Array, " n"],
    radius: Real[jax.Array, ""] | float,
    harmonic: Float[jax.Array, " n+1"],
    prior: Real[jax.Array, ""] | float,
) -> Float[jax.Array, " n"]:
    """Value every training point for one validation point: a pure kernel.

    The utility is the mean gain of the points within the closed ball, and `prior`
    (1 / number of classes) of none.

    Args:
        distances: Array of shape `[n]`.
        gains: Array of shape `[n]`.
        radius: Scalar, on the scale of `distances` (squared for "l2").
        harmonic: Array of shape `[n + 1]`: 0, 1, 1 + 1/2, ..., H_n.
        prior: Scalar: the utility of the empty set.

    Returns:
        Array of shape `[n]`, 0 outside the ball. Costs O(n), exact.

    Raises:
        ValueError: If a shape is not as stated.
    """
    (n,) = check_row("distances", distances)
    check_row("gains", gains, n=n)
    if jnp.shape(harmonic) != (n + 1,):
        raise ValueError(
            f"harmonic must have shape [n + 1] = [{n + 1}], got {jnp.shape(harmonic)}"
        )
    return _shapley_of(distances <= radius, gains, harmonic, prior)


def _shapley_of(
    inside: jax.Array,
    gains: jax.Array,
    harmonic: jax.Array,
    prior: jax.Array | float,
) -> jax.Array:
    """Value the points in a ball, `[n]`, from their number and their gains."""
    size = jnp.sum(inside, dtype=jnp.int32)
    total = jnp.sum(jnp.where(inside, gains, 0.0), dtype=jnp.float32)
    later = jnp.where(size > 1, take(harmonic, size) - 1, 0.0)
    return _affine(inside, gains, size, total, later, prior)


def counted_shapley(
    inside: Bool[jax.Array, " n"],
    gains: Real[jax.Array, " n"],
    size: Integer[jax.Array, ""] | int,
    total: Real[jax.Array, ""] | float,
    prior: Real[jax.Array, ""] | float,
) -> Float[jax.Array, " n"]:
    """Value some of the points in a ball, knowing counts of all: a pure kernel.

    The value of `threshold_shapley`, where the training points lie in several places.

    Args:
        inside: Array of shape `[n]`: which of the points here are in the ball.
        gains: Array of shape `[n]`.
        size: Scalar: how many points are in the ball, here and elsewhere.
        total: Scalar: the sum of their gains.
        prior: Scalar: the utility of the empty set.

    Returns:
        Array of shape `[n]`, 0 outside the ball. Costs O(n), exact.

    Raises:
        ValueError: If a shape is not as stated.
    """
    (n,) = check_row("inside", inside)
    check_row("gains", gains, n=n)
    size = jnp.maximum(jnp.asarray(size), 1)
    # By digamma: the ball may hold more points than are here, beyond any table of n + 1
    # harmonic numbers.
    harmonic = digamma(size.astype(jnp.float32) + 1) + jnp.float32(np.euler_gamma)
    later = jnp.where(size > 1, harmonic - 1, 0.0)
    total = jnp.asarray(total).astype(jnp.float32)
    return _affine(inside, gains.astype(jnp.float32), size, total, later, prior)


def _affine(
    inside: jax.Array,
    gains: jax.Array,
    size: jax.Array,
    total: jax.Array,
    later: jax.Array,
    prior: jax.Array | float,
) -> jax.Array:
    """Return values that are affine in the gain: all points in the ball share them."""
    count = jnp.maximum(size, 1).astype(jnp.float32)
    others = jnp.maximum(count - 1, 1)
    # At place j of a random order a point adds u - prior if j = 1, else u less the mean
    # gain of the others, over j; `later` is the sum of 1 / j from j = 2 on.
    slope = (1 + later + later / others) / count
    level = (prior + later * total / others) / count
    return jnp.where(inside, slope * gains - level, 0.0)


def harmonic_numbers(n: int) -> np.ndarray:
    """Return 0, 1, 1 + 1/2, ..., H_n, `[n + 1]`, float64.

    Args:
        n: Number of training points.
    """
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])


@dataclasses.dataclass(frozen=True)
class Threshold:
    gains: Gains

    @property
    def orders(self) -> bool:
        """True if float32 distances suffice, since `exact` settles the border."""
        return self.gains.weights is None

    def decide(self, params: Any, distances: jax.Array, exact: Exact) -> jax.Array:
        """Move distances `[m, n]` to the side of the radius where they belong.

        By as little as it takes: weights change by a rounding. So a device settles the
        border of points whose features no other device has.
        """
        ball = params[0]
        inside = in_balls(distances, ball, exact)
        beyond = jnp.nextafter(ball.reach, jnp.float32(jnp.inf))
        return jnp.where(
            inside,
            jnp.minimum(distances, ball.reach),
            jnp.maximum(distances, beyond),
        )

    def __call__(
        self,
        params: Any,
        distances: jax.Array,
        train: Any,
        query: Any,
        exact: Exact | None,
    ) -> tuple[jax.Array, None]:
        gains = self.gains(distances, train, query, params[-1])
        operands = distances, gains, params[:-1], exact
        if not _native.available():
            return _in_jax(*operands), None
        return on_platform(_compiled, _in_jax, *operands), None


def _compiled(
    distances: jax.Array, gains: jax.Array, params: Any, exact: Exact | None
) -> jax.Array:
    (reach, limit), harmonic, prior = params
    return _native.threshold(distances, gains, reach, limit, harmonic, prior, exact)


def _in_jax(
    distances: jax.Array, gains: jax.Array, params: Any, exact: Exact | None
) -> jax.Array:
    ball, harmonic, prior = params
    inside = in_ball(distances, ball, exact)
    return _shapley_of(inside, gains, harmonic, prior)


@dataclasses.dataclass(frozen=True)
class OfCounts(Threshold):
    """`Threshold` with counts of all points, here and elsewhere, in `query`."""

    def __call__(
        self,
        params: Any,
        distances: jax.Array,
        train: Any,
        query: Any,
        exact: Exact | None,
    ) -> tuple[jax.Array, None]:
        ball, _, prior, _ = params
        label, size, right = query
        gains = self.gains.of_labels(train, label)
        inside = in_ball(distances, ball, exact)
        values = counted_shapley(inside, gains, size, right, prior)
        n_here = jnp.sum(inside, dtype=jnp.int32)
        right_here = jnp.sum(inside & (gains > 0), dtype=jnp.int32)
        # A compiled step can't refuse counts that lack points seen here: it marks them
        # by NaN, for which `_threshold._values` raises.
        wrong = (right_here > right) | (n_here - right_here > size - right)
        return jnp.where(wrong, jnp.nan, values), None


@dataclasses.dataclass(frozen=True)
class Marks(Threshold):
    """Marks points in the ball: 2 of the right label, 1 of another, 0 outside."""

    def __call__(
        self,
        params: Any,
        distances: jax.Array,
        train: Any,
        query: Any,
        exact: Exact | None,
    ) -> tuple[jax.Array, None]:
        inside = in_ball(distances, params[0], exact)
        return inside * (1 + self.gains.of_labels(train, query)), None
