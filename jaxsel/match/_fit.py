"""Residual, objective and rounding error of fitted weights."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsel._devices.typed import finfo
from jaxsel._inputs.checks import widen

from ._across import entries
from ._problem import Problem
from ._refit import Refit, refine

# A choice is in doubt if its correlation is less than so many times its usual error.
DOUBTFUL = 16


class Fit(NamedTuple):
    """A refit, correlations with its residual, its objective, and its error.

    The error estimates how far rounding moves the residual, in the norm of gradients:
    at the best weights the correlation of a chosen candidate with the residual is the
    ridge times its weight.
    """

    refit: Refit
    corr: jax.Array
    objective: jax.Array
    error: jax.Array


def fit(
    problem: Problem,
    refit: Refit,
    columns: jax.Array,
    indices: jax.Array,
    axis: str | None,
    *,
    positive: bool,
) -> Fit:
    """Correlate the candidates with the residual of a refit, and estimate its error.

    Args:
        problem: Constants of the pursuit.
        refit: Weights of the chosen candidates.
        columns: Their columns of G, `[k, n]`, or their gradients, `[k, p]`, if the
            problem has rows.
        indices: The chosen, `[k]`.
        axis: Of the mesh whose devices share the candidates, if any.
        positive: Whether weights must not be negative.
    """
    (extra,) = entries((problem.extra,), indices, axis)
    if problem.rows is not None:
        return _by_rows(problem, refit, columns, extra, positive=positive)
    refit = refit if positive else refine(refit)
    return _by_columns(problem, refit, columns, indices, extra, axis)


def _by_columns(
    problem: Problem,
    refit: Refit,
    columns: jax.Array,
    indices: jax.Array,
    extra: jax.Array,
    axis: str | None,
) -> Fit:
    weights = refit.weights
    # ‖b‖² + w'Kw − 2 b'w
    through = jnp.matmul(refit.gram, weights, precision="highest")
    objective = problem.norm + jnp.sum(weights * (through - 2 * refit.target))
    corr = problem.corr - jnp.matmul(weights, columns, precision="highest")
    (products,) = entries((corr,), indices, axis)
    gap = jnp.where(refit.basic, products - extra * weights, 0)
    correction = jnp.matmul(refit.tableau, gap, precision="highest")
    return Fit(refit, corr, objective, _norm_of(gap, correction))


def _by_rows(
    problem: Problem,
    refit: Refit,
    columns: jax.Array,
    extra: jax.Array,
    *,
    positive: bool,
) -> Fit:
    """Correct the weights by iterative refinement; `columns` are the chosen gradients.

    The residual cancels before products with it round, unlike the products in K.
    """
    weights, error = refit.weights, jnp.zeros_like(problem.norm)
    for _ in range(2):
        residual = _residual(problem, weights, columns)
        products = jnp.matmul(columns, residual, precision="highest")
        gap = jnp.where(refit.basic, products - extra * weights, 0)
        correction = jnp.matmul(refit.tableau, gap, precision="highest")
        error = _norm_of(gap, correction)
        weights = jnp.where(refit.basic, weights + correction, 0)
        weights = jnp.maximum(weights, 0) if positive else weights
    residual = _residual(problem, weights, columns)
    objective = jnp.sum(residual**2) + jnp.sum(extra * weights**2)
    # Where a rise of a zero weight would lower the objective, the refit's products have
    # the wrong sign.
    products = jnp.matmul(columns, residual, precision="highest")
    noise = finfo(products.dtype).eps * jnp.sqrt(problem.norm * jnp.sum(columns**2, -1))
    missed = (weights == 0) & (products > DOUBTFUL * noise)
    error = jnp.where(jnp.any(missed), jnp.inf, error)
    refit = refit._replace(values=jnp.where(refit.basic, weights, refit.values))
    return Fit(refit, _correlations(problem, residual), objective, error)


def _residual(problem: Problem, weights: jax.Array, columns: jax.Array) -> jax.Array:
    if problem.target is None:
        raise TypeError("the problem was posed without rows")
    return problem.target - jnp.matmul(weights, columns, precision="highest")


def _norm_of(gap: jax.Array, correction: jax.Array) -> jax.Array:
    # gapᵀ K_BB⁻¹ gap, the correction's square in the norm of K: how far it moves the
    # residual, ridge included. Rounding may turn its sign.
    return jnp.sqrt(jnp.abs(jnp.vdot(gap, correction, precision="highest")))


def _correlations(problem: Problem, residual: jax.Array) -> jax.Array:
    """Return the correlations of rows with the residual, `[n]`."""
    if problem.rows is None:
        raise TypeError("the problem was posed without rows")
    return jnp.matmul(widen(problem.rows), residual, precision="highest")
