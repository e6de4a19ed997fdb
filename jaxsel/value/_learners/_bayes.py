"""Gaussian naive Bayes and nearest centroids, on many subsets at once."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key, Shaped

from jaxsel._checks import check_positive
from jaxsel._typed import map_rows
from jaxsel.value._examples import Examples

from ._arrays import dot


class ClassMoments(NamedTuple):
    """Moments of each class in B subsets.

    Attributes:
        size: `[B, C]`.
        mean: `[B, C, d]`.
        variance: `[B, C, d]`; of no use to centroids.
    """

    size: jax.Array
    mean: jax.Array
    variance: jax.Array


@dataclasses.dataclass(frozen=True)
class GaussianNB:
    """Gaussian naive Bayes: independent normal features in each class.

    As scikit-learn's: variances are raised by `var_smoothing` times the largest
    variance of a feature in the subset, or to 1 where none varies. A subset costs
    3 n d C multiplications.

    Args:
        var_smoothing: See above; above zero.
    """

    var_smoothing: float = 1e-9

    probabilistic = True
    regression = False
    warm = False
    host = False
    shift_invariant = True

    def __post_init__(self) -> None:
        check_positive("var_smoothing", self.var_smoothing)

    def prepare(self, data: Examples) -> Examples:
        """Return the examples as they are."""
        return data

    def fit(
        self,
        data: Examples,
        weights: Shaped[jax.Array, "B n"],
        key: Key[jax.Array, ""] | None = None,
        start: Any = None,
    ) -> ClassMoments:
        """Train on each subset: see `Learner.fit`."""
        del key, start
        x, w = jnp.asarray(data.x, jnp.float32), jnp.asarray(weights, jnp.float32)
        onehot, count, mean = _means(data, w)
        share = w / jnp.maximum(w.sum(1, keepdims=True), 1)

        def spread(feature: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            # Two passes, since a mean of squares would cancel in float32.
            values, means = feature
            deviation = values[None] - dot(means, onehot.T)
            within = dot(w * deviation**2, onehot) / jnp.maximum(count, 1)
            middle = jnp.sum(share * values[None], axis=1, keepdims=True)
            return within, jnp.sum(share * (values[None] - middle) ** 2, axis=1)

        within, overall = map_rows(spread, (x.T, mean.transpose(2, 0, 1)))
        smoothing = self.var_smoothing * overall.max(0)
        # Where no feature varies, none tells classes apart but by its mean.
        smoothing = jnp.where(smoothing > 0, smoothing, 1.0)
        variance = within.transpose(1, 2, 0) + smoothing[:, None, None]
        return ClassMoments(count, mean, variance)

    def predict(
        self, params: ClassMoments, x: Shaped[jax.Array, "m d"]
    ) -> Float[jax.Array, "B m C"]:
        """Return log joint probabilities, `[B, m, C]`: see `Learner.predict`.

        They lack a constant for each sample: the least squared distance to a class in
        each feature. Of few points a class may have no variance but the smoothing, and
        distances near 1e9, beside which float32 has no digits for the rest.
        """
        x = jnp.asarray(x, jnp.float32)
        present, variance = params.size > 0, params.variance
        distance = (x[None, :, None] - params.mean[:, None]) ** 2 / variance[:, None]
        among = jnp.where(present[:, None, :, None], distance, jnp.inf)
        distance = (distance - among.min(2, keepdims=True)).sum(-1)
        constant = jnp.log(params.size) - jnp.log(variance).sum(-1) / 2
        scores = constant[:, None] - distance / 2
        return jnp.where(params.size[:, None] > 0, scores, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class NearestCentroid:
    """The class whose mean is nearest in Euclidean distance.

    A subset costs n d C multiplications. It gives no probabilities.
    """

    probabilistic = False
    regression = False
    warm = False
    host = False
    shift_invariant = True

    def prepare(self, data: Examples) -> Examples:
        """Return the examples as they are."""
        return data

    def fit(
        self,
        data: Examples,
        weights: Shaped[jax.Array, "B n"],
        key: Key[jax.Array, ""] | None = None,
        start: Any = None,
    ) -> ClassMoments:
        """Train on each subset: see `Learner.fit`."""
        del key, start
        _, count, mean = _means(data, jnp.asarray(weights, jnp.float32))
        return ClassMoments(count, mean, jnp.zeros((len(mean), 0)))

    def predict(
        self, params: ClassMoments, x: Shaped[jax.Array, "m d"]
    ) -> Float[jax.Array, "B m C"]:
        """Return minus squared distances, up to a constant for each sample."""
        x = jnp.asarray(x, jnp.float32)
        near = jnp.einsum("bcd,md->bmc", params.mean, x, precision="highest")
        scores = near - (params.mean**2).sum(-1)[:, None] / 2
        return jnp.where(params.size[:, None] > 0, scores, -jnp.inf)


def _means(data: Examples, w: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return classes `[n, C]`, their sizes `[B, C]` and means `[B, C, d]`."""
    x = jnp.asarray(data.x, jnp.float32)
    onehot = jax.nn.one_hot(data.y, data.n_classes, dtype=jnp.float32)
    count = jnp.matmul(w, onehot, precision="highest")
    by_class = (onehot[:, :, None] * x[:, None]).reshape(len(x), -1)
    sums = jnp.matmul(w, by_class, precision="highest")
    sums = sums.reshape(len(w), data.n_classes, x.shape[1])
    return onehot, count, sums / jnp.maximum(count, 1)[..., None]
