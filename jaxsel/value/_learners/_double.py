"""Logistic regression in float64, by Newton steps with explicit Hessians.

For tables in raw units, where the penalty's part of the curvature may be 1e-14 of the
data's: float32 loses it, and the optimum with it. Logits are relative to one class of
the subset, so that no direction leaves all probabilities as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from jaxsel._devices.typed import cholesky, cond, finfo, lax_map, while_loop

from ._arrays import dot

STEPS = 300
_CLOSE = 0.01  # times the root of `tol`: one more step costs little
_HALVINGS, _FALL = 40, 1e-4  # of a step, and the share of its fall that it must reach
_REFINED = 3
_FLAT = 1e-13  # fall of the loss, relative, that rounding hides


class _Points(NamedTuple):
    """Points as each subset has them: its first class first, as the reference."""

    x: jax.Array  # [n, p]
    right: jax.Array  # [B, C, n]
    weights: jax.Array  # [B, n]
    present: jax.Array  # [B, C, 1]
    penalty: jax.Array  # [B, p], doubled where there are two classes
    n_present: jax.Array  # [B], of the classes


class _Chances(NamedTuple):
    probs: jax.Array  # [B, C, n]
    wrong: jax.Array  # of all classes but the right one, [B, n]


class _State(NamedTuple):
    theta: jax.Array  # [B, C - 1, p]
    logits: jax.Array  # [B, C, n]
    loss: jax.Array  # [B]
    converged: jax.Array  # [B]
    done: jax.Array  # [B], converged or given up
    step: jax.Array


class _Search(NamedTuple):
    length: jax.Array  # [B]
    logits: jax.Array
    loss: jax.Array
    more: jax.Array  # [B], where the loss has not fallen enough
    tries: jax.Array


def fit_double(
    x: Float[jax.Array, "n p"],
    onehot: Float[jax.Array, "C n"],
    weights: Float[jax.Array, "B n"],
    penalty: Float[jax.Array, " p"],
    present: Bool[jax.Array, "B C"],
    theta: Float[jax.Array, "B C p"],
    tol: float,
) -> tuple[Float[jax.Array, "B C p"], Bool[jax.Array, " B"]]:
    """Minimise the weighted cross-entropy + Σ penalty θ² / 2 for each subset.

    Trace it with float64 enabled, of arrays of float64. Of exactly two present classes
    the penalty is on the difference of their coefficients, as in scikit-learn.

    Args:
        x: Features with a column of ones, `[n, p]`.
        onehot: Classes, `[C, n]`.
        weights: `[B, n]`.
        penalty: Of each coefficient, `[p]`.
        present: Which classes a subset has, `[B, C]`: others get no probability.
        theta: Where to start, `[B, C, p]`; zero where that is better.
        tol: A subset is done once a step changes no difference of logits by more than a
            hundredth of its root.

    Returns:
        Coefficients, `[B, C, p]`, that add up to zero over the present classes, and
        which subsets converged, `[B]`. A step costs n C² p² / 2 + C³ p³ / 3
        multiplications a subset.
    """
    points, order = _relative(x, onehot, weights, penalty, present)
    theta = dot(order, theta)
    theta = jnp.where(points.present[:, 1:], theta[:, 1:] - theta[:, :1], 0)
    active = points.n_present > 1

    def evaluate(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = _logits(points, theta)
        return logits, _loss(points, theta, logits)

    def step(state: _State) -> _State:
        chances = _chances(points, state.logits)
        slope = _slope(points, state.theta, chances)
        delta = _solved(points, chances, slope, state.done)
        ahead = _logits(points, delta)
        rate = jnp.sum(slope * delta, axis=(1, 2))
        used = points.present & (points.weights > 0)[:, None]
        high = jnp.where(used, ahead, -jnp.inf).max(1)
        low = jnp.where(used, ahead, jnp.inf).min(1)
        change = jnp.where(points.weights > 0, high - low, 0).max(1)
        # gᵀ H⁻¹ g is negative only if rounding has made the Hessian indefinite: no step
        # from there can be trusted.
        sound = jnp.isfinite(change) & (rate >= 0)
        go = sound & ~state.done
        search = _searched(points, state, delta, ahead, rate, go)
        theta = state.theta - search.length[:, None, None] * delta
        theta = jnp.where(go[:, None, None], theta, state.theta)
        converged = go & (change <= _CLOSE * np.sqrt(tol))
        return _State(
            theta,
            jnp.where(go[:, None, None], search.logits, state.logits),
            jnp.where(go, search.loss, state.loss),
            state.converged | converged,
            state.done | converged | ~sound,
            state.step + 1,
        )

    def going(state: _State) -> jax.Array:
        return (state.step < STEPS) & ~state.done.all()

    # Negated, so that a start with NaN is worse too.
    worse = ~(evaluate(theta)[1] <= evaluate(0 * theta)[1])
    theta = jnp.where(worse[:, None, None], 0, theta)
    start = _State(theta, *evaluate(theta), ~active, ~active, jnp.zeros((), jnp.int32))
    end = while_loop(going, step, start)
    theta = jnp.concatenate([jnp.zeros_like(end.theta[:, :1]), end.theta], axis=1)
    mean = theta.sum(1, keepdims=True) / jnp.maximum(points.n_present, 1)[:, None, None]
    theta = jnp.where(points.present, theta - mean, 0)
    return dot(order.transpose(0, 2, 1), theta), end.converged


def _relative(
    x: jax.Array,
    onehot: jax.Array,
    weights: jax.Array,
    penalty: jax.Array,
    present: jax.Array,
) -> tuple[_Points, jax.Array]:
    """Return the points, and each subset's order of classes, `[B, C, C]`.

    As matrices: JAX has no whole numbers of 64 bits where it lowers the program.
    """
    classes = present.shape[1]
    earlier = np.triu(np.ones((classes, classes)), 1)
    first = dot(present.astype(x.dtype), jnp.asarray(earlier)) == 0  # or none so far
    # The first class that is present goes to place 0; those before it make room by one
    # place, and all behind it stay.
    moved = jnp.where(first[:, :, None], np.eye(classes, k=-1), np.eye(classes))
    head = (present & first).astype(x.dtype)[:, None]
    order = jnp.concatenate([head, moved[:, 1:]], axis=1)
    has = dot(order, present.astype(x.dtype)[:, :, None]) > 0
    count = jnp.sum(has, axis=(1, 2), dtype=x.dtype)
    penalties = jnp.where(count == 2, 2.0, 1.0)[:, None] * penalty[None]
    return _Points(x, dot(order, onehot) > 0, weights, has, penalties, count), order


def _logits(points: _Points, theta: jax.Array) -> jax.Array:
    """Return the logits of all classes, `[B, C, n]`: zero for the reference."""
    logits = dot(theta, points.x.T)
    return jnp.pad(logits, ((0, 0), (1, 0), (0, 0)))


def _others(points: _Points, logits: jax.Array) -> jax.Array:
    """Return the log odds of all classes but the right one, `[B, n]`."""
    right = jnp.sum(jnp.where(points.right, logits, 0), axis=1, keepdims=True)
    others = points.present & ~points.right
    # Relative to the right logit: `softplus` and `sigmoid` of it keep the digits of a
    # tiny loss or chance, which a difference of two logarithms would cancel.
    return jax.nn.logsumexp(jnp.where(others, logits - right, -jnp.inf), axis=1)


def _loss(points: _Points, theta: jax.Array, logits: jax.Array) -> jax.Array:
    losses = jax.nn.softplus(_others(points, logits))
    losses = jnp.sum(jnp.where(points.weights > 0, points.weights * losses, 0), axis=1)
    return losses + jnp.sum(theta * _penalised(points, theta), axis=(1, 2)) / 2


def _penalised(points: _Points, theta: jax.Array) -> jax.Array:
    """Return the derivative of the penalty, `[B, C - 1, p]`.

    It is on coefficients w that add up to zero. Of the differences v from the first
    class, with m classes, Σ |w|² = Σ |v|² - |Σ v|² / m.
    """
    mean = theta.sum(1, keepdims=True) / jnp.maximum(points.n_present, 1)[:, None, None]
    return points.penalty[:, None] * jnp.where(points.present[:, 1:], theta - mean, 0)


def _chances(points: _Points, logits: jax.Array) -> _Chances:
    probabilities = jax.nn.softmax(jnp.where(points.present, logits, -jnp.inf), axis=1)
    # To as many digits where it is tiny.
    return _Chances(probabilities, jax.nn.sigmoid(_others(points, logits)))


def _slope(points: _Points, theta: jax.Array, chances: _Chances) -> jax.Array:
    error = jnp.where(points.right, -chances.wrong[:, None], chances.probs)[:, 1:]
    slope = dot(points.weights[:, None] * error, points.x)
    slope = jnp.where(points.present[:, 1:], slope, 0)
    return slope + _penalised(points, theta)


def _solved(
    points: _Points, chances: _Chances, slope: jax.Array, skip: jax.Array
) -> jax.Array:
    """Return Newton's steps, `[B, C - 1, p]`, one subset after the other.

    Memory is that of one subset; and LAPACK's calls at once, on several devices, would
    wait for each other in XLA's runtime on CPUs.
    """
    x, outputs = points.x, slope.shape[1]
    size = outputs * x.shape[1]
    rows, columns = (np.asarray(index, np.int32) for index in np.tril_indices(outputs))
    all_but = jnp.asarray(1 - np.eye(outputs, outputs + 1, 1))
    eye, eye_outputs = jnp.asarray(np.eye(x.shape[1])), jnp.asarray(np.eye(outputs))

    def newton_step(subset: tuple[jax.Array, ...]) -> jax.Array:
        _, chance, weights, present, penalty, count, slope = subset
        # 1 - p, to as many digits where it is tiny.
        besides, chance = dot(all_but, chance), chance[1:]
        curvature = jnp.where(
            (rows == columns)[:, None],
            chance[rows] * besides[rows],
            -chance[rows] * chance[columns],
        )
        blocks = lax_map(
            lambda row: dot(x.T, row[:, None] * x), weights[None] * curvature
        )
        # The Hessian of the penalty of `_penalised`: I - 1 1ᵀ / m, times the penalty.
        share = jnp.where(present & present.T, eye_outputs - 1 / count, 0)
        share = share[rows, columns][:, None, None]
        blocks += share * (eye * penalty[None])[None]
        hessian = jnp.zeros((outputs, outputs, *blocks.shape[1:]), x.dtype)
        hessian = hessian.at[rows, columns].set(blocks).at[columns, rows].set(blocks)
        # From [output, output, p, p] to rows and columns of (output, feature).
        hessian = hessian.transpose(0, 2, 1, 3).reshape(size, size)
        return solve_double(hessian, slope.ravel()[:, None]).reshape(slope.shape)

    def unless_done(subset: tuple[jax.Array, ...]) -> jax.Array:
        return cond(subset[0], lambda subset: 0 * subset[-1], newton_step, subset)

    weights, present, penalty = points.weights, points.present[:, 1:], points.penalty
    subsets = skip, chances.probs, weights, present, penalty, points.n_present, slope
    return lax_map(unless_done, subsets)


def solve_double(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """Solve a symmetric, all but singular system `[p, p]` in float64, `[p, K]`."""
    size = len(matrix)
    eye = jnp.asarray(np.eye(size))
    diagonal = jnp.sum(eye * matrix, axis=0)
    # A unit diagonal leaves the condition number within a factor p of the best scaling
    # (van der Sluis, 1969), and makes the ridge relative to each column.
    scale = jax.lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1))
    matrix = matrix * scale[None] * scale[:, None]
    # No less than rounding takes from it, so that equal columns do no harm.
    ridge = 2 * size * finfo(matrix.dtype).eps + (diagonal <= 0)
    factor = cholesky(matrix + ridge[None] * eye, symmetrize_input=False)
    right = scale[:, None] * right
    solution = jnp.zeros_like(right)
    for _ in range(_REFINED):  # iterative refinement removes the ridge's effect
        residual = right - dot(matrix, solution)
        solution += jax.scipy.linalg.cho_solve((factor, True), residual)
    return scale[:, None] * solution


def _searched(
    points: _Points,
    state: _State,
    delta: jax.Array,
    ahead: jax.Array,
    rate: jax.Array,
    go: jax.Array,
) -> _Search:
    """Halve steps until the loss falls by enough."""
    # Near the optimum rounding of the loss hides its fall, and the condition below
    # would halve good steps to nothing: take them whole.
    flat = rate <= _FLAT * (1 + state.loss)

    def halve(search: _Search) -> _Search:
        first = search.tries == 0
        length = jnp.where(search.more & ~first, search.length / 2, search.length)
        logits = state.logits - length[:, None, None] * ahead
        theta = state.theta - length[:, None, None] * delta
        loss = _loss(points, theta, logits)
        enough = loss <= state.loss - _FALL * length * rate
        return _Search(length, logits, loss, go & ~flat & ~enough, search.tries + 1)

    def going(search: _Search) -> jax.Array:
        return (search.tries < _HALVINGS) & search.more.any()

    ones = jnp.ones_like(state.loss) + 0 * state.loss
    start = _Search(ones, state.logits, state.loss, ones > 0, jnp.zeros((), jnp.int32))
    return while_loop(going, halve, start)
