"""Ridge regression, as scikit-learn's, on many subsets at once."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key, Shaped

from jaxsel._checks import check_positive
from jaxsel.value._examples import Examples

from ._arrays import dot, to_single as to
from ._logistic import LinearParams, linear
from ._solve import pairs, solve_packed


class _Prepared(NamedTuple):
    inner: jax.Array  # centred features, a column of ones last, [n, p]
    mean: jax.Array  # [d]
    targets: jax.Array  # centred, [K, n]
    shift: jax.Array  # [K]
    products: jax.Array  # [p (p + 1) / 2, n]


@dataclasses.dataclass(frozen=True)
class RidgeRegression:
    """Least squares with an l2 penalty on the weights, not on the intercept.

    With classes for targets it is scikit-learn's RidgeClassifier: a regression on
    -1 and 1 for each class, the highest output wins.

    A subset costs n d² / 2 multiplications for its products and d³ / 6 for its system.

    Args:
        l2: The penalty, above zero: alpha of scikit-learn.
    """

    l2: float = 1.0

    probabilistic = False
    regression = True
    warm = False
    host = False

    def __post_init__(self) -> None:
        check_positive("l2", self.l2)

    def prepare(self, data: Examples) -> Examples:
        """Centre features and targets, and multiply the pairs of features."""
        x = np.asarray(data.x, np.float64)
        mean = x.mean(0)
        x = np.append(x - mean, np.ones((len(x), 1)), axis=1)
        y = np.asarray(data.y)
        if data.n_classes:
            targets = 2.0 * (y == np.arange(data.n_classes)[:, None]) - 1
        else:
            targets = y[None].astype(np.float64)
        shift = targets.mean(1)
        rows, columns = pairs(x.shape[1])
        extra = _Prepared(
            to(x),
            to(mean),
            to(targets - shift[:, None]),
            to(shift),
            to(x.T[rows] * x.T[columns]),
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
        w = jnp.asarray(weights, jnp.float32).T
        n_features = extra.inner.shape[1]
        packed = dot(extra.products, w)
        diagonal = jnp.arange(n_features - 1)
        diagonal = diagonal * (diagonal + 3) // 2
        # An empty subset has no intercept to find.
        empty = (w.sum(0) == 0).astype(packed.dtype)
        packed = packed.at[diagonal].add(self.l2).at[-1].add(empty)
        sides = [dot(extra.inner.T, w * target[:, None]) for target in extra.targets]
        theta = solve_packed(packed, jnp.stack(sides)).transpose(2, 0, 1)
        weight = theta[..., :-1]
        bias = theta[..., -1] - dot(weight, extra.mean) + extra.shift[None]
        present = jnp.ones((w.shape[1], len(extra.targets)), bool)
        if data.n_classes:
            onehot = jax.nn.one_hot(data.y, data.n_classes, dtype=jnp.float32)
            present = dot(w.T, onehot) > 0
        return LinearParams(weight, bias, present)

    def predict(
        self, params: LinearParams, x: Shaped[jax.Array, "m d"]
    ) -> Float[jax.Array, "B m C"]:
        """Return outputs, `[B, m, classes]` or `[B, m, 1]`: see `Learner.predict`."""
        out = jnp.where(params.present[:, :, None], linear(params, x), -jnp.inf)
        return out.transpose(0, 2, 1)
