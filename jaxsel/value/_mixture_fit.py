"""The search for the scales of a mixture's response, in float64 on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.platform import one_thread
from jaxsel._devices.typed import tree_map
from jaxsel._inputs.chunk import chunk_slices, take_rows

from ._mixture_kernel import ZERO, MixtureModel
from ._mixture_programs import joint, left_out, loss_and_slope, pointwise_moments

_BOUNDS = 8.0  # of logarithms, around their priors' centres
_NOISE = (math.log(1e-3), 1.0)  # of the metrics' deviation: less is rounding
_NOISE_PRIOR = -1.5, 0.5  # centre and width of the logarithm, in that deviation
_POWER = 0.35  # of weights: losses are steep where a weight is near 0
_LENGTH = 1.4  # of the process, in typical distances of runs
_PAIRS = 20  # of draws of scales, antithetic
_APART = 0.05  # of scales, from which on two modes count as two
_STEP = 1e-4  # of differences of slopes
_CHUNK = 128  # points of one call: one program for any number

Slope = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Fit(NamedTuple):
    """A model, and draws of its scales, for metrics centred and of unit variance.

    Attributes:
        model: Its name.
        scales: Draws, `[S, s]`; see `mixture_posterior`.
        weights: Their weights, `[S]`, which sum to 1.
        widen: Factor of standard errors, 1 or more.
        loo_error: Root mean square of the errors of runs left out.
        densities: Log density (nats) of each run, left out, `[R]`.
    """

    model: MixtureModel
    scales: np.ndarray
    weights: np.ndarray
    widen: float
    loo_error: float
    densities: np.ndarray


class _Prior(NamedTuple):
    """Centres and widths of normal priors of the scales."""

    centre: np.ndarray
    width: np.ndarray


@one_thread()
def fit(model: MixtureModel, mixtures: np.ndarray, metrics: np.ndarray) -> Fit:
    """Draw scales by their restricted likelihood and weak priors.

    A normal approximation at the most likely scales is drawn from, and the draws are
    weighted by their posterior. One point of scales alone gives intervals that are too
    short with few runs.

    Args:
        model: "quadratic" or "gp".
        mixtures: `[R, D]`.
        metrics: `[R]`, centred and of unit variance.
    """
    from scipy import stats

    prior = _prior(model, mixtures)
    slope = _slope(model, mixtures, metrics, prior)
    scales, weights = _draws(slope, _modes(slope, prior), prior)
    errors, variances = _left_outs(model, mixtures, metrics, scales)
    error = weights @ errors
    variance = weights @ (variances + (errors - error) ** 2)
    freedom = max(2, len(metrics) - mixtures.shape[1] - 1)
    widen = max(1.0, float(np.sqrt(np.mean(error**2 / variance))))
    # Student's quantile in place of the normal one, at 95 %.
    widen *= float(stats.t.ppf(0.975, freedom) / stats.norm.ppf(0.975))
    densities = stats.norm.logpdf(error, scale=variance**0.5 * widen)
    loo_error = float(np.sqrt(np.mean(error**2)))
    return Fit(model, scales, weights, widen, loo_error, densities)


def posterior(
    fitted: Fit, mixtures: np.ndarray, metrics: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean `[m]` and covariance `[m, m]` over the draws of scales.

    And the mean's factors of the metrics, `[m, R]`: it is linear in them.
    """
    mean, covariance, by_run = _call(joint, fitted, mixtures, metrics, points)
    return mean, covariance * fitted.widen**2, by_run


def moments(
    fitted: Fit, mixtures: np.ndarray, metrics: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance `[m]` over the draws of scales, in chunks of points."""
    pairs = [
        _call(
            pointwise_moments,
            fitted,
            mixtures,
            metrics,
            take_rows(points, chunk, _CHUNK),
        )
        for chunk in chunk_slices(len(points), _CHUNK)
    ]
    mean, variance = (
        np.concatenate(parts)[: len(points)] for parts in zip(*pairs, strict=True)
    )
    return mean, np.maximum(variance, 0) * fitted.widen**2


def noise_variance(fitted: Fit) -> float:
    """Return the variance of a run's noise over the draws of scales."""
    return float(fitted.weights @ np.exp(2 * fitted.scales[:, -1]))


def _call(
    function: Any,
    fitted: Fit,
    mixtures: np.ndarray,
    metrics: np.ndarray,
    points: np.ndarray,
) -> Any:
    arrays = mixtures, metrics, points, fitted.scales, fitted.weights
    with jax.enable_x64(True):
        results = function(*(jnp.asarray(a) for a in arrays), model=fitted.model)
        return tree_map(np.asarray, results)


def _slope(
    model: MixtureModel, mixtures: np.ndarray, metrics: np.ndarray, prior: _Prior
) -> Slope:
    arguments = mixtures, metrics, prior.centre, prior.width

    def slope(scales: np.ndarray) -> tuple[float, np.ndarray]:
        with jax.enable_x64(True):
            arrays = (jnp.asarray(a) for a in (scales, *arguments))
            results: tuple[Any, Any] = loss_and_slope(*arrays, model=model)
        value, slope = float(results[0]), np.asarray(results[1], np.float64)
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            # A covariance that is not definite when rounded.
            return 1e10, np.zeros(len(scales))
        return value, slope

    return slope


def _modes(slope: Slope, prior: _Prior) -> list[np.ndarray]:
    """Return likely scales with much noise and with little: two basins are usual."""
    from scipy import optimize

    bounds = [(c - _BOUNDS, c + _BOUNDS) for c in prior.centre]
    bounds[-1] = _NOISE
    results: list[Any] = []
    for noise in (-0.7, -3.0):
        start = np.array([*prior.centre[:-1], noise])
        results.append(
            optimize.minimize(slope, start, jac=True, method="L-BFGS-B", bounds=bounds)
        )
    first, second = sorted(results, key=lambda result: result.fun)
    if np.abs(first.x - second.x).max() < _APART:
        return [np.asarray(first.x)]
    return [np.asarray(first.x), np.asarray(second.x)]


def _draws(
    slope: Slope, modes: list[np.ndarray], prior: _Prior
) -> tuple[np.ndarray, np.ndarray]:
    """Draw from normal approximations at the modes, and weight by the posterior."""
    rng = np.random.default_rng(0)
    roots = [_root(slope, mode, prior) for mode in modes]
    draws = list[np.ndarray]()
    for mode, root in zip(modes, roots, strict=True):
        normal = rng.normal(size=(_PAIRS // len(modes), len(mode)))
        draws.append(mode + np.concatenate([normal, -normal]) @ np.linalg.inv(root))
    scales = np.concatenate(draws)
    scales[:, -1] = np.clip(scales[:, -1], *_NOISE)
    densities = [
        np.linalg.slogdet(root)[1] - (((scales - mode) @ root) ** 2).sum(1) / 2
        for mode, root in zip(modes, roots, strict=True)
    ]
    losses = np.array([slope(draw)[0] for draw in scales])
    logs = -losses - np.logaddexp.reduce(densities)
    weights = np.exp(logs - logs.max())
    # A few draws must not stand for all: weights are truncated.
    weights = np.minimum(weights, weights.sum() / 8)
    # As many draws always, for one program: those without weight need only be sound.
    scales = np.where(weights[:, None] > 0, scales, modes[0])
    return scales, weights / weights.sum()


def _root(slope: Slope, mode: np.ndarray, prior: _Prior) -> np.ndarray:
    """Return a root A of the curvature, A Aᵀ, by differences of slopes."""
    steps = _STEP * np.eye(len(mode))
    curvature = np.array([slope(mode + s)[1] - slope(mode - s)[1] for s in steps])
    values, axes = np.linalg.eigh((curvature + curvature.T) / (4 * _STEP))
    # No direction is less certain than twice the widest prior.
    return axes * np.sqrt(np.maximum(values, 0.25 / prior.width.max() ** 2))


def _left_outs(
    model: MixtureModel, mixtures: np.ndarray, metrics: np.ndarray, scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        data = jnp.asarray(mixtures), jnp.asarray(metrics)
        pairs = [left_out(*data, jnp.asarray(draw), model=model) for draw in scales]
        errors = np.array([error for error, _ in pairs])
        return errors, np.array([variance for _, variance in pairs])


def _prior(model: MixtureModel, mixtures: np.ndarray) -> _Prior:
    """Return priors at which all parts vary as much as the metrics do.

    The noise is about a fifth of their deviation, and no less than a twentieth unless
    runs say so clearly: few runs that nowhere lie close together fit a rough response
    without noise as well as a smooth one with it.
    """
    domains = mixtures.shape[1]
    spread = _spread(mixtures)
    if model == "quadratic":
        centre = [-math.log(spread**2 * domains), _NOISE_PRIOR[0]]
        return _Prior(np.array(centre), np.array([2.0, _NOISE_PRIOR[1]]))
    moved = _spread((mixtures + ZERO) ** _POWER) * math.sqrt(domains)
    length = math.log(_LENGTH * moved)
    slope = -math.log(spread * math.sqrt(domains))
    centre = [*[length] * domains, math.log(_POWER), 0.0, slope, _NOISE_PRIOR[0]]
    width = [*[1.0] * domains, 0.5, 1.0, 1.5, _NOISE_PRIOR[1]]
    return _Prior(np.array(centre), np.array(width))


def _spread(columns: np.ndarray) -> float:
    return float(np.sqrt(columns.var(0).mean()))
