"""Regressions of a metric on mixture weights: pure kernels of a Gaussian process."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from jaxsel._devices.typed import cholesky, diagonal

MixtureModel = Literal["quadratic", "gp"]
"""A regression of a metric on mixture weights; see `mixture_posterior`."""

ZERO = 1e-3
"""Added to weights before a power, whose slope at 0 is infinite."""

_TINY = 1e-12  # so that a root has a derivative at 0

MODELS: tuple[MixtureModel, ...] = ("quadratic", "gp")


class _Factors(NamedTuple):
    """Factors of the runs' covariance K = L Lᵀ, and of the trend's information.

    Attributes:
        lower: L, `[R, R]`.
        trend: L⁻¹ B of the trend's terms B, `[R, q]`.
        information: Cholesky factor of Bᵀ K⁻¹ B, `[q, q]`.
        metrics: L⁻¹ y, `[R]`.
    """

    lower: jax.Array
    trend: jax.Array
    information: jax.Array
    metrics: jax.Array


def mixture_posterior(
    mixtures: Float[jax.Array, "R D"],
    metrics: Float[jax.Array, " R"],
    scales: Float[jax.Array, " s"],
    points: Float[jax.Array, "m D"],
    *,
    model: MixtureModel,
) -> tuple[Float[jax.Array, " m"], Float[jax.Array, "m m"]]:
    """Return the posterior mean and covariance of the metric at mixtures: pure kernel.

    Both models are Gaussian processes with a trend of flat prior. "quadratic" is
    Scheffé's polynomial: a linear trend without an intercept, since weights sum to 1,
    and a product of each pair of weights whose coefficient has the standard deviation
    `exp(scales[0])`. As that grows, it becomes least squares. "gp" has a constant
    trend, coefficients of a linear part, and a Matérn kernel (5/2) of distances between
    powers of the weights, with a length for each domain: metrics often change fastest
    where a weight is near 0. Costs O(R³ + R² m + R m²).

    Args:
        mixtures: Weights of the runs, `[R, D]`.
        metrics: Their metrics, `[R]`: centred and of unit variance for usual scales.
        scales: Logarithms. For "quadratic": standard deviation of the products'
            coefficients, and of the noise of a run, `[2]`. For "gp": lengths, the
            exponent of the power, standard deviation of the smooth part, of the slopes,
            and of the noise, `[D + 4]`.
        points: Mixtures to predict at, `[m, D]`.
        model: "quadratic" or "gp".

    Returns:
        Mean `[m]` and covariance `[m, m]` of the expected metric, without a run's
        noise.

    References:
        Scheffé, "Experiments with Mixtures", JRSS B 1958; Rasmussen and Williams,
        "Gaussian Processes for Machine Learning", 2006, equations 2.41, 2.42 and 4.17.
    """
    mean, solved, unsure = _at_points(mixtures, metrics, scales, points, model)
    covariance = (
        _covariance(scales, points, points, model)
        - _product(solved.T, solved)
        + _product(unsure.T, unsure)
    )
    return mean, covariance


def mixture_left_out(
    mixtures: Float[jax.Array, "R D"],
    metrics: Float[jax.Array, " R"],
    scales: Float[jax.Array, " s"],
    *,
    model: MixtureModel,
) -> tuple[Float[jax.Array, " R"], Float[jax.Array, " R"]]:
    """Return the error of each run's prediction from all others: a pure kernel.

    Exact for the trend, too, without a refit: with Q of the restricted likelihood, the
    error is (Q y)ᵢ / Qᵢᵢ and its variance 1 / Qᵢᵢ. Costs O(R³).

    Args:
        mixtures: Weights of the runs, `[R, D]`.
        metrics: Their metrics, `[R]`.
        scales: As for `mixture_posterior`.
        model: "quadratic" or "gp".

    Returns:
        Metric minus prediction `[R]`, and the variance `[R]` that the model expects,
        the noise of the run included.

    References:
        Dubrule, "Cross Validation of Kriging in a Unique Neighborhood", Mathematical
        Geology 1983.
    """
    factors = _factor(mixtures, metrics, scales, model)
    size = jnp.eye(mixtures.shape[0], dtype=mixtures.dtype)
    inverse = solve_triangular(factors.lower, size, lower=True)
    part = solve_triangular(factors.information, factors.trend.T, lower=True)
    part = _product(part, inverse)
    precision = _product(inverse.T, inverse) - _product(part.T, part)
    variance = 1 / diagonal(precision)
    return _product(precision, metrics) * variance, variance


def evidence(
    mixtures: jax.Array, metrics: jax.Array, scales: jax.Array, *, model: MixtureModel
) -> jax.Array:
    """Return the restricted log likelihood of the scales, up to a constant."""
    factors = _factor(mixtures, metrics, scales, model)
    right = _product(factors.trend.T, factors.metrics)
    explained = solve_triangular(factors.information, right, lower=True)
    squares = jnp.sum(factors.metrics**2) - jnp.sum(explained**2)
    logs = jnp.sum(jnp.log(diagonal(factors.lower)))
    logs = logs + jnp.sum(jnp.log(diagonal(factors.information)))
    return -squares / 2 - logs


def pointwise(
    mixtures: jax.Array,
    metrics: jax.Array,
    scales: jax.Array,
    points: jax.Array,
    *,
    model: MixtureModel,
) -> tuple[jax.Array, jax.Array]:
    """Return the mean and variance of `mixture_posterior`, `[m]`, in O(R² m).

    Metrics may have columns, `[R, k]`: means are `[m, k]` then.
    """
    mean, solved, unsure = _at_points(mixtures, metrics, scales, points, model)
    squares = jnp.sum(points**2, 1)
    if model == "quadratic":
        prior = jnp.exp(2 * scales[0]) * (squares**2 - jnp.sum(points**4, 1)) / 2
    else:
        prior = jnp.exp(2 * scales[-3]) + jnp.exp(2 * scales[-2]) * squares
    return mean, prior - jnp.sum(solved**2, 0) + jnp.sum(unsure**2, 0)


def _at_points(
    mixtures: jax.Array,
    metrics: jax.Array,
    scales: jax.Array,
    points: jax.Array,
    model: MixtureModel,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the mean, and roots `[R, m]`, `[q, m]` of the variance less and more."""
    factors = _factor(mixtures, metrics, scales, model)
    between = _covariance(scales, mixtures, points, model)
    solved = solve_triangular(factors.lower, between, lower=True)
    # Terms of the trend that the smooth part does not carry to the points, [q, m].
    terms = _trend(points, model).T - _product(factors.trend.T, solved)
    unsure = solve_triangular(factors.information, terms, lower=True)
    right = _product(factors.trend.T, factors.metrics)
    effect = solve_triangular(factors.information, right, lower=True)
    mean = _product(unsure.T, effect) + _product(solved.T, factors.metrics)
    return mean, solved, unsure


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")


def _trend(mixtures: jax.Array, model: MixtureModel) -> jax.Array:
    if model == "quadratic":
        return mixtures
    return jnp.ones((mixtures.shape[0], 1), mixtures.dtype)


def _covariance(
    scales: jax.Array, a: jax.Array, b: jax.Array, model: MixtureModel
) -> jax.Array:
    if model == "quadratic":
        # The products of all pairs i < j, from the square of a sum.
        products = _product(a, b.T) ** 2 - _product(a**2, (b**2).T)
        return jnp.exp(2 * scales[0]) * products / 2
    lengths, power = jnp.exp(scales[:-4]), jnp.exp(scales[-4])
    x, y = ((w + ZERO) ** power / lengths[None] for w in (a, b))
    squares = jnp.sum(x**2, 1)[:, None] + jnp.sum(y**2, 1)[None]
    squares = 5 * jnp.maximum(squares - 2 * _product(x, y.T), 0)
    root = jnp.sqrt(squares + _TINY)
    smooth = jnp.exp(2 * scales[-3] - root) * (1 + root + squares / 3)
    return smooth + jnp.exp(2 * scales[-2]) * _product(a, b.T)


def _factor(
    mixtures: jax.Array, metrics: jax.Array, scales: jax.Array, model: MixtureModel
) -> _Factors:
    covariance = _covariance(scales, mixtures, mixtures, model)
    noise = jnp.exp(2 * scales[-1]) * jnp.eye(mixtures.shape[0], dtype=mixtures.dtype)
    lower = cholesky(covariance + noise)
    trend = solve_triangular(lower, _trend(mixtures, model), lower=True)
    information = cholesky(_product(trend.T, trend))
    solved = solve_triangular(lower, metrics, lower=True)
    return _Factors(lower, trend, information, solved)
