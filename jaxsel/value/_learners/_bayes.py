"""Gaussian naive Bayes and nearest centroids, on many subsets at once."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key, Shaped

from jaxsel._devices.typed import lax_map, tree_map
from jaxsel._inputs.checks import check_positive
from jaxsel.value._examples import Examples

from ._arrays import dot
from ._scaled import narrowed, widened


class ClassMoments(NamedTuple):
    """Moments of each class in B subsets.

    Attributes:
        size: `[B, C]`.
        mean: `[B, C, d]`.
        variance: `[B, C, d]`; of no use to centroids.
        rest: Remainders of mean and variance below float32, `[2, B, C, d]`.
    """

    size: jax.Array
    mean: jax.Array
    variance: jax.Array
    rest: jax.Array


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
        with jax.enable_x64(True):
            x, w = widened(jnp.asarray(data.x)), widened(jnp.asarray(weights))
            onehot, count, mean = _means(data, x, w)
            share = w / jnp.maximum(w.sum(1, keepdims=True), 1)

            def spread(
                feature: tuple[jax.Array, jax.Array],
            ) -> tuple[jax.Array, jax.Array]:
                # Two passes, since a mean of squares would cancel.
                values, means = feature
                deviation = values[None] - dot(means, onehot.T)
                within = dot(w * deviation**2, onehot) / jnp.maximum(count, 1)
                middle = jnp.sum(share * values[None], axis=1, keepdims=True)
                return within, jnp.sum(share * (values[None] - middle) ** 2, axis=1)

            within, overall = lax_map(spread, (x.T, mean.transpose(2, 0, 1)))
            smoothing = self.var_smoothing * overall.max(0)
            # Where no feature varies, none tells classes apart but by its mean.
            smoothing = jnp.where(smoothing > 0, smoothing, 1.0)
            variance = within.transpose(1, 2, 0) + smoothing[:, None, None]
            exact = jnp.stack([mean, variance])
            single = narrowed(exact)
            rest = narrowed(exact - widened(single))
            return ClassMoments(narrowed(count), single[0], single[1], rest)

    def predict(
        self, params: ClassMoments, x: Shaped[jax.Array, "m d"]
    ) -> Float[jax.Array, "B m C"]:
        """Return log joint probabilities, `[B, m, C]`: see `Learner.predict`.

        They lack a constant for each sample, so that the likeliest class has 0. Of few
        points a class may have no variance but the smoothing, and distances near 1e9,
        beside which float32 has no digits for the rest: float64 has.
        """
        with jax.enable_x64(True):
            size, mean, variance, rest = tree_map(widened, params)
            mean, variance = mean + rest[0], variance + rest[1]
            present = size > 0
            x = widened(jnp.asarray(x))
            away = (x[None, :, None] - mean[:, None]) ** 2 / variance[:, None]
            # Subtract feature by feature, before large sums swamp the differences.
            among = jnp.where(present[:, None, :, None], away, jnp.inf)
            away = (away - among.min(2, keepdims=True)).sum(-1)
            constant = jnp.log(size) - jnp.log(variance).sum(-1) / 2
            scores = jnp.where(present[:, None], constant[:, None] - away / 2, -jnp.inf)
            best = scores.max(2, keepdims=True)
            return narrowed(jnp.where(jnp.isfinite(best), scores - best, scores))


@dataclasses.dataclass(frozen=True)
class NearestCentroid:
    """Nearest-centroid classifier in Euclidean distance.

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
        x = jnp.asarray(data.x, jnp.float32)
        _, count, mean = _means(data, x, jnp.asarray(weights, jnp.float32))
        none = jnp.zeros((len(mean), 0))
        return ClassMoments(count, mean, none, none)

    def predict(
        self, params: ClassMoments, x: Shaped[jax.Array, "m d"]
    ) -> Float[jax.Array, "B m C"]:
        """Return minus squared distances, up to a constant for each sample."""
        x = jnp.asarray(x, jnp.float32)
        # -|x - mean|² / 2 without |x|²: it is the same for all classes of a sample, and
        # would cost the digits in which they differ.
        near = jnp.einsum("bcd,md->bmc", params.mean, x, precision="highest")
        scores = near - (params.mean**2).sum(-1)[:, None] / 2
        return jnp.where(params.size[:, None] > 0, scores, -jnp.inf)


def _means(
    data: Examples, x: jax.Array, w: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return classes `[n, C]`, their sizes `[B, C]` and means `[B, C, d]`."""
    onehot = jax.nn.one_hot(data.y, data.n_classes, dtype=x.dtype)
    count = dot(w, onehot)
    by_class = (onehot[:, :, None] * x[:, None]).reshape(len(x), -1)
    sums = dot(w, by_class).reshape(len(w), data.n_classes, x.shape[1])
    return onehot, count, sums / jnp.maximum(count, 1)[..., None]
