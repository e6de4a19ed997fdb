"""The weights of samples that predict the variance at given points best: a kernel."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxsel._devices.typed import cholesky, cond, while_loop
from jaxsel._inputs.show import brief

# Steps between two inversions, against accumulated rounding. An earlier one is due once
# the weights of the last have shrunk to this share: then digits cancel.
_AFRESH, _FADED = 50, 0.25
# No step leaves less than this of the weights, so that the inverse stays finite.
_LEFT = 1e-3


@brief
class Weighed(NamedTuple):
    """Weights after Frank-Wolfe steps.

    Attributes:
        shares: Array of shape `[n]`: the weights, whose sum is 1.
        gains: Array of shape `[n]`: how fast the objective falls in each one's weight.
        taken: Array of shape `[n]`: whether any step was towards it.
        objective: Array of shape `[steps + 1]`: before each step, and after the last;
            NaN where it stopped before.
        steps: Scalar int32: number of steps made.
    """

    shares: jax.Array
    gains: jax.Array
    taken: jax.Array
    objective: jax.Array
    steps: jax.Array


class _State(NamedTuple):
    shares: jax.Array
    gains: jax.Array
    taken: jax.Array
    inverse: jax.Array
    objective: jax.Array
    left: jax.Array
    t: jax.Array


def frank_wolfe_design(
    x: Float[jax.Array, "n d"],
    moment: Float[jax.Array, "d d"],
    tolerance: Float[jax.Array, ""],
    *,
    steps: int,
) -> Weighed:
    """Minimise `tr(S M⁻¹)`, `M = Σ wᵢ xᵢ xᵢᵀ`, over weights w that sum to 1.

    Frank-Wolfe from equal weights: each step moves towards the sample with the largest
    gain `xᵢᵀ M⁻¹ S M⁻¹ xᵢ`, as far as is best, in closed form. The inverse and all
    gains follow by updates of rank one, O(n·d) a step, and are computed anew every 50
    steps, where steps are long, and at the end, O(n·d²). Memory for 3·n numbers beside
    `x`: nothing is n × n.

    Since the objective is convex, and a multiple of all weights divides it, no weights
    reach less than `objective² / max(gains)`.

    Args:
        x: Samples, whose second moment must be invertible.
        moment: S, the second moment of the points to predict at.
        tolerance: It stops once the objective is at most `1 + tolerance` times what any
            weights can reach.
        steps: Maximum number of steps.

    Returns:
        The weights, their gains, and the objective after each step.

    References:
        Lu, Huang and Karimireddy et al., Data acquisition via experimental design for
        data markets (DAVED), NeurIPS 2024, equations 4 to 6.
    """
    n = len(x)
    shares = jnp.full(n, 1 / n, x.dtype)
    inverse, gains = _afresh(x, moment, shares)
    empty = jnp.full(steps + 1, jnp.nan, x.dtype)
    begin = _State(
        shares=shares,
        gains=gains,
        taken=jnp.zeros(n, bool),
        inverse=inverse,
        objective=empty.at[0].set(_inner(inverse, moment)),
        left=jnp.ones((), x.dtype),
        t=jnp.int32(0),
    )

    def close(state: _State) -> jax.Array:
        now = _inner(state.inverse, moment)
        return jnp.max(state.gains) <= (1 + tolerance) * now

    def more(state: _State) -> jax.Array:
        return (state.t < steps) & ~close(state)

    def mended(state: _State) -> _State:
        inverse, gains = _afresh(x, moment, state.shares)
        unchanged = jnp.ones_like(state.left)
        return state._replace(inverse=inverse, gains=gains, left=unchanged)

    def body(state: _State) -> _State:
        state = _step(x, moment, state)
        # Stop only on values computed anew, never on updated ones.
        due = (state.t % _AFRESH == 0) | (state.t == steps) | close(state)
        due |= state.left < _FADED
        state = cond(due, mended, lambda state: state, state)
        now = _inner(state.inverse, moment)
        return state._replace(objective=state.objective.at[state.t].set(now))

    end = while_loop(more, body, begin)
    return Weighed(end.shares, end.gains, end.taken, end.objective, end.t)


def _step(x: jax.Array, moment: jax.Array, state: _State) -> _State:
    j = jnp.argmax(state.gains)
    row = jnp.take(x, j, axis=0)
    v = _product(state.inverse, row)
    w = _product(state.inverse, _product(moment, v))
    alpha = _best_step(
        _inner(state.inverse, moment), gain=_inner(row, w), length=_inner(row, v)
    )
    keep = 1 - alpha
    # Sherman-Morrison for keep M + α x xᵀ: (M⁻¹ - fall v vᵀ) / keep, v = M⁻¹ x.
    fall = alpha / (keep + alpha * _inner(row, v))
    along, across = _product(x, jnp.stack([v, w], axis=1)).T
    # The same update inside xᵢᵀ M⁻¹ S M⁻¹ xᵢ; vᵀ S v is `row` times w.
    gains = state.gains - fall * along * (2 * across - fall * _inner(row, w) * along)
    return state._replace(
        shares=(keep * state.shares).at[j].add(alpha),
        gains=gains / keep**2,
        taken=state.taken.at[j].set(True),
        inverse=(state.inverse - fall * jnp.outer(v, v)) / keep,
        left=state.left * keep,
        t=state.t + 1,
    )


def _best_step(now: jax.Array, *, gain: jax.Array, length: jax.Array) -> jax.Array:
    """Return the step from the objective `now` towards a sample that lowers it most.

    Along it the objective is `(now - α·gain / (1 - α + α·length)) / (1 - α)`, whose
    derivative has one zero where the gain exceeds it.
    """
    excess = length - 1
    # The quadratic formula with the root below, which does not cancel near length 1.
    root = jnp.sqrt(jnp.maximum(gain * excess * (now * length - gain), 0))
    down = now * excess + root
    alpha = jnp.where(down > 0, (gain - now) / jnp.where(down > 0, down, 1), 1)
    return jnp.clip(alpha, 0, 1 - _LEFT)


def _afresh(
    x: jax.Array, moment: jax.Array, shares: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the inverse of the samples' weighted moment, and their gains."""
    second = _product(x.T, shares[:, None] * x)
    factor = cholesky(second)
    root = jax.scipy.linalg.solve_triangular(
        factor, jnp.eye(len(factor), dtype=x.dtype), lower=True
    )
    inverse = _product(root.T, root)
    slope = _product(inverse, _product(moment, inverse))
    return inverse, jnp.sum(_product(x, slope) * x, axis=1)


def _inner(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.vdot(a, b, precision="highest")


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")
