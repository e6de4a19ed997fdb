"""Logistic regression of two classes on many weighted subsets: damped Newton steps.

Subsets lie on the last axis. All Hessians are one matrix product with the products of
feature pairs, and their systems are solved side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from jaxsel._devices.typed import optimization_barrier

from ._arrays import dot
from ._solve import solve_packed

STEPS = 100
_GOING, _CONVERGED, _GIVEN_UP = 0, 1, 2


class _State(NamedTuple):
    theta: jax.Array  # [..., B]
    status: jax.Array  # [B], `_GOING` and so on: one array less in the loop
    step: jax.Array


def fit_two_classes(
    x: Float[jax.Array, "n p"],
    products: Float[jax.Array, "p*(p+1)//2 n"],
    positive: Float[jax.Array, " n"],
    weights: Float[jax.Array, "n B"],
    penalty: Float[jax.Array, " p"],
    theta: Float[jax.Array, "p B"],
    active: Bool[jax.Array, " B"],
    tol: float,
) -> tuple[Float[jax.Array, "p B"], Bool[jax.Array, " B"]]:
    """Minimise Σ w log(1 + exp(∓x·θ)) + Σ penalty θ² / 2 for each subset.

    Steps are as long as `damped` says.

    Args:
        x: Features with a column of ones, `[n, p]`.
        products: Of the pairs of features in the order of `pairs`, `[p (p+1) / 2, n]`.
        positive: 1 for the second class, `[n]`.
        weights: `[n, B]`.
        penalty: Of each coefficient, `[p]`.
        theta: Where to start, `[p, B]`; zero where that is far better.
        active: Which subsets to fit, `[B]`; others are left at `theta`.
        tol: A subset is done once no logit changes by more than the root of this: what
            is left is of the order of the square of that change.

    Returns:
        Coefficients, `[p, B]`, and which subsets converged, `[B]`.
    """
    # Places of the diagonal in packed triangles: i (i + 1) / 2 + i.
    diagonal = jnp.arange(x.shape[1])
    diagonal = diagonal * (diagonal + 3) // 2
    used = jnp.sign(weights)  # a product with it is faster than a choice by it
    signs = 2 * positive[:, None] - 1

    def newton(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        # The chance of the wrong class, to as many digits where it is tiny. Without the
        # barrier XLA would compute it twice.
        z = signs * dot(x, theta)
        wrong = optimization_barrier(jax.nn.sigmoid(-z))
        gradient = dot(x.T, -signs * weights * wrong) + penalty[:, None] * theta
        # 1 - wrong cancels only for points that are all but surely misclassified: the
        # step loses digits then, but the gradient, and so the optimum, does not.
        hessian = dot(products, weights * (wrong * (1 - wrong)))
        hessian = hessian.at[diagonal].add(penalty[:, None])
        delta = solve_packed(hessian, gradient)
        return delta, jnp.abs(used * dot(x, delta)).max(0)

    # The loss at zero is log 2, and at the start at least this: a bound without exp.
    least = (weights * jax.nn.relu(-signs * dot(x, theta))).sum(0)
    least = least + dot(penalty, theta * theta) / 2
    # Negated, so that a start with NaN is hopeless too.
    hopeless = active & ~(least <= weights.sum(0) * jnp.log(2.0))
    return minimise(newton, jnp.where(hopeless[None], 0, theta), active, tol)


def minimise(
    newton: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    theta: jax.Array,
    active: jax.Array,
    tol: float,
) -> tuple[jax.Array, jax.Array]:
    """Take Newton steps until every subset has converged, or can't go on.

    Args:
        newton: Returns steps of coefficients `[..., B]`, which will be subtracted, and
            the largest change of a logit by each, `[B]`.
        theta: Where to start, `[..., B]`.
        active: See `fit_two_classes`.
        tol: Likewise.

    Returns:
        Coefficients, `[..., B]`, and which subsets converged, `[B]`.
    """

    def step(state: _State) -> _State:
        delta, change = newton(state.theta)
        # A system that is singular in float32 stops where it is.
        sound = jnp.isfinite(change)
        # Subsets that are done stay where they are: a result must not depend on which
        # others share the loop.
        go = sound & (state.status == _GOING)
        shape = delta.shape
        ahead = state.theta - jnp.broadcast_to(damped(change), shape) * delta
        theta = jnp.where(jnp.broadcast_to(go, shape), ahead, state.theta)
        # This step is taken even so: the error left is of the order of its square.
        near = change * change <= tol
        status = jnp.where(near, jnp.int32(_CONVERGED), jnp.int32(_GOING))
        status = jnp.where(sound, status, jnp.int32(_GIVEN_UP))
        status = jnp.where(state.status == _GOING, status, state.status)
        return _State(theta, status, state.step + 1)

    def going(state: _State) -> jax.Array:
        return (state.step < STEPS) & (state.status == _GOING).any()

    status = jnp.where(active, jnp.int32(_GOING), jnp.int32(_CONVERGED))
    start = _State(theta, status, jnp.zeros((), jnp.int32))
    end = jax.lax.while_loop(going, step, start)
    return end.theta, end.status == _CONVERGED


def damped(change: jax.Array) -> jax.Array:
    """Return the length of a Newton step that decreases the objective for certain.

    With r the largest change of a logit, or of a difference of logits, in a step of
    length 1, the objective falls by at least t - (exp(t r) - t r - 1) / r² times the
    squared Newton decrement. That is positive at t = 1 for r up to 1.79, and largest at
    t = log(1 + r) / r, which is taken above 1.5.

    References:
        Sun and Tran-Dinh, Generalized self-concordant functions, Mathematical
        Programming 178 (2019), Lemma 7.
    """
    r = jnp.maximum(change, 1.5)
    return jnp.where(change > 1.5, jnp.log1p(r) / r, 1.0)
