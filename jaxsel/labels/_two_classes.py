"""Logistic regression of two classes on all folds, by one Hessian for all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxsel._typed import cholesky, while_loop

_STEPS, _INNER = 50, 12
_FORCING = 0.03  # share of the residual that a step may leave


class _State(NamedTuple):
    theta: jax.Array  # [B, p]
    step: jax.Array
    done: jax.Array  # [B]


def fit_two(
    x: jax.Array, y: jax.Array, weights: jax.Array, penalty: jax.Array, tol: float
) -> jax.Array:
    """Minimise Σ w log(1 + exp(∓x·θ)) + Σ penalty θ² / 2 for each of some subsets.

    Newton steps on all samples come first; their Hessian then preconditions the
    conjugate gradients of the subsets, whose own are all but the same.

    Args:
        x: Features with a column of ones, `[n, p]`.
        y: 1 for the second class, `[n]`.
        weights: `[B, n]`.
        penalty: `[p]`.
        tol: About how far logits may be from those of the optimum.

    Returns:
        Coefficients `[B, p]`. Costs n p² multiply-adds for each of the first steps, and
        2 B n p for each step of the conjugate gradients.
    """
    p, signs = x.shape[1], 2 * y - 1
    ridge = jnp.diag(penalty + 1e-6)

    def dot(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.matmul(a, b, precision="highest")

    def parts(theta: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        wrong = jax.nn.sigmoid(-signs[None] * dot(theta, x.T))
        slope = dot(-signs[None] * w * wrong, x) + penalty[None] * theta
        return slope, w * wrong * (1 - wrong)

    def hessian(theta: jax.Array, w: jax.Array) -> jax.Array:
        _, bend = parts(theta, w)
        return dot(x.T, x * bend[0][:, None]) + ridge

    def moved(theta: jax.Array, delta: jax.Array, done: jax.Array) -> _State:
        change = jnp.abs(dot(delta, x.T)).max(1)
        sound = jnp.isfinite(change)
        far = jnp.maximum(change, 1.5)  # as `value`'s Newton steps are damped
        length = jnp.where(change > 1.5, jnp.log1p(far) / far, 1.0)
        go = (sound & ~done)[:, None]
        theta = jnp.where(go, theta - length[:, None] * delta, theta)
        return _State(theta, jnp.int32(0), done | ~sound | (change**2 <= tol))

    def whole(state: _State) -> _State:
        w = jnp.ones((1, len(x)), x.dtype)
        slope, _ = parts(state.theta, w)
        factor = cholesky(hessian(state.theta, w))
        delta = jax.scipy.linalg.cho_solve((factor, True), slope[0])[None]
        return moved(state.theta, delta, state.done)._replace(step=state.step + 1)

    def going(state: _State) -> jax.Array:
        return (state.step < _STEPS) & ~state.done.all()

    start = _State(jnp.zeros((1, p), x.dtype), jnp.int32(0), jnp.zeros(1, bool))
    all_of = while_loop(going, whole, start).theta
    # A fold lacks a share of the samples, and so of the Hessian.
    share = weights.sum(1) / len(x)
    factor = cholesky(hessian(all_of, jnp.ones((1, len(x)), x.dtype)))
    inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(p, dtype=x.dtype))

    def each(state: _State) -> _State:
        slope, bend = parts(state.theta, weights)

        def product(v: jax.Array) -> jax.Array:
            return dot(bend * dot(v, x.T), x) + penalty[None] * v

        def near(v: jax.Array) -> jax.Array:
            return dot(v, inverse) / share[:, None]

        first = near(slope)
        size = jnp.sum(slope * first, axis=1)

        def step(_: jax.Array, c: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            found, left, way, now, wanted = c
            image = product(way)
            bent = jnp.sum(way * image, axis=1)
            go = (now > wanted) & (bent > 0)
            length = jnp.where(go, now / jnp.where(go, bent, 1), 0)[:, None]
            found, left = found + length * way, left - length * image
            ahead = near(left)
            after = jnp.sum(left * ahead, axis=1)
            ratio = jnp.where(go, after / jnp.where(go, now, 1), 0)
            way = jnp.where(go[:, None], ahead + ratio[:, None] * way, way)
            return found, left, way, jnp.where(go, after, now), wanted

        carry = (jnp.zeros_like(slope), slope, first, size, _FORCING**2 * size)

        def more(c: tuple[jax.Array, Any]) -> jax.Array:
            count, inner = c
            return (count < _INNER) & (inner[3] > inner[4]).any()

        def body(c: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
            return c[0] + 1, step(c[0], c[1])

        delta = while_loop(more, body, (jnp.int32(0), carry))[1][0]
        return moved(state.theta, delta, state.done)._replace(step=state.step + 1)

    begin = jnp.repeat(all_of, len(weights), axis=0)
    none = jnp.zeros(len(weights), bool)
    return while_loop(going, each, _State(begin, jnp.int32(0), none)).theta
