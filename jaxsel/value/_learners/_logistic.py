"""Logistic regression, as scikit-learn's, on many subsets at once."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key, Shaped

from jaxsel._checks import check_positive
from jaxsel.value._examples import Examples

from ._arrays import to_single as to
from ._curvature import Curvature, curvature
from ._newton import fit_two_classes
from ._softmax import fit_softmax
from ._solve import UNROLLED, pairs


class LinearParams(NamedTuple):
    """Coefficients of B linear models of K outputs.

    Attributes:
        weight: `[B, K, d]`.
        bias: `[B, K]`.
        present: Which classes a subset has, `[B, C]`.
    """

    weight: jax.Array
    bias: jax.Array
    present: jax.Array


class _Prepared(NamedTuple):
    inner: jax.Array  # features as the solver sees them, a column of ones last, [n, p]
    mean: jax.Array  # [d]
    factor: jax.Array  # from features to inner ones, [d]
    products: jax.Array | None  # [p (p + 1) / 2, n]
    curvature: Curvature | None


@dataclasses.dataclass(frozen=True)
class LogisticRegression:
    """Logistic regression with an l2 penalty on the weights, not on the intercept.

    The objective is scikit-learn's with C = 1 / l2: Σ log loss + l2 |w|² / 2. As there,
    classes that a subset lacks are left out of the model, and of exactly two classes
    the penalty is on the difference of their weights. A subset of one class predicts
    it always.

    Two classes and up to 15 features take Newton steps with explicit Hessians, about
    four of n d² / 2 multiplications each; all else takes Newton steps by conjugate
    gradients, 4 n d C multiplications each.

    Args:
        l2: The penalty, above zero.
        tol: About how far logits may be from those of the optimum.
    """

    l2: float = 1.0
    tol: float = 1e-4

    probabilistic = True
    regression = False
    warm = True
    host = False

    def __post_init__(self) -> None:
        check_positive("l2", self.l2)
        check_positive("tol", self.tol)

    def prepare(self, data: Examples) -> Examples:
        """Centre the features, and work out what their Hessians are made of."""
        x = np.asarray(data.x, np.float64)
        mean = x.mean(0)
        x = x - mean
        factor = np.ones(x.shape[1])
        explicit = _explicit(data)
        if explicit:
            deviation = x.std(0)
            factor = 1 / np.where(deviation > 0, deviation, 1.0)
        x = np.append(x * factor, np.ones((len(x), 1)), axis=1)
        products = curved = None
        if explicit:
            rows, columns = pairs(x.shape[1])
            products = to(x.T[rows] * x.T[columns])
        else:
            onehot = np.asarray(data.y) == np.arange(data.n_classes)[:, None]
            curved = curvature(x, onehot, self.l2)
        extra = _Prepared(to(x), to(mean), to(factor), products, curved)
        return dataclasses.replace(data, extra=extra)

    def cold(self, data: Examples, count: int) -> LinearParams:
        """Return parameters that `fit` starts from as it does from none.

        A learner that has this says that subsets of no point cost next to nothing.
        """
        outputs = 1 if _explicit(data) else data.n_classes
        weight = np.zeros((count, outputs, data.x.shape[1]), np.float32)
        present = np.zeros((count, data.n_classes), bool)
        return LinearParams(to(weight), to(weight[..., 0]), jnp.asarray(present))

    def fit(
        self,
        data: Examples,
        weights: Shaped[jax.Array, "B n"],
        key: Key[jax.Array, ""] | None = None,
        start: LinearParams | None = None,
    ) -> LinearParams:
        """Train on each subset: see `Learner.fit`."""
        del key
        extra: _Prepared = data.extra
        weights = jnp.asarray(weights, jnp.float32)
        onehot = jax.nn.one_hot(data.y, data.n_classes, dtype=jnp.float32)
        present = jnp.matmul(weights, onehot, precision="highest") > 0
        active = present.sum(1) > 1
        explicit = _explicit(data)
        outputs = 1 if explicit else data.n_classes
        kept = active[:, None] if explicit else present & active[:, None]
        if start is None:
            shape = (len(weights), outputs, extra.inner.shape[1])
            theta = jnp.zeros(shape, jnp.float32)
        else:
            theta = _inward(extra, start)
        theta = jnp.where(kept[:, :, None] & jnp.isfinite(theta), theta, 0)
        if explicit and extra.products is not None:
            # Squares of weights in the scale of the features.
            penalty = jnp.append(self.l2 * extra.factor**2, 0.0)
            theta = fit_two_classes(
                extra.inner,
                extra.products,
                onehot[:, 1],
                weights.T,
                penalty,
                theta[:, 0].T,
                active,
                self.tol,
            ).T[:, None]
        else:
            assert extra.curvature is not None
            d = data.x.shape[1]
            two = jnp.where(present.sum(1) == 2, 2, 1).astype(jnp.float32) * self.l2
            penalty = jnp.append(
                jnp.broadcast_to(two[:, None], (len(weights), d)),
                jnp.zeros((len(weights), 1), jnp.float32),
                axis=1,
            )
            theta = fit_softmax(
                extra.inner,
                onehot.T,
                weights,
                penalty,
                present,
                theta,
                active,
                extra.curvature,
                self.tol,
            )
        return _outward(extra, theta, present)

    def predict(
        self, params: LinearParams, x: Shaped[jax.Array, "m d"]
    ) -> Float[jax.Array, "B m C"]:
        """Return logits, `[B, m, classes]`: see `Learner.predict`."""
        logits = linear(params, x)
        if logits.shape[1] < params.present.shape[1]:
            logits = jnp.concatenate([jnp.zeros_like(logits), logits], axis=1)
        logits = jnp.where(params.present[:, :, None], logits, -jnp.inf)
        return logits.transpose(0, 2, 1)


def linear(params: LinearParams, x: jax.Array) -> jax.Array:
    """Return the outputs of linear models, `[B, K, m]`."""
    models, outputs, d = params.weight.shape
    weight = params.weight.reshape(-1, d)
    product = jnp.matmul(weight, x.T, precision="highest")
    return product.reshape(models, outputs, -1) + params.bias[:, :, None]


def _explicit(data: Examples) -> bool:
    return data.n_classes == 2 and data.x.shape[1] < UNROLLED


def _inward(extra: _Prepared, start: LinearParams) -> jax.Array:
    """Return coefficients of the solver's features, `[B, K, p]`."""
    bias = start.bias + jnp.matmul(start.weight, extra.mean, precision="highest")
    weight = start.weight / extra.factor[None, None]
    return jnp.concatenate([weight, bias[..., None]], axis=-1)


def _outward(extra: _Prepared, theta: jax.Array, present: jax.Array) -> LinearParams:
    weight, bias = theta[..., :-1] * extra.factor[None, None], theta[..., -1]
    shift = jnp.matmul(weight, extra.mean, precision="highest")
    return LinearParams(weight, bias - shift, present)
