"""Influence by the damped Gauss-Newton matrix, solved by conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Shaped

from jaxsel._devices.typed import while_loop

from ._gauss_newton import chunks_of
from ._recipe import Output, Recipe


class CgInfluence(NamedTuple):
    """Scores of a Gauss-Newton solve by conjugate gradients, and how it ended.

    Attributes:
        scores: `[t, n]`.
        residual: Norm of the difference between each right side and the matrix times
            its solution, over that of the right side, `[t]`.
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
    square: jax.Array  # of the residual's scaled norm, [t]
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
    tol: float = 1e-3,
    max_steps: int = 1000,
) -> CgInfluence:
    """Solve for the influence of each sample on each target: a pure kernel.

    The scores of `gauss_newton`, of any number of parameters: no matrix is made. All
    targets are solved at once, by products with the Gauss-Newton matrix: a derivative
    of the outputs along each direction, the curvature of the loss, and back. The
    matrix's diagonal scales the residuals, so that scales of columns do not matter.

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
        tol: Relative residual, with parameters scaled by the matrix's diagonal, at
            which a solution is good.
        max_steps: Steps at most.

    Returns:
        Scores, and how the solve ended; see `CgInfluence`. Costs K backward passes over
        all samples for the diagonal, and for each step a forward and a backward pass
        for each target. Memory holds five vectors of P numbers a target, and gradients
        of `chunk_size` samples. Steps grow as the root of the largest eigenvalue, over
        the damping, of the matrix so scaled.
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

    def measured(flat: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return recipe.measure(output, recipe.apply(unravel(flat), x[None]), y[None])[0]

    def gradient(target: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jax.grad(measured)(flat, *target)

    targets = jax.lax.map(gradient, (x_val, y_val))
    if of_mean:
        targets = jnp.mean(targets, axis=0, keepdims=True)
    diagonal, convexity = _diagonal(recipe, flat, unravel, chunks)
    solved = _solve(product, targets, diagonal / n + damping, tol, max_steps)
    solution, residual, steps = solved

    def of_chunk(chunk: Any) -> jax.Array:
        x, y, _ = chunk
        _, along = jax.linearize(
            lambda p: recipe.losses(recipe.apply(unravel(p), x), y), flat
        )
        return jax.vmap(along)(solution)

    parts = jax.lax.map(of_chunk, chunks)
    scores = jnp.moveaxis(parts, 1, 0).reshape(len(targets), -1)[:, :n]
    return CgInfluence(-scores / n, residual, steps, convexity)


def _diagonal(
    recipe: Recipe,
    flat: jax.Array,
    unravel: Callable[[jax.Array], Any],
    chunks: tuple[jax.Array, ...],
) -> tuple[jax.Array, jax.Array]:
    """Return the diagonal of all samples' `JᵀAJ`, `[P]`, and the least convexity."""

    def of_sample(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, pull = jax.vjp(lambda p: recipe.apply(unravel(p), x[None])[0], flat)

        def loss(outputs: jax.Array) -> jax.Array:
            return recipe.losses(outputs[None], y[None])[0]

        squares, vectors = jnp.linalg.eigh(jax.hessian(loss)(values))
        roots = vectors * jnp.sqrt(jnp.maximum(squares, 0))[None]

        def add(total: jax.Array, root: jax.Array) -> tuple[jax.Array, None]:
            (gradient,) = pull(root)
            return total + gradient * gradient, None

        total, _ = jax.lax.scan(add, jnp.zeros_like(flat), roots.T)
        return total, squares[0]

    def add(carry: Any, chunk: Any) -> tuple[Any, None]:
        x, y, real = chunk
        totals, convexity = jax.vmap(of_sample)(x, y)
        total = carry[0] + jnp.sum(jnp.where(real[:, None], totals, 0), axis=0)
        return (total, jnp.minimum(carry[1], convexity.min())), None

    start = jnp.zeros_like(flat), jnp.array(jnp.inf, flat.dtype)
    return jax.lax.scan(add, start, chunks)[0]


def _solve(
    product: Callable[[jax.Array], jax.Array],
    right: jax.Array,
    diagonal: jax.Array,
    tol: float,
    max_steps: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Solve for each row of `right`, `[t, P]`; a row that is solved stays as it is."""

    def scaled_square(rows: jax.Array) -> jax.Array:
        return jnp.sum(rows * rows / diagonal[None], axis=1)

    of = scaled_square(right)
    wanted = tol**2 * of
    zeros = jnp.zeros_like(right)
    state = _State(zeros, right, right / diagonal[None], of, jnp.int32(0))

    def step(state: _State) -> _State:
        image = product(state.direction)
        along = jnp.sum(state.direction * image, axis=1)
        runs = (state.square > wanted) & (along > 0)
        size = jnp.where(runs, state.square / jnp.where(runs, along, 1), 0)[:, None]
        residual = state.residual - size * image
        square = scaled_square(residual)
        turn = jnp.where(runs, square / jnp.where(runs, state.square, 1), 0)[:, None]
        direction = residual / diagonal[None] + turn * state.direction
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
    missed = scaled_square(right - product(end.solution))
    return end.solution, jnp.sqrt(missed / jnp.where(of > 0, of, 1)), end.step
