"""Ridge regression, as scikit-learn's, on many subsets at once."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key, Shaped

from jaxsel._devices.typed import lax_map, tree_map
from jaxsel._inputs.checks import check_positive
from jaxsel.value._examples import Examples

from ._arrays import dot, to_single as to
from ._double import solve_double
from ._logistic import LinearParams, linear
from ._scaled import narrowed, scaled_rows, standardise, widened
from ._solve import pairs, solve_packed


class _Prepared(NamedTuple):
    inner: jax.Array | None  # scaled features, ones last, [n, p]; None in float64
    mean: jax.Array  # [d]
    factor: jax.Array  # from features to inner ones, [d]
    penalty: jax.Array  # of their coefficients, [p]
    targets: jax.Array  # centred, [K, n]
    shift: jax.Array  # [K]
    products: jax.Array | None  # [p (p + 1) / 2, n]


@dataclasses.dataclass(frozen=True)
class RidgeRegression:
    """Least squares with an l2 penalty on the weights, not on the intercept.

    With classes for targets it is scikit-learn's RidgeClassifier: a regression on
    -1 and 1 for each class, the highest output wins.

    Columns may be in any units: they are scaled inside, and the penalty moves along. A
    subset costs n d² / 2 multiplications for its products and d³ / 6 for its system; in
    float64 where a column's variance is more than a thousand times the penalty.

    Args:
        l2: The penalty, above zero: alpha of scikit-learn.
    """

    l2: float = 1.0

    probabilistic = False
    regression = True
    warm = False
    host = False
    shift_invariant = True

    def __post_init__(self) -> None:
        check_positive("l2", self.l2)

    def prepare(self, data: Examples) -> Examples:
        """Scale the features, the penalty along with them, and multiply their pairs."""
        scaled, y = standardise(data.x, self.l2), np.asarray(data.y)
        if data.n_classes:
            targets = 2.0 * (y == np.arange(data.n_classes)[:, None]) - 1
        else:
            targets = y[None].astype(np.float64)
        # The intercept has no penalty, so that a shift of all targets changes no
        # weight; centred targets keep more float32 digits of their differences.
        shift = targets.mean(1).astype(np.float32)
        products = None
        if not scaled.raw:
            rows, columns = pairs(scaled.x.shape[1])
            products = to(scaled.x.T[rows] * scaled.x.T[columns])
        extra = _Prepared(
            None if scaled.raw else to(scaled.x),
            to(scaled.mean),
            to(scaled.factor),
            to(scaled.penalty),
            to(targets - shift[:, None]),
            to(shift),
            products,
        )
        return dataclasses.replace(data, extra=extra)

    def fit(
        self,
        data: Examples,
        weights: Shaped[jax.Array, "B n"],
        key: Key[jax.Array, ""] | None = None,
        start: Any = None,
    ) -> LinearParams:
        """Train on each subset: see `Learner.fit`."""
        del key, start
        extra: _Prepared = data.extra
        weights = jnp.asarray(weights, jnp.float32)
        present = jnp.ones((len(weights), len(extra.targets)), bool)
        if data.n_classes:
            onehot = jax.nn.one_hot(data.y, data.n_classes, dtype=jnp.float32)
            present = dot(weights, onehot) > 0
        if extra.inner is not None and extra.products is not None:
            theta = _solutions(extra, extra.inner, extra.products, weights.T)
            return _outward(extra, theta, present)
        with jax.enable_x64(True):
            x = scaled_rows(data.x, extra.mean, extra.factor)
            extra, wide = tree_map(widened, (extra, weights))
            params = _outward(extra, _double_solutions(extra, x, wide), present)
            return tree_map(narrowed, params)

    def predict(
        self, params: LinearParams, x: Shaped[jax.Array, "m d"]
    ) -> Float[jax.Array, "B m C"]:
        """Return outputs, `[B, m, classes]` or `[B, m, 1]`: see `Learner.predict`."""
        out = jnp.where(params.present[:, :, None], linear(params, x), -jnp.inf)
        return out.transpose(0, 2, 1)


def _solutions(
    extra: _Prepared, x: jax.Array, products: jax.Array, w: jax.Array
) -> jax.Array:
    """Return coefficients of weights `[n, B]`, `[B, K, p]`, all at once."""
    packed = dot(products, w)
    diagonal = jnp.arange(x.shape[1])
    packed = packed.at[diagonal * (diagonal + 3) // 2].add(extra.penalty[:, None])
    # An empty subset has no intercept to find.
    packed = packed.at[-1].add((w.sum(0) == 0).astype(packed.dtype))
    sides = [dot(x.T, w * target[:, None]) for target in extra.targets]
    return solve_packed(packed, jnp.stack(sides)).transpose(2, 0, 1)


def _double_solutions(extra: _Prepared, x: jax.Array, weights: jax.Array) -> jax.Array:
    """Return coefficients of weights `[B, n]` in float64, one subset at a time."""
    penalty = jnp.asarray(np.eye(x.shape[1])) * extra.penalty[None]

    def solve(w: jax.Array) -> jax.Array:
        products = dot(x.T, w[:, None] * x) + penalty
        return solve_double(products, dot(x.T, (w[None] * extra.targets).T)).T

    return lax_map(solve, weights)


def _outward(extra: _Prepared, theta: jax.Array, present: jax.Array) -> LinearParams:
    weight = theta[..., :-1] * extra.factor[None, None]
    bias = theta[..., -1] - dot(weight, extra.mean) + extra.shift[None]
    return LinearParams(weight, bias, present, jnp.ones(len(present), bool))
