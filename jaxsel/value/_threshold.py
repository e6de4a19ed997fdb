"""Threshold KNN-Shapley: neighbours within a radius, so no order is needed.

References:
    Wang, Zhu, Wang, Jia and Mittal, Threshold KNN-Shapley: a linear-time and
    privacy-friendly approach to data valuation, NeurIPS 2023.
"""

import dataclasses
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Real

from jaxsel import _native
from jaxsel._checks import check_choice, check_positive, check_row
from jaxsel._platform import on_platform, take
from jaxsel._types import Reduce, Values
from jaxsel.neighbors import Exact, Metric

from ._accumulate import accumulate
from ._ball import in_ball, in_balls, make_ball
from ._distance_weights import DistanceWeights, trace_weights
from ._labels import make_labels
from ._linear import Array, Gains, check_pair, check_weighted, describe
from ._options import KnnOptions, Method, Ties, with_defaults
from ._plan import Split
from ._tables import row_index, warn_if_same


@with_defaults
def threshold_knn_shapley(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    radius: float,
    n_classes: int | None = None,
    **options: Unpack[KnnOptions],
) -> Values:
    """Return the Shapley value for a classifier that votes within a radius.

    The utility of a set is the share of matching labels among its points no farther
    than `radius` from the validation point, and `1 / n_classes` if there are none. No
    order is needed, so ties do not arise: it is the fastest of the KNN values.

    Arguments, result and errors as for `knn_shapley`, and:

    Args:
        x: Training features, `[n, d]`.
        y: Training labels.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels.
        radius: Distance (not squared), zero or more. The ball is closed: a point is in
            it if its distance, computed in float64 from the features as they were
            given, is at most the radius, or above by two epsilons of their type (.1 is
            another number in float32 than in float64). With "cosine" it is the chord,
            `sqrt(2 * radius)`, that is two epsilons longer.
        n_classes: Number of classes; those found in y and y_val together if None.
        **options: As for all KNN values: see `KnnOptions`. `ties` and `method` have no
            effect: there is no order, and the value is always exact.

    References:
        Wang et al., Threshold KNN-Shapley, NeurIPS 2023.
    """
    radius = check_positive("radius", radius, zero=True)
    return _values(x, y, x_val, y_val, radius=radius, n_classes=n_classes, **options)


def _values(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    radius: float,
    n_classes: int | None,
    metric: Metric,
    ties: Ties,
    reduce: Reduce,
    method: Method,
    weights: DistanceWeights | None,
    chunk_size: int | None,
    mesh: jax.sharding.Mesh | None,
    axis: str | None,
    split: Split,
    gather: bool,
    owners: Any,
    progress: bool,
) -> Values:
    check_choice("ties", ties, ("stable", "average"))
    check_choice("method", method, ("exact", "hybrid"))
    index = row_index(x)
    x, x_val = check_pair(x, y, x_val, y_val, metric, split=split)
    labels = make_labels(x, y, x_val, y_val, n_classes=n_classes)
    warn_if_same(x, labels.train, x_val, labels.query)
    traced, captured = trace_weights(weights, len(x))
    params = (
        make_ball(x, x_val, radius, metric),
        jnp.asarray(harmonic_numbers(len(x)), jnp.float32),
        jnp.float32(1 / labels.n_classes),
        captured,
    )
    values = accumulate(
        _Threshold(Gains(labels.gains, traced, metric)),
        params,
        x,
        labels.train,
        x_val,
        labels.query,
        metric=metric,
        reduce=reduce,
        certified=False,
        method=describe(
            "threshold_knn_shapley",
            radius=radius,
            metric=metric,
            n_classes=labels.n_classes,
            weights=weights,
        ),
        chunk_size=chunk_size,
        mesh=mesh,
        axis=axis,
        split=split,
        gather=gather,
        owners=owners,
        progress=progress,
    )
    check_weighted(values, weights)
    return dataclasses.replace(values, index=values.index or index)


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
        harmonic: Array of shape `[n + 1]`: `harmonic_numbers(n)`.
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
    """Value the points in a ball, `[n]`, by how many there are and what they gain."""
    size = jnp.sum(inside, dtype=jnp.int32)
    total = jnp.sum(jnp.where(inside, gains, 0.0), dtype=jnp.float32)
    # Affine in the gain, with coefficients that all points in the ball share.
    count = jnp.maximum(size, 1).astype(jnp.float32)
    others = jnp.maximum(count - 1, 1)
    later = jnp.where(size > 1, take(harmonic, size) - 1, 0.0)
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
class _Threshold:
    gains: Gains

    @property
    def orders(self) -> bool:
        """True if float32 distances will do as they are: the border is settled."""
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
