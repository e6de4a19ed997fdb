"""Logistic regression of two classes on all folds, by one Hessian for all of them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsel._devices.typed import diagonal, while_loop

_STEPS, _SHORTER = 200, 20
_FIRST, _ROUND, _SAME = 6, 12, 3  # steps on all samples, by a Hessian, and by a factor
_EVERY = 4  # the first Hessian is of every fourth sample
_ROWS = 16  # if that leaves this many a column
_NEAR, _COARSEST = 1.0, 0.03  # tolerance of the first steps, and at most
_MEAN = 100  # tolerance of the largest change of a probability over the mean one's
_OVER = 0.01  # slope uphill at the end of a step, over that at its start, to accept
_HEAVY = 512  # most samples whose curvature is each subset's own
_LIGHT = 20  # they are one in 20 samples, but at least half of _HEAVY
_MEMORY = 1 << 24  # entries of the subsets' Hessians
_RIDGE = 1e-6


class _Curvature(NamedTuple):
    """Curvature of all samples but the heavy ones."""

    hessian: jax.Array  # [p, p]
    total: jax.Array  # of the samples' weights in it


class _State(NamedTuple):
    theta: jax.Array  # [B, p]
    z: jax.Array  # its logits, [B, n]
    prob: jax.Array  # their probabilities, [B, n]
    gradient: jax.Array  # [B, p]
    last_step: jax.Array  # [B, p]
    gradient_change: jax.Array  # by that step, [B, p]
    step: jax.Array
    change: jax.Array  # by how much it changed a probability, at most, [B]


def fit_two(
    x: jax.Array, y: jax.Array, weights: jax.Array, l2: jax.Array, tol: float
) -> tuple[jax.Array, jax.Array]:
    """Minimise Σ w log(1 + exp(∓x·θ)) + l2 |θ|² / 2 for each of some subsets.

    Quasi-Newton steps, with one Hessian shared by all subsets but for two parts of
    each: the mean curvature of its samples, and the term of the samples of greatest
    norm. A rare category weighs in these, and its coefficient moves far as soon as one
    of its samples is held out. A BFGS update by the last step corrects the remaining
    error. A few steps for all samples as one subset come first.

    Args:
        x: Features `[n, d]`. They are centred and scaled here; the penalty stays that
            of the original units, and the intercept has none.
        y: 1 for the second class, `[n]`.
        weights: `[B, n]`.
        l2: The penalty.
        tol: All is done after a step that changes no probability by more than a
            quarter of its root, 0.04 at most, and their mean by a hundredth of that.

    Returns:
        Logits of all samples, `[B, n]`, and whether all converged. Costs n d²
        multiply-adds for every twelfth step, B d² (512 + d / 3) for every third, and
        2 B n d for each.
    """
    rows, penalty = _scaled(x, l2)
    (n, p), tol = rows.shape, min(tol, _COARSEST)
    count = min(n, max(_HEAVY // 2, min(_HEAVY, n // _LIGHT)))
    heavy = jax.lax.top_k(jnp.sum(rows * rows, axis=1), count)[1]
    problem = _Problem(rows, y, penalty, heavy, rows[heavy])
    whole = jnp.ones((1, n), rows.dtype)
    state = problem.start(jnp.zeros((1, p), x.dtype), jnp.zeros((1, n), x.dtype), whole)
    every = max(1, min(_EVERY, n // (_ROWS * p)))
    state = problem.steps(state, whole, _NEAR, _FIRST, every)
    theta, z = (jnp.repeat(a, len(weights), axis=0) for a in (state.theta, state.z))
    end = while_loop(
        lambda state: (state.step < _STEPS) & _going(state, tol),
        lambda state: problem.steps(state, weights, tol, _ROUND),
        problem.start(theta, z, weights),
    )
    return end.z, ~_going(end, tol)


def _scaled(x: jax.Array, l2: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return standardised columns and one of ones, `[n, p]`, and penalties, `[p]`."""
    # Off the first row, so that E[x²] - E[x]² does not cancel for distant columns.
    off = x - x[:1]
    mean, square = jnp.mean(off, axis=0), jnp.mean(off * off, axis=0)
    spread = square - mean * mean
    # A floor: in constant columns only rounding is left.
    spread = jnp.maximum(spread, _RIDGE * square)
    scale = jax.lax.rsqrt(jnp.where(spread > 0, spread, 1))
    rows = (x - (x[0] + mean)[None]) * scale[None]
    penalty = jnp.append(jnp.minimum(l2 * scale * scale, 1e20), jnp.float32(0))
    return jnp.pad(rows, ((0, 0), (0, 1)), constant_values=1), penalty


class _Problem(NamedTuple):
    """Samples and penalty."""

    x: jax.Array  # [n, p]
    y: jax.Array  # [n]
    penalty: jax.Array  # [p]
    heavy: jax.Array  # places of some samples, [r]
    loads: jax.Array  # these samples, [r, p]

    def start(self, theta: jax.Array, z: jax.Array, w: jax.Array) -> _State:
        prob = jax.nn.sigmoid(z)
        gradient, none = self.gradient(theta, prob, w), jnp.zeros_like(theta)
        far = jnp.full(len(w), jnp.inf, z.dtype)
        return _State(theta, z, prob, gradient, none, none, jnp.int32(0), far)

    def gradient(self, theta: jax.Array, prob: jax.Array, w: jax.Array) -> jax.Array:
        wrong = w * (prob - self.y[None])
        return _dot(wrong, self.x) + self.penalty[None] * theta

    def steps(
        self, state: _State, w: jax.Array, tol: float, most: int, every: int = 1
    ) -> _State:
        """Take up to `most` steps, with a shared Hessian of every `every`-th sample."""
        last = state.step + most
        curvature = jnp.mean(w * state.prob * (1 - state.prob), axis=0)
        curvature = curvature.at[self.heavy].set(0)[::every]
        part = self.x[::every]
        shared = _Curvature(_dot(part.T, part * curvature[:, None]), jnp.sum(curvature))

        def with_factor(state: _State) -> _State:
            end, factor = state.step + _SAME, self.factor(state, w, shared)
            return while_loop(
                lambda state: (state.step < end) & _going(state, tol),
                lambda state: self.moved(state, self.direction(state, factor), w),
                state,
            )

        return while_loop(
            lambda state: (state.step < last) & _going(state, tol), with_factor, state
        )

    def factor(self, state: _State, w: jax.Array, shared: _Curvature) -> jax.Array:
        """Return the factors of about the Hessians, `[B, p, p]`."""
        curvature = w * state.prob * (1 - state.prob)
        if len(w) * len(self.penalty) * (len(self.penalty) + _HEAVY) > _MEMORY:
            # Too large for a factor of each subset: all share one.
            curvature = jnp.mean(curvature, axis=0, keepdims=True)
        heavy_curvature = curvature[:, self.heavy]
        light_curvature = jnp.sum(curvature, axis=1) - jnp.sum(heavy_curvature, axis=1)
        share = jnp.where(shared.total > 0, light_curvature / shared.total, 0)
        hessian = share[:, None, None] * shared.hessian[None]
        hessian += _dot(self.loads.T[None] * heavy_curvature[:, None], self.loads)
        size = diagonal(hessian, axis1=-2, axis2=-1)
        ridge = self.penalty[None] + _RIDGE * (size + 1)
        hessian += jnp.eye(len(self.penalty), dtype=ridge.dtype)[None] * ridge[:, None]
        factor = jax.lax.linalg.cholesky(hessian, symmetrize_input=False)
        return jnp.broadcast_to(factor, (len(w), *factor.shape[1:]))

    def direction(self, state: _State, factor: jax.Array) -> jax.Array:
        """Return about H⁻¹ gradient, `[B, p]`: BFGS with the last step."""
        # Two-loop recursion with one pair (s, y), left out unless s·y is clearly > 0.
        along = jnp.sum(state.last_step * state.gradient_change, axis=1)
        length = _norm(state.last_step) * _norm(state.gradient_change)
        known = along > 1e-4 * length
        by = jnp.where(known, 1 / jnp.where(known, along, 1), 0)
        first = by * jnp.sum(state.last_step * state.gradient, axis=1)
        gradient = state.gradient - first[:, None] * state.gradient_change
        newton = jax.scipy.linalg.cho_solve((factor, True), gradient[..., None])[..., 0]
        back = by * jnp.sum(state.gradient_change * newton, axis=1)
        return newton + (first - back)[:, None] * state.last_step

    def moved(self, state: _State, delta: jax.Array, w: jax.Array) -> _State:
        """Step along -delta, as far as the loss falls, or hardly rises."""
        fall = jnp.sum(state.gradient * delta, axis=1)
        sound = (fall > 0) & jnp.isfinite(fall)
        delta = jnp.where(sound[:, None], delta, 0)
        dz = _dot(delta, self.x.T)
        steep = jnp.sum(self.penalty[None] * delta * delta, axis=1)
        flat = jnp.sum(self.penalty[None] * delta * state.theta, axis=1)

        # The slope of the loss is -`fall` where a step starts, and `rise` at its end.
        def over(rise: jax.Array) -> jax.Array:
            return sound & (rise > _OVER * fall)

        def shorter(c: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            count, length, rise, *_ = c
            # A secant step to where the slope vanishes; then to a half, at most.
            even = fall / jnp.where(over(rise), fall + rise, 1)
            even = jnp.where(count > 1, jnp.minimum(even, 0.5), even)
            ratio = jnp.where(over(rise), even, 1)
            length = jnp.where(count > 0, length * ratio, 1)
            z = state.z - length[:, None] * dz
            prob = jax.nn.sigmoid(z)
            rise = -jnp.sum(w * (prob - self.y[None]) * dz, axis=1)
            return count + 1, length, rise + length * steep - flat, z, prob

        def long(c: tuple[jax.Array, ...]) -> jax.Array:
            return (c[0] == 0) | (over(c[2]).any() & (c[0] < _SHORTER))

        start = jnp.int32(0), fall, fall, state.z, state.prob
        _, length, _, z, prob = while_loop(long, shorter, start)
        last_step = -length[:, None] * delta
        theta = state.theta + last_step
        gradient = self.gradient(theta, prob, w)
        apart = jnp.abs(prob - state.prob)
        change = jnp.maximum(jnp.max(apart, axis=1), _MEAN * jnp.mean(apart, axis=1))
        change /= length  # a step that was cut short tells little
        gradient_change = gradient - state.gradient
        return _State(
            theta, z, prob, gradient, last_step, gradient_change, state.step + 1, change
        )


def _going(state: _State, tol: float) -> jax.Array:
    return ((4 * state.change) ** 2 > tol).any()


def _norm(a: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(a * a, axis=1))


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")
