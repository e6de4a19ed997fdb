"""Logistic regression, as scikit-learn's, on many subsets at once."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key, Shaped

from jaxsel._devices.typed import tree_map
from jaxsel._inputs.checks import check_positive
from jaxsel.value._examples import Examples

from ._arrays import to_single as to
from ._curvature import Curvature, curvature
from ._double import fit_double
from ._newton import fit_two_classes
from ._newton_classes import fit_few_classes
from ._scaled import is_raw, narrowed, scaled_rows, standardise, widened
from ._softmax import fit_softmax
from ._solve import UNROLLED, pairs

_DIRECT = 512  # coefficients up to which Hessians are formed in float64
_EXPLICIT = 22  # the same in float32, of three classes and more


class LinearParams(NamedTuple):
    """Coefficients of B linear models of K outputs.

    Attributes:
        weight: `[B, K, d]`.
        bias: `[B, K]`.
        present: Which classes a subset has, `[B, C]`.
        converged: Which models are at their optimum, `[B]`.
    """

    weight: jax.Array
    bias: jax.Array
    present: jax.Array
    converged: jax.Array


class _Prepared(NamedTuple):
    inner: jax.Array | None  # scaled features, ones last, [n, p]; None in float64
    mean: jax.Array  # [d]
    factor: jax.Array  # from features to inner ones, [d]
    penalty: jax.Array  # of their coefficients, [p]
    products: jax.Array | None  # [p (p + 1) / 2, n]
    curvature: Curvature | None


@dataclasses.dataclass(frozen=True)
class LogisticRegression:
    """Logistic regression with an l2 penalty on the weights, not on the intercept.

    The objective is scikit-learn's with C = 1 / l2: Σ log loss + l2 |w|² / 2. As there,
    classes that a subset lacks are left out of the model, and of exactly two classes
    the penalty is on the difference of their weights. A subset of one class predicts
    it always.

    Columns may be in any units: they are scaled inside, and the penalty moves along, so
    that the optimum is that of the columns as they are. Parameters say which subsets
    `converged`; the others keep what they have reached after a limit of steps.

    Two classes and up to 15 features, and C classes of which (C - 1) (d + 1) is at most
    22, take Newton steps with explicit Hessians, about four of n d² C² / 8
    multiplications each; all else takes Newton steps by conjugate gradients, 4 n d C
    multiplications each. Where a column's variance is more than a thousand times the
    penalty, steps are in float64: of up to 512 coefficients with explicit Hessians,
    n C² d² / 2 multiplications, else by conjugate gradients.

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
    shift_invariant = True

    def __post_init__(self) -> None:
        check_positive("l2", self.l2)
        check_positive("tol", self.tol)

    def prepare(self, data: Examples) -> Examples:
        """Centre and scale the features, and precompute parts of their Hessians.

        The penalty moves along, so that the optimum stays where it is.
        """
        scaled = standardise(data.x, self.l2)
        few = _few(data.n_classes, data.x.shape[1])
        size = max(data.n_classes - 1, 1) * scaled.x.shape[1]
        direct = scaled.raw and size <= _DIRECT
        products = curved = None
        if (few or size <= _EXPLICIT) and not direct:
            rows, columns = pairs(scaled.x.shape[1])
            products = to(scaled.x.T[rows] * scaled.x.T[columns])
        elif not direct:
            # Its preconditioner has one penalty for all columns.
            scaled = standardise(data.x, self.l2, alike=True)
            onehot = np.asarray(data.y) == np.arange(data.n_classes)[:, None]
            curved = curvature(scaled.x, onehot, float(scaled.penalty[0]))
        extra = _Prepared(
            None if scaled.raw else to(scaled.x),
            to(scaled.mean),
            to(scaled.factor),
            to(scaled.penalty),
            products,
            curved,
        )
        return dataclasses.replace(data, extra=extra)

    def needs_double(self, x: Shaped[jax.Array, "n d"] | np.ndarray) -> bool:
        """Return whether features are in units in which `fit` computes in float64."""
        x = np.asarray(x, np.float32)
        # No less than their deviations, at a tenth of the price.
        bound = np.sqrt(np.einsum("ij,ij->j", x, x) / len(x))
        if not is_raw(bound, self.l2):
            return False
        return is_raw(x.std(axis=0, dtype=np.float64), self.l2)

    def cold(self, data: Examples, count: int) -> LinearParams:
        """Return zero parameters, from which `fit` starts as from None.

        A learner that has this says that subsets of no point cost next to nothing.
        """
        outputs = 1 if _few(data.n_classes, data.x.shape[1]) else data.n_classes
        weight = np.zeros((count, outputs, data.x.shape[1]), np.float32)
        present = np.zeros((count, data.n_classes), bool)
        converged = jnp.asarray(np.ones(count, bool))
        return LinearParams(
            to(weight), to(weight[..., 0]), jnp.asarray(present), converged
        )

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
        if extra.inner is not None:
            return self._fit(extra, extra.inner, onehot, weights, present, start)
        with jax.enable_x64(True):
            x = scaled_rows(data.x, extra.mean, extra.factor)
            wide = extra, x, onehot, weights, present, start
            params = self._fit(*tree_map(widened, wide))
            return tree_map(narrowed, params)

    def _fit(
        self,
        extra: _Prepared,
        x: jax.Array,
        onehot: jax.Array,
        weights: jax.Array,
        present: jax.Array,
        start: LinearParams | None,
    ) -> LinearParams:
        """Train in the type of the arrays, which is float32 or float64."""
        p, classes = x.shape[1], onehot.shape[1]
        active = present.sum(1) > 1
        # Of two classes and few features the second has coefficients, else all have.
        few = _few(classes, p - 1)
        kept = active[:, None] if few else present & active[:, None]
        if start is None:
            theta = jnp.zeros((len(weights), kept.shape[1], p), x.dtype)
        else:
            theta = _inward(extra, start)
        # A start may hold classes that this subset lacks, and NaN of a fit that failed.
        theta = jnp.where(kept[:, :, None] & jnp.isfinite(theta), theta, 0)
        # As in scikit-learn, the penalty of two classes is on their difference v: twice
        # the squares of ±v / 2.
        two = jnp.where(present.sum(1) == 2, 2.0, 1.0).astype(x.dtype)
        if extra.products is not None and not few:
            theta, converged = fit_few_classes(
                x,
                extra.products,
                onehot.T,
                weights.T,
                extra.penalty[:, None] * two[None],
                present.T,
                theta.transpose(1, 2, 0),
                active,
                self.tol,
            )
            theta = theta.transpose(2, 0, 1)
        elif extra.products is not None:
            theta, converged = fit_two_classes(
                x,
                extra.products,
                onehot[:, 1],
                weights.T,
                extra.penalty,
                theta[:, 0].T,
                active,
                self.tol,
            )
            theta = theta.T[:, None]
        elif extra.curvature is None:
            if few:
                theta = jnp.pad(theta, ((0, 0), (1, 0), (0, 0)))
            theta, converged = fit_double(
                x, onehot.T, weights, extra.penalty, present, theta, self.tol
            )
            theta = theta[:, 1:] - theta[:, :1] if few else theta
        else:
            theta, converged = fit_softmax(
                x,
                onehot.T,
                weights,
                two[:, None] * extra.penalty[None],
                present,
                theta,
                active,
                extra.curvature,
                self.tol,
            )
        return _outward(extra, theta, present, converged)

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


def _few(classes: int, features: int) -> bool:
    """Return whether the models have one output, for the second of two classes."""
    return classes == 2 and features < UNROLLED


def _inward(extra: _Prepared, start: LinearParams) -> jax.Array:
    """Return coefficients of the solver's features, `[B, K, p]`."""
    bias = start.bias + jnp.matmul(start.weight, extra.mean, precision="highest")
    weight = start.weight / extra.factor[None, None]
    return jnp.concatenate([weight, bias[..., None]], axis=-1)


def _outward(
    extra: _Prepared, theta: jax.Array, present: jax.Array, converged: jax.Array
) -> LinearParams:
    weight, bias = theta[..., :-1] * extra.factor[None, None], theta[..., -1]
    shift = jnp.matmul(weight, extra.mean, precision="highest")
    return LinearParams(weight, bias - shift, present, converged)
