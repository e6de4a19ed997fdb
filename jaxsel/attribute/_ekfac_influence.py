"""Influence by EK-FAC alone, an approximation."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Float, Shaped

from ._ekfac import ekfac
from ._gauss_newton import Influence, chunks_of
from ._recipe import Output, Recipe
from ._solutions import solution_scores, target_gradients


def ekfac_influence(
    recipe: Recipe,
    params: Any,
    x: Shaped[jax.Array, "n ..."],
    y: Shaped[jax.Array, " n"],
    x_val: Shaped[jax.Array, "t ..."],
    y_val: Shaped[jax.Array, " t"],
    damping: Float[jax.Array, ""] | float,
    *,
    output: Output = "loss",
    of_mean: bool = False,
    chunk_size: int = 64,
) -> Influence:
    """Approximate the influence of each sample on each target: a pure kernel.

    The scores of `gauss_newton` with the approximate matrix of `ekfac` in place of the
    exact one: layers are independent of each other, and each is diagonal in its basis.

    Args:
        recipe: The model and its loss.
        params: Trained parameters.
        x: Training samples, `[n, ...]`.
        y: Labels or targets, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        damping: Above 0.
        output: The output of a target: see `Recipe.measure`.
        of_mean: Whether to solve for the mean over targets, `[1, n]`.
        chunk_size: Samples whose inputs and deltas are in memory at once.

    Returns:
        As `gauss_newton`; `peak` is the largest eigenvalue of the approximation. Costs
        those of `ekfac`, and of `solution_scores`.
    """
    n = x.shape[0]
    chunks = chunks_of(x, y, min(chunk_size, n))
    approximate = ekfac(recipe, params, chunks)
    targets = target_gradients(recipe, params, x_val, y_val, output, of_mean=of_mean)
    solution = approximate.solve(targets, damping)
    scores = solution_scores(recipe, params, chunks, solution)[:, :n]
    return Influence(-scores / n, approximate.peak, approximate.convexity)
