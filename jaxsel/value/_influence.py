"""Influence functions of logistic regression, with the exact Hessian."""

from __future__ import annotations

from typing import cast

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy import linalg, special

from jaxsel._devices.platform import one_thread_if_small
from jaxsel._inputs.alignment import align, row_index
from jaxsel._inputs.checks import check_features, check_positive
from jaxsel._inputs.scale import mean_and_scale
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel._results.types import Values

from ._learners import LogisticRegression
from ._utility import examples

_STEPS, _SMALL, _CLOSE = 200, 1e-10, 1e-4
_LARGEST = 20_000  # coefficients, whose Hessian takes 3.2 GB


def influence(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    l2: float = 1.0,
) -> Values:
    """Approximate the leave-one-out value of each training point, without retraining.

    The value is the first-order change of the mean validation log loss (nats) when a
    point is left out of a logistic regression, which approximates
    `loo(ModelUtility(LogisticRegression(l2), ..., metric="neg_log_loss"))`. Points on
    which the model depends strongly, such as those of a rare class, are underestimated.

    Args:
        x: Training features, `[n, d]`.
        y: Training labels, `[n]`.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels, `[m]`, that occur in y.
        l2: Penalty on the weights, as of `LogisticRegression`.

    Returns:
        `Values`, `[n]`, means over validation points with their standard error. Costs
        about ten factorisations of p x p in float64 and n p² multiplications each, with
        p = (d + 1) C coefficients (d + 1 of two classes).

    Raises:
        ValueError: If shapes do not fit, numbers are not finite, or there are more
            than 20,000 coefficients.

    References:
        Koh and Liang, Understanding black-box predictions via influence functions,
        ICML 2017, equation 2.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array([0, 1, 0, 1, 1, 1])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [0.14], [1.06]]), np.array([0, 0, 1])
        >>> values = jaxsel.influence(x, y, x_val, y_val, l2=0.1)
        >>> print(values.bottom(1))
        [1]
    """
    l2 = check_positive("l2", l2)
    index, x_val = row_index(x), align(x, y, x_val, y_val)
    data, (_, codes_val) = examples(LogisticRegression(l2=l2), x, y, x_val, y_val)
    codes = np.asarray(data.y)
    missing = np.setdiff1d(codes_val, codes)
    if missing.size:
        row = int(np.flatnonzero(codes_val == missing[0])[0])
        label = np.asarray(y_val)[row]
        raise ValueError(f"y_val must hold labels that occur in y, got {label!r}")
    x, x_val = (
        np.asarray(check_features(name, value), np.float64)
        for name, value in (("x", x), ("x_val", x_val))
    )
    mean, scale = mean_and_scale(x)
    x, x_val = _with_ones((x - mean) / scale), _with_ones((x_val - mean) / scale)
    with one_thread_if_small(x):
        fitted = _Fitted(x, codes, data.n_classes, l2 / scale**2)
        right = fitted.solve(fitted.gradients(x, codes).T)
        rows = fitted.gradients(x_val, codes_val) @ right
    mean = rows.mean(0)
    return Values(
        values=jnp.asarray(mean, jnp.float32),
        m2=jnp.asarray(((rows - mean) ** 2).sum(0), jnp.float32),
        count=jnp.asarray(len(rows), jnp.int32),
        method=f"influence(l2={l2:g})",
        index=index,
    )


def _with_ones(x: np.ndarray) -> np.ndarray:
    return np.append(x, np.ones((len(x), 1)), axis=1)


class _Fitted:
    """A logistic regression at its optimum, in float64.

    Attributes:
        theta: `[K, p]`, one output for two classes.
        scale: Factor that makes the Hessian's diagonal 1, `[K p]`.
        factor: Its Cholesky factor, for `scipy.linalg.cho_solve`.
    """

    def __init__(self, x: np.ndarray, codes: np.ndarray, classes: int, l2: np.ndarray):
        outputs = 1 if classes == 2 else classes
        size = outputs * x.shape[1]
        if size > _LARGEST:
            raise ValueError(
                f"x must have at most {_LARGEST // outputs - 1} features for an exact "
                f"Hessian with {classes} classes, got {x.shape[1] - 1}"
            )
        self.classes = classes
        self.penalty = np.append(l2, 0.0)
        self.theta: np.ndarray = np.zeros((outputs, x.shape[1]))
        r = np.inf
        for _ in range(_STEPS):
            hessian = self._hessian(x)
            self.scale = 1 / np.sqrt(hessian.diagonal())
            hessian *= self.scale
            hessian *= self.scale[:, None]
            # No less than rounding takes from it, so that equal columns do no harm.
            hessian[np.diag_indices(size)] += 2 * size * np.finfo(np.float64).eps
            self.factor = linalg.cho_factor(hessian)
            slope = (
                self.gradients(x, codes).sum(0) + (self.penalty * self.theta).ravel()
            )
            step = self.solve(slope).reshape(self.theta.shape)
            # Of two classes the first has logit 0, without which the range would be 0.
            z = np.pad(x @ step.T, ((0, 0), (0, int(outputs == 1))))
            r = np.ptp(z, axis=1).max()
            # A full step may overshoot beyond 1.5: see `_newton.damped`.
            self.theta = self.theta - (np.log1p(r) / r if r > 1.5 else 1.0) * step
            if r <= _SMALL:
                break
        if r > _CLOSE:
            doubt(
                f"logistic regression did not converge in {_STEPS} steps, so that "
                "values may be far off: standardise the columns of x, or raise l2"
            )

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Return the probability of each output, `[n, K]`."""
        z = x @ self.theta.T
        return special.expit(z) if self.classes == 2 else special.softmax(z, axis=1)

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return the inverse Hessian times a vector or columns, `[K p, ...]`."""
        scale = self.scale.reshape(-1, *[1] * (right.ndim - 1))
        return scale * cast(np.ndarray, linalg.cho_solve(self.factor, scale * right))

    def gradients(self, x: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the gradient of each point's log loss, `[n, K p]`."""
        onehot = codes[:, None] == np.arange(self.classes)
        target = onehot[:, 1:] if self.classes == 2 else onehot
        error = self.probabilities(x) - target
        return (error[:, :, None] * x[:, None]).reshape(len(x), -1)

    def _hessian(self, x: np.ndarray) -> np.ndarray:
        p = self.probabilities(x)
        outputs, size = self.theta.shape
        hessian = np.empty((outputs, size, outputs, size))
        for a in range(outputs):
            for b in range(a + 1):
                weight = p[:, a] * ((a == b) - p[:, b])
                block = (x * weight[:, None]).T @ x
                hessian[a, :, b] = block
                hessian[b, :, a] = block
            hessian[a, :, a] += np.diag(self.penalty)
        if outputs > 1:
            # A constant on all intercepts changes nothing, and no gradient has it.
            hessian[:, -1, :, -1] += 1.0
        return hessian.reshape(outputs * size, -1)
