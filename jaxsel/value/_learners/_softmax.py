"""Multinomial logistic regression on many weighted subsets, by Newton steps.

Their systems are solved by conjugate gradients. Hessians are never formed: a product
with one costs as much as a gradient. The curvature on all data, as far as it reaches,
preconditions them. Points are taken in blocks, and those that no subset has are left
out: prefixes of one permutation cost what their length does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from jaxsel._devices.typed import cond, fori_loop, while_loop

from ._arrays import dot
from ._newton import damped

STEPS = 100
_INNER = 25  # conjugate gradients in a step
_LOOSE, _TIGHT = 0.3, 0.03  # shares of the residual that a step may leave
_BLOCK = 128  # points: short prefixes leave blocks out


@runtime_checkable
class Preconditioner(Protocol):
    """The curvature on all data, as far as it is known."""

    def inverse(
        self, trace: jax.Array, l2: jax.Array
    ) -> Callable[[jax.Array], jax.Array]:
        """Return a function that solves systems `[B, C, p]` of about the Hessians.

        Args:
            trace: Of each subset's curvature, `[B]`, to which that of all is scaled.
            l2: Added to all eigenvalues, `[B, 1]`.
        """
        ...


class _State(NamedTuple):
    theta: jax.Array  # [B, C, p]
    spread: jax.Array  # [B], the largest change by the last step
    converged: jax.Array  # [B]
    done: jax.Array  # [B], converged or given up
    step: jax.Array


class _Inner(NamedTuple):
    solution: jax.Array
    residual: jax.Array
    direction: jax.Array
    size: jax.Array  # [B], of the residual, preconditioned
    done: jax.Array
    step: jax.Array


class _Search(NamedTuple):
    length: jax.Array  # [B], of the steps to look at
    start: jax.Array  # [B], the objective without a step
    more: jax.Array
    looks: jax.Array


class _Points(NamedTuple):
    """Points in blocks of s, points in any subset first."""

    x: jax.Array  # [k, s, p]
    right: jax.Array  # of which class, [k, C, s]
    weights: jax.Array  # [k, B, 1, s]
    blocks: jax.Array  # how many of them some subset has points in


def fit_softmax(
    x: Float[jax.Array, "n p"],
    onehot: Float[jax.Array, "C n"],
    weights: Float[jax.Array, "B n"],
    penalty: Float[jax.Array, "B p"],
    present: Bool[jax.Array, "B C"],
    theta: Float[jax.Array, "B C p"],
    active: Bool[jax.Array, " B"],
    curvature: Preconditioner,
    tol: float,
    block: int = _BLOCK,
) -> tuple[Float[jax.Array, "B C p"], Bool[jax.Array, " B"]]:
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
        curvature: Preconditions the systems of all subsets.
        tol: A subset is done once differences of logits are about this far from those
            of the optimum, by what the last step changed and left.
        block: Points multiplied at once: few subsets need more of them to use a core.

    Returns:
        Coefficients, `[B, C, p]`, and which subsets converged, `[B]`.
    """
    mask = present[:, :, None]
    points = _in_blocks(x, onehot, weights, block)
    # One penalty for all columns: see `LogisticRegression.prepare`. Intercepts, which
    # have none, get it in the preconditioner, where it changes speed but no result.
    ridge = penalty[:, :1]
    penalty = penalty[:, None, :]

    def fold_blocks(update: Callable[[_Points, Any, Any], Any], first: Any) -> Any:
        """Fold `update(block, number, carry)` over the blocks."""

        def block(i: jax.Array, carry: Any) -> Any:
            x, right, weights, blocks = points
            part = _Points(x[i], right[i], weights[i], blocks)
            return update(part, i, carry)

        return fori_loop(0, points.blocks, block, first)

    def objective(theta: jax.Array) -> jax.Array:
        def add_losses(part: _Points, _: Any, total: jax.Array) -> jax.Array:
            z = dot(theta, part.x.T)
            top = jax.nn.logsumexp(jnp.where(mask, z, -jnp.inf), axis=1)
            right_logit = jnp.sum(jnp.where(part.right, z, 0), axis=1)
            w = part.weights[:, 0]
            return total + jnp.where(w > 0, w * (top - right_logit), 0).sum(1)

        losses = fold_blocks(add_losses, jnp.zeros_like(weights[:, 0]))
        return losses + jnp.sum(penalty * theta**2, axis=(1, 2)) / 2

    def gradient(theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the gradient, probabilities `[k, B, C, s]`, and curvature's trace."""

        def add_block(part: _Points, i: Any, carry: Any) -> Any:
            slope, chances, trace = carry
            z = jnp.where(mask, dot(theta, part.x.T), -jnp.inf)
            p = jax.nn.softmax(z, axis=1)
            # The chance of all other classes, to as many digits where it is tiny.
            wrong = jnp.sum(jnp.where(part.right, 0, p), axis=1, keepdims=True)
            slope += dot(part.weights * jnp.where(part.right, -wrong, p), part.x)
            variance = jnp.sum(p * jnp.where(part.right, wrong, 1 - p), axis=1)
            trace += dot(part.weights[:, 0] * variance, (part.x**2).sum(1))
            return slope, jax.lax.dynamic_update_index_in_dim(chances, p, i, 0), trace

        # Probabilities of all blocks are kept: each of up to 25 products of a step
        # would otherwise take the softmax anew.
        shape = len(points.x), *theta.shape[:2], points.x.shape[1]
        chances = jnp.broadcast_to(jnp.zeros_like(theta[None, :, :, :1]), shape)
        first = penalty * theta, chances, jnp.zeros_like(weights[:, 0])
        slope, chances, trace = fold_blocks(add_block, first)
        return jnp.where(mask, slope, 0), chances, trace

    def spread_of(delta: jax.Array) -> jax.Array:
        """Return the largest change of a difference of logits, `[B]`."""

        def enlarge(part: _Points, _: Any, most: jax.Array) -> jax.Array:
            change = dot(delta, part.x.T)
            # An absent class has delta 0, which must not enter the extremes.
            used = mask & (part.weights > 0)
            high = jnp.where(used, change, -jnp.inf).max(1)
            low = jnp.where(used, change, jnp.inf).min(1)
            apart = jnp.where(part.weights[:, 0] > 0, high - low, 0)
            # Not a number stays one.
            return jnp.where(jnp.isnan(most), most, jnp.maximum(most, apart.max(-1)))

        return fold_blocks(enlarge, jnp.zeros_like(weights[:, 0]))

    def step(state: _State) -> _State:
        slope, chances, trace = gradient(state.theta)

        def product(v: jax.Array) -> jax.Array:
            def add_block(part: _Points, i: Any, total: jax.Array) -> jax.Array:
                p, u = chances[i], dot(v, part.x.T)
                # (diag(p) - p pᵀ) u of each point, without its C × C matrix.
                u = p * (u - jnp.sum(p * u, axis=1, keepdims=True))
                return total + dot(part.weights * u, part.x)

            return fold_blocks(add_block, penalty * v)

        # Looser while far away, so that steps get better as fast as they get smaller.
        forcing = jnp.clip(_LOOSE * state.spread, _TIGHT, _LOOSE)
        near = curvature.inverse(trace, ridge)

        def solve(right: jax.Array) -> jax.Array:
            return jnp.where(mask, near(right), 0)

        delta, residual = _solve(product, slope, solve, forcing, state.done)
        spread = spread_of(delta)
        sound = jnp.isfinite(spread)
        go = sound & ~state.done
        rate = jnp.sum(slope * delta, axis=(1, 2))

        def along(t: jax.Array) -> jax.Array:
            return objective(state.theta - t[:, None, None] * delta)

        t = _line_search(along, rate, spread, go)[:, None, None]
        # What remains: CG's share of the step, and for Newton the step's square.
        converged = state.converged | (go & (spread * (4 * residual + spread) <= tol))
        return _State(
            jnp.where(go[:, None, None], state.theta - t * delta, state.theta),
            spread,
            converged,
            converged | state.done | ~sound,
            state.step + 1,
        )

    def going(state: _State) -> jax.Array:
        return (state.step < STEPS) & ~state.done.all()

    # At zero all classes are equally likely: a start must not be worse than that.
    many = jnp.maximum(present.sum(1), 1).astype(weights.dtype)
    even = weights.sum(1) * jnp.log(many)
    worse = active & ~(objective(theta) <= even)
    start = _State(
        jnp.where(worse[:, None, None], 0, theta),
        1 + 0 * even,
        ~active,
        ~active,
        jnp.zeros((), jnp.int32),
    )
    end = while_loop(going, step, start)
    return end.theta, end.converged


def _in_blocks(
    x: jax.Array, onehot: jax.Array, weights: jax.Array, block: int
) -> _Points:
    n = len(x)
    used = (weights > 0).any(0)
    size = min(block, n)
    count = -(-n // size)
    # Points in use first, so that blocks behind them are skipped. The index n pads: it
    # is out of range, so that `take` fills in points of weight 0.
    order = jnp.argsort(~used)
    order = jnp.concatenate([order, jnp.full(count * size - n, n)])

    def reordered(array: jax.Array, axis: int) -> jax.Array:
        return jnp.take(array, order, axis=axis, mode="fill", fill_value=0)

    def split(array: jax.Array) -> jax.Array:
        return array.reshape(len(array), count, size).swapaxes(0, 1)

    return _Points(
        reordered(x, 0).reshape(count, size, -1),
        split(reordered(onehot, 1)) > 0,
        split(reordered(weights, 1))[:, :, None],
        -(-used.sum() // size),
    )


def _solve(
    product: Callable[[jax.Array], jax.Array],
    right: jax.Array,
    precondition: Callable[[jax.Array], jax.Array],
    forcing: jax.Array,
    skip: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return x with |A x - b| below a share of |b|, and the share, by CG."""

    def inner(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.sum(a * b, axis=(1, 2))

    first = precondition(right)
    initial = inner(right, first)
    # Sizes are rᵀ M⁻¹ r, squared norms which CG has anyway; hence the squares here too.
    wanted = forcing**2 * initial

    def step(state: _Inner) -> _Inner:
        image = product(state.direction)
        curvature = inner(state.direction, image)
        # Rounding may make the curvature of a direction negative: CG ends there.
        sound = (curvature > 0) & ~state.done
        length = jnp.where(sound, state.size / jnp.where(sound, curvature, 1), 0)
        length = length[:, None, None]
        solution = state.solution + length * state.direction
        residual = state.residual - length * image
        ahead = precondition(residual)
        size = jnp.where(sound, inner(residual, ahead), state.size)
        ratio = jnp.where(sound, size / jnp.where(sound, state.size, 1), 0)
        direction = ahead + ratio[:, None, None] * state.direction
        done = state.done | ~sound | (size <= wanted)
        return _Inner(solution, residual, direction, size, done, state.step + 1)

    def going(state: _Inner) -> jax.Array:
        return (state.step < _INNER) & ~state.done.all()

    start = _Inner(
        jnp.zeros_like(right),
        right,
        first,
        initial,
        skip | (initial <= 0),
        jnp.zeros((), jnp.int32),
    )
    end = jax.lax.while_loop(going, step, start)
    share = jnp.maximum(end.size, 0) / jnp.where(initial > 0, initial, 1)
    return end.solution, jnp.sqrt(share)


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

    def search(least: jax.Array) -> jax.Array:
        def try_length(state: _Search) -> _Search:
            # A single call of the objective, which takes long to compile: first for no
            # step, then for a step of 1, then for halves of it.
            value = objective(state.length)
            first = state.looks == 0
            start = jnp.where(first, value, state.start)
            # Armijo's condition, with a hundredth of the promised fall.
            enough = value <= start - 1e-2 * state.length * slope
            unsure = going & (state.length > least) & ~enough
            half = jnp.maximum(state.length / 2, least)
            length = jnp.where(first, 1, jnp.where(unsure, half, state.length))
            return _Search(length, start, first | unsure.any(), state.looks + 1)

        zero = jnp.zeros_like(least)
        # True, and marked as `least` is under shard_map.
        more = (zero == 0).any()
        begin = _Search(zero, zero, more, jnp.zeros((), jnp.int32))
        return while_loop(lambda state: state.more, try_length, begin).length

    least = damped(change)
    return cond(jnp.any(going & (least < 1)), search, lambda least: least, least)
