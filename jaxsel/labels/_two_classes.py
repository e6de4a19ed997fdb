"""Logistic regression of two classes on all folds, by one Hessian for all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxsel._typed import cholesky, while_loop

_STEPS, _INNER, _HALVINGS = 50, 12, 12
_FORCING = 0.1  # share of the residual that a step may leave
_NEAR = 0.25  # squared change of probabilities from which on folds go their own ways


class _State(NamedTuple):
    theta: jax.Array  # [B, p]
    z: jax.Array  # [B, n], its logits
    step: jax.Array
    done: jax.Array  # [B]


def fit_two(
    x: jax.Array, y: jax.Array, weights: jax.Array, penalty: jax.Array, tol: float
) -> jax.Array:
    """Minimise Σ w log(1 + exp(∓x·θ)) + Σ penalty θ² / 2 for each of some subsets.

    Newton steps on all samples come first; their Hessian then preconditions the
    conjugate gradients of the subsets, whose own are all but the same. Steps are halved
    until the loss does not rise.

    Args:
        x: Features with a column of ones, `[n, p]`.
        y: 1 for the second class, `[n]`.
        weights: `[B, n]`.
        penalty: `[p]`.
        tol: A subset is done after a step that changes no probability by more than a
            quarter of its root, to first order.

    Returns:
        Coefficients `[B, p]`. Costs n p² multiply-adds for each of the first steps, and
        2 B n p for each step of the conjugate gradients.
    """
    p = x.shape[1]
    problem = _Problem(x, y, penalty)
    theta, factor = problem.newton(max(tol, _NEAR))
    # A fold lacks a share of the samples, and so of the Hessian.
    inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(p, dtype=x.dtype))
    return problem.folds(theta, weights, inverse, tol)


class _Problem(NamedTuple):
    """Samples and penalty."""

    x: jax.Array
    y: jax.Array
    penalty: jax.Array

    def newton(self, tol: float) -> tuple[jax.Array, jax.Array]:
        """Return coefficients near the optimum, `[1, p]`, and the last factor."""
        zeros = jnp.zeros((1, self.x.shape[1]), self.x.dtype)
        w = jnp.ones((1, len(self.x)), self.x.dtype)
        ridge = jnp.diag(self.penalty + 1e-6)

        def step(c: tuple[_State, jax.Array]) -> tuple[_State, jax.Array]:
            slope, bend = self.parts(c[0], w)
            factor = cholesky(_dot(self.x.T, self.x * bend[0][:, None]) + ridge)
            delta = jax.scipy.linalg.cho_solve((factor, True), slope[0])[None]
            return self.moved(c[0], delta, w, tol), factor

        start = self.start(zeros, w), jnp.zeros_like(ridge)
        end, factor = while_loop(lambda c: _going(c[0]), step, start)
        return end.theta, factor

    def folds(
        self, theta: jax.Array, w: jax.Array, inverse: jax.Array, tol: float
    ) -> jax.Array:
        """Return coefficients of each subset, `[B, p]`, from those of all samples."""
        share = w.sum(1) / len(self.x)

        def near(v: jax.Array) -> jax.Array:
            return _dot(v, inverse) / share[:, None]

        def step(state: _State) -> _State:
            slope, bend = self.parts(state, w)

            def product(v: jax.Array) -> jax.Array:
                return _dot(bend * _dot(v, self.x.T), self.x) + self.penalty[None] * v

            return self.moved(state, _conjugate(product, near, slope), w, tol)

        start = self.start(jnp.repeat(theta, len(w), axis=0), w)
        return while_loop(_going, step, start).theta

    def start(self, theta: jax.Array, w: jax.Array) -> _State:
        done = jnp.zeros(len(w), bool)
        return _State(theta, _dot(theta, self.x.T), jnp.int32(0), done)

    def parts(self, state: _State, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return gradients, `[B, p]`, and samples' weights in Hessians, `[B, n]`."""
        signs = 2 * self.y - 1
        wrong = jax.nn.sigmoid(-signs[None] * state.z)
        slope = _dot(-signs[None] * w * wrong, self.x)
        return slope + self.penalty[None] * state.theta, w * wrong * (1 - wrong)

    def loss(self, theta: jax.Array, z: jax.Array, w: jax.Array) -> jax.Array:
        signs = 2 * self.y - 1
        fit = jnp.sum(w * jax.nn.softplus(-signs[None] * z), axis=1)
        return fit + jnp.sum(self.penalty[None] * theta**2, axis=1) / 2

    def moved(
        self, state: _State, delta: jax.Array, w: jax.Array, tol: float
    ) -> _State:
        """Step along -delta, as far as the loss does not rise."""
        dz = _dot(delta, self.x.T)
        before = self.loss(state.theta, state.z, w)
        sound = jnp.isfinite(dz).all(axis=1) & jnp.isfinite(delta).all(axis=1)
        go = sound & ~state.done
        slack = 1e-6 * jnp.abs(before)  # of rounding

        def at(length: jax.Array) -> tuple[jax.Array, jax.Array]:
            by = jnp.where(go, length, 0)[:, None]
            theta = jnp.where(go[:, None], state.theta - by * delta, state.theta)
            return theta, jnp.where(go[:, None], state.z - by * dz, state.z)

        def rises(length: jax.Array) -> jax.Array:
            return go & ~(self.loss(*at(length), w) <= before + slack)

        def shorter(c: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            length = jnp.where(c[1], c[0] / 2, c[0])
            return length, rises(length), c[2] + 1

        def long(c: tuple[jax.Array, ...]) -> jax.Array:
            return c[1].any() & (c[2] < _HALVINGS)

        full = jnp.ones(len(w), dz.dtype)
        length = while_loop(long, shorter, (full, rises(full), jnp.int32(0)))[0]
        theta, z = at(length)
        likely = jax.nn.sigmoid(state.z)
        change = 4 * jnp.max(jnp.abs(dz) * likely * (1 - likely), axis=1)
        done = state.done | ~sound | (change**2 <= tol)
        return _State(theta, z, state.step + 1, done)


def _going(state: _State) -> jax.Array:
    return (state.step < _STEPS) & ~state.done.all()


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")


def _conjugate(product: Any, near: Any, slope: jax.Array) -> jax.Array:
    """Return about H⁻¹ slope, `[B, p]`, by preconditioned conjugate gradients."""
    first = near(slope)
    size = jnp.sum(slope * first, axis=1)

    def more(c: tuple[jax.Array, ...]) -> jax.Array:
        return (c[0] < _INNER) & (c[4] > _FORCING**2 * size).any()

    def step(c: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        count, found, left, way, now = c
        image = product(way)
        bent = jnp.sum(way * image, axis=1)
        go = (now > _FORCING**2 * size) & (bent > 0)
        length = jnp.where(go, now / jnp.where(go, bent, 1), 0)[:, None]
        found, left = found + length * way, left - length * image
        ahead = near(left)
        after = jnp.sum(left * ahead, axis=1)
        ratio = jnp.where(go, after / jnp.where(go, now, 1), 0)
        way = jnp.where(go[:, None], ahead + ratio[:, None] * way, way)
        return count + 1, found, left, way, jnp.where(go, after, now)

    start = (jnp.int32(0), jnp.zeros_like(slope), slope, first, size)
    return while_loop(more, step, start)[1]
