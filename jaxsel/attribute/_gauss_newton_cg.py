"""Influence by the damped Gauss-Newton matrix, solved by conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Shaped

from jaxsel._devices.typed import while_loop

from ._ekfac import ekfac
from ._gauss_newton import chunks_of
from ._recipe import Output, Recipe
from ._solutions import over_targets, solution_scores, target_gradients

# Of the approximate matrix that scales residuals: its root takes fewer steps than the
# whole, which spreads the many eigenvalues that equal the damping, and where columns
# are on several scales far fewer than the diagonal or no scaling.
_POWER = 0.5
_VECTORS = 6  # of P numbers, for each target


class CgInfluence(NamedTuple):
    """Scores of a Gauss-Newton solve by conjugate gradients, and how it ended.

    Attributes:
        scores: `[t, n]`.
        residual: Norm of the difference between each right side and the matrix times
            its solution, over the norm of the right side, `[t]`.
        steps: Number of steps.
        convexity: The least eigenvalue of the loss by the outputs, over all samples:
            negative if the loss is not convex in them.
    """

    scores: jax.Array
    residual: jax.Array
    steps: jax.Array
    convexity: jax.Array


class _State(NamedTuple):
    solution: jax.Array  # [t, P]
    residual: jax.Array  # [t, P]
    direction: jax.Array  # [t, P]
    square: jax.Array  # of the residual's norm, [t]
    step: jax.Array


def gauss_newton_cg(
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
    tol: float = 1e-4,
    max_steps: int = 1000,
) -> CgInfluence:
    """Solve for the influence of each sample on each target: a pure kernel.

    The scores of `gauss_newton`, of any number of parameters: no matrix is made.
    Targets are solved together, by products with the Gauss-Newton matrix: a derivative
    of the outputs along each direction, the curvature of the loss, and back.

    Residuals are scaled by M⁻¹, with M the root of an approximation of the damped
    matrix: of dense and convolution layers by EK-FAC, of all other parameters by the
    diagonal. Its root, as the approximation itself spreads the many eigenvalues that
    equal the damping, which conjugate gradients settle in one step. M decides how many
    steps are taken, and the norm in which they end, √(rᵀ M⁻¹ r); not what is solved.

    Args:
        recipe: The model and its loss.
        params: Trained parameters.
        x: Training samples, `[n, ...]`.
        y: Labels or targets, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        damping: Above 0.
        output: The output of a target: see `Recipe.measure`.
        of_mean: Whether to solve once, for the mean over targets, `[1, n]`.
        chunk_size: Samples whose gradients are in memory at once.
        tol: Residual, over that of a solution of 0, both in the norm of M⁻¹, at which a
            solution is good.
        max_steps: Steps at most.

    Returns:
        Scores, and how the solve ended; see `CgInfluence`. Costs 2 K backward passes
        over all samples and the eigenvectors of `ekfac`, and for each step a forward
        and a backward pass for each target. Memory holds six vectors of P numbers a
        target, of as many targets as fit (see `over_targets`), the second moments of
        layers' inputs and deltas with their eigenvectors, and the inputs and deltas of
        `chunk_size` samples.
    """
    flat, unravel = ravel_pytree(params)
    n = x.shape[0]
    chunks = chunks_of(x, y, min(chunk_size, n))

    def product(directions: jax.Array) -> jax.Array:
        """Multiply the damped matrix by each row, `[t, P]`."""

        def add(total: jax.Array, chunk: Any) -> tuple[jax.Array, None]:
            x, y, real = chunk
            outputs, along = jax.linearize(lambda p: recipe.apply(unravel(p), x), flat)
            slope = jax.grad(lambda outputs: jnp.sum(recipe.losses(outputs, y)))
            _, curved = jax.linearize(slope, outputs)
            back = jax.linear_transpose(along, flat)

            def of_one(direction: jax.Array) -> jax.Array:
                return back(jnp.where(real[:, None], curved(along(direction)), 0))[0]

            return total + jax.vmap(of_one)(directions), None

        total, _ = jax.lax.scan(add, jnp.zeros_like(directions), chunks)
        return total / n + damping * directions

    approximate = ekfac(recipe, params, chunks)

    def of_targets(x_val: jax.Array, y_val: jax.Array) -> tuple[jax.Array, ...]:
        targets = target_gradients(
            recipe, params, x_val, y_val, output, of_mean=of_mean
        )
        solution, residual, steps = _solve(
            product,
            targets,
            lambda rows: approximate.solve(rows, damping, _POWER),
            tol,
            max_steps,
        )
        scores = solution_scores(recipe, params, chunks, solution)[:, :n]
        return scores, residual, jnp.full(residual.shape, steps)

    if of_mean:
        scores, residual, steps = of_targets(x_val, y_val)
    else:
        scores, residual, steps = over_targets(
            of_targets, x_val, y_val, _VECTORS * flat.nbytes
        )
    return CgInfluence(-scores / n, residual, steps.max(), approximate.convexity)


def _solve(
    product: Callable[[jax.Array], jax.Array],
    right: jax.Array,
    inverse: Callable[[jax.Array], jax.Array],
    tol: float,
    max_steps: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Solve for each row of `right`, `[t, P]`; a row that is solved stays as it is."""
    start = inverse(right)
    of = jnp.sum(right * start, axis=1)
    wanted = tol**2 * of
    state = _State(jnp.zeros_like(right), right, start, of, jnp.int32(0))

    def step(state: _State) -> _State:
        image = product(state.direction)
        along = jnp.sum(state.direction * image, axis=1)
        runs = (state.square > wanted) & (along > 0)
        size = jnp.where(runs, state.square / jnp.where(runs, along, 1), 0)[:, None]
        residual = state.residual - size * image
        scaled = inverse(residual)
        square = jnp.sum(residual * scaled, axis=1)
        turn = jnp.where(runs, square / jnp.where(runs, state.square, 1), 0)[:, None]
        direction = scaled + turn * state.direction
        return _State(
            state.solution + size * state.direction,
            residual,
            jnp.where(runs[:, None], direction, 0),
            square,
            state.step + 1,
        )

    end = while_loop(
        lambda state: (state.step < max_steps) & jnp.any(state.square > wanted),
        step,
        state,
    )
    # The recursion's residual drifts from the true one by rounding.
    missed = right - product(end.solution)
    square = jnp.sum(missed * inverse(missed), axis=1)
    return end.solution, jnp.sqrt(square / jnp.where(of > 0, of, 1)), end.step
