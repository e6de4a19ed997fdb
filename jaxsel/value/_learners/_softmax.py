"""Multinomial logistic regression on many weighted subsets, by Newton steps.

Their systems are solved by conjugate gradients. Hessians are never formed: a product
with one costs as much as a gradient. Features come rotated to their principal axes,
where the Hessian's diagonal preconditions well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ._newton import damped

STEPS = 100
_INNER = 25  # conjugate gradients in a step
_LOOSE, _TIGHT = 0.3, 0.03  # shares of the residual that a step may leave


class _State(NamedTuple):
    theta: jax.Array  # [B, C, p]
    logits: jax.Array  # [B, C, n]
    spread: jax.Array  # [B], the largest change by the last step
    done: jax.Array  # [B]
    step: jax.Array


class _Inner(NamedTuple):
    found: jax.Array
    residual: jax.Array
    direction: jax.Array
    size: jax.Array  # [B], of the residual, preconditioned
    done: jax.Array
    step: jax.Array


def fit_softmax(
    x: jax.Array,
    onehot: jax.Array,
    weights: jax.Array,
    penalty: jax.Array,
    present: jax.Array,
    theta: jax.Array,
    active: jax.Array,
    tol: float,
) -> jax.Array:
    """Minimise the weighted cross-entropy + Σ penalty θ² / 2 for each subset.

    Steps are as long as `_line_search` says.

    Args:
        x: Features with a column of ones, `[n, p]`.
        onehot: Classes, `[C, n]`.
        weights: `[B, n]`.
        penalty: Of each coefficient, `[B, p]`.
        present: Which classes a subset has, `[B, C]`: others get no probability.
        theta: Where to start, `[B, C, p]`; 0 for classes that are not present.
        active: Which subsets to fit, `[B]`; others are left at `theta`.
        tol: A subset is done once no difference of logits changes by more than ten
            times this: of the last step, a tenth or less was left to go.

    Returns:
        Coefficients, `[B, C, p]`.
    """
    dot = lambda a, b: jnp.matmul(a, b, precision="highest")
    here = present[:, :, None]
    penalty = penalty[:, None, :]
    w = weights[:, None, :]
    used = w > 0
    squared = x * x
    right = onehot > 0

    def objective(theta: jax.Array, z: jax.Array) -> jax.Array:
        top = jax.nn.logsumexp(jnp.where(here, z, -jnp.inf), axis=1)
        found = jnp.sum(jnp.where(right, z, 0), axis=1)
        losses = jnp.where(used[:, 0], weights * (top - found), 0)
        return losses.sum(1) + jnp.sum(penalty * theta**2, axis=(1, 2)) / 2

    def step(state: _State) -> _State:
        p = jax.nn.softmax(jnp.where(here, state.logits, -jnp.inf), axis=1)
        # The chance of all other classes, to as many digits where it is tiny.
        wrong = jnp.sum(jnp.where(right, 0, p), axis=1, keepdims=True)
        gradient = dot(w * jnp.where(right, -wrong, p), x) + penalty * state.theta
        gradient = jnp.where(here, gradient, 0)
        diagonal = dot(w * p * jnp.where(right, wrong, 1 - p), squared) + penalty
        # Without a penalty, as the intercept's, nothing but probabilities keep it up.
        scale = 1 / jnp.maximum(diagonal, 1e-12)

        def product(v: jax.Array) -> jax.Array:
            u = dot(v, x.T)
            u = p * (u - jnp.sum(p * u, axis=1, keepdims=True))
            return dot(w * u, x) + penalty * v

        # Looser while far away, so that steps get better as fast as they get smaller.
        forcing = jnp.clip(_LOOSE * state.spread, _TIGHT, _LOOSE)
        delta = _solve(product, gradient, scale, forcing, state.done)
        change = dot(delta, x.T)
        # An absent class's delta is 0, as those of present ones are not.
        high = jnp.where(here & used, change, -jnp.inf).max(1)
        low = jnp.where(here & used, change, jnp.inf).min(1)
        spread = jnp.where(used[:, 0], high - low, 0).max(-1)
        sound = jnp.isfinite(spread)
        go = sound & ~state.done
        slope = jnp.sum(gradient * delta, axis=(1, 2))

        def along(t: jax.Array) -> jax.Array:
            t = t[:, None, None]
            return objective(state.theta - t * delta, state.logits - t * change)

        t = _line_search(along, slope, spread, go)[:, None, None]
        go = go[:, None, None]
        return _State(
            jnp.where(go, state.theta - t * delta, state.theta),
            jnp.where(go, state.logits - t * change, state.logits),
            spread,
            state.done | ~sound | (spread <= 10 * tol),
            state.step + 1,
        )

    def going(state: _State) -> jax.Array:
        return (state.step < STEPS) & ~state.done.all()

    # At zero all classes are equally likely: a start must not be worse than that.
    logits = dot(theta, x.T)
    even = weights.sum(1) * jnp.log(jnp.maximum(present.sum(1), 1))
    worse = (active & ~(objective(theta, logits) <= even))[:, None, None]
    start = _State(
        jnp.where(worse, 0, theta),
        jnp.where(worse, 0, logits),
        1 + 0 * even,
        ~active,
        jnp.zeros((), jnp.int32),
    )
    return jax.lax.while_loop(going, step, start).theta


def _solve(
    product: Callable[[jax.Array], jax.Array],
    right: jax.Array,
    scale: jax.Array,
    forcing: jax.Array,
    skip: jax.Array,
) -> jax.Array:
    """Return x with |A x - b| below a share of |b|, by conjugate gradients."""
    inner = lambda a, b: jnp.sum(a * b, axis=(1, 2))
    first = scale * right
    size = inner(right, first)
    wanted = forcing**2 * size

    def step(state: _Inner) -> _Inner:
        image = product(state.direction)
        curvature = inner(state.direction, image)
        sound = (curvature > 0) & ~state.done
        length = jnp.where(sound, state.size / jnp.where(sound, curvature, 1), 0)
        length = length[:, None, None]
        found = state.found + length * state.direction
        residual = state.residual - length * image
        ahead = scale * residual
        size = inner(residual, ahead)
        ratio = jnp.where(sound, size / jnp.where(sound, state.size, 1), 0)
        direction = ahead + ratio[:, None, None] * state.direction
        done = state.done | ~sound | (size <= wanted)
        return _Inner(found, residual, direction, size, done, state.step + 1)

    def going(state: _Inner) -> jax.Array:
        return (state.step < _INNER) & ~state.done.all()

    start = _Inner(
        jnp.zeros_like(right),
        right,
        first,
        size,
        skip | (size <= 0),
        jnp.zeros((), jnp.int32),
    )
    return jax.lax.while_loop(going, step, start).found


def _line_search(
    objective: Callable[[jax.Array], jax.Array],
    slope: jax.Array,
    change: jax.Array,
    going: jax.Array,
) -> jax.Array:
    """Return lengths of steps that decrease the objective enough, `[B]`.

    Steps whose `damped` length is 1 are taken as they are. Longer ones are halved until
    the objective falls, or down to that length, where it must.

    Args:
        objective: Of lengths `[B]`, to `[B]`.
        slope: The gradient times the step, `[B]`.
        change: The largest change of a difference of logits, `[B]`.
        going: Which subsets count, `[B]`.
    """
    least = damped(change)

    def unsure(t: jax.Array, now: jax.Array) -> jax.Array:
        return going & (t > least) & ~(objective(t) <= now - 1e-2 * t * slope)

    def search() -> jax.Array:
        now = objective(jnp.zeros_like(least))
        halve = lambda t: jnp.where(unsure(t, now), jnp.maximum(t / 2, least), t)
        one = jnp.ones_like(least)
        return jax.lax.while_loop(lambda t: unsure(t, now).any(), halve, one)

    return jax.lax.cond(jnp.any(going & (least < 1)), search, lambda: least)
