"""Orthogonal matching pursuit in the space of products: the kernel behind the room.

With `K = G + diag(l2 + penalty_l2 ψ²)`, where G holds the candidates' inner products,
the objective `‖Σ w_i g_i − b‖² + l2 ‖w‖² + penalty_l2 ‖ψ w‖²` of a set of candidates is
a quadratic in K and in the correlations `c_i = <g_i, b>`: no residual is formed, and
the gradients are needed only for `diag`, `corr(b)` and a column of G for each choice.
Where the oracle holds gradients as rows of a matrix, the residual is formed: all
correlations with it cost one product, and no column is kept.

With an `axis`, under `shard_map`, every device has its own part of all arrays `[n]` and
`[k, n]`; all others are the same everywhere, and indices count all candidates.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxsel._devices.typed import cond, finfo, fori_loop, while_loop

from . import _refit
from ._across import any_of, entries, largest, without
from ._column_cache import ColumnCache
from ._fit import DOUBTFUL, fit
from ._problem import Problem
from ._refit import Refit
from ._types import BUDGET, EXHAUSTED, OVERFLOW, PRECISION, TOLERANCE, Match

Score = Literal["omp", "nomp", "ols"]

_RUNNING = -1
# A share of a diagonal entry that is rounding, in units of eps.
ROUNDING = 256
# Steps after which the refit's tableau is computed afresh.
FRESH = 64
# An objective below this share of the target's, in units of eps, is rounding in part:
# that of a residual that is formed, and that of products that cancel.
FLOOR, _MATCHED = 8, 64


class Pursuit(NamedTuple):
    """State of a pursuit after each step, with room for k choices.

    Attributes:
        corr: Correlations with the residual, `[n]`.
        open: Which candidates may still be chosen, `[n]`.
        columns: Columns of G of the chosen, `[k, n]`; the chosen gradients, `[k, p]`,
            if the problem has rows.
        rows: Rows of K's pivoted Cholesky factor, `[k, n]`; None unless scored by it.
        left: Diagonal of K's Schur complement after that factor, `[n]`; None likewise.
        indices: The chosen, `[k]`.
        refit: Their weights.
        objective: After each step, `[k]`.
        last: The objective now.
        steps: How many are chosen.
        next: The candidate to choose next; of no meaning once it stops.
        status: Why it stopped.
        error: Length of the part of the residual that rounding makes, the largest yet.
        rounded: Whether it was large beside the correlation of a chosen candidate.
        lead: Share of the next candidate's score by which it exceeds all others'.
        sure: How many were chosen before a lead was within the error.
    """

    corr: jax.Array
    open: jax.Array
    columns: jax.Array
    rows: jax.Array | None
    left: jax.Array | None
    indices: jax.Array
    refit: Refit
    objective: jax.Array
    last: jax.Array
    steps: jax.Array
    next: jax.Array
    status: jax.Array
    error: jax.Array
    rounded: jax.Array
    lead: jax.Array
    sure: jax.Array


def start(
    problem: Problem,
    *,
    size: int,
    positive: bool,
    score: Score,
    axis: str | None = None,
) -> Pursuit:
    """Return the state before the first step, with room for `size` choices."""
    n, dtype = problem.diag.shape[0], problem.diag.dtype
    width = n if problem.rows is None else problem.rows.shape[1]
    keeps_rows = score == "ols"
    # Tolerances relative to an infinite square hold for anything: stop with OVERFLOW.
    too_long = any_of(problem.valid & jnp.isinf(problem.diag), axis)
    too_long |= jnp.isinf(problem.norm)
    state = Pursuit(
        corr=problem.corr,
        open=problem.valid & (problem.diag > 0),
        columns=jnp.zeros((size, width), dtype),
        rows=jnp.zeros((size, n), dtype) if keeps_rows else None,
        left=problem.diag + problem.extra if keeps_rows else None,
        indices=jnp.zeros(size, jnp.int32),
        refit=_refit.empty(size, dtype),
        objective=jnp.full(size, jnp.nan, dtype),
        last=problem.norm,
        steps=jnp.int32(0),
        next=jnp.int32(-1),
        status=jnp.where(too_long, jnp.int32(OVERFLOW), jnp.int32(_RUNNING)),
        # Before any fit the residual is b, which is known to its type's digits only.
        error=finfo(dtype).eps * jnp.sqrt(problem.norm),
        rounded=jnp.asarray(False),
        lead=jnp.zeros((), dtype),
        sure=jnp.int32(0),
    )
    return _aim(problem, state, positive=positive, score=score, axis=axis)


def resume(
    problem: Problem,
    state: Pursuit,
    begun: Match,
    columns: jax.Array,
    *,
    positive: bool,
    score: Score,
) -> Pursuit:
    """Return the state after choices that were made before, fitted again.

    Args:
        problem: Constants of the pursuit.
        state: Before the first step, with room for all choices.
        begun: A strict match that stopped: its choices, those of weight zero too.
        columns: Their columns of G, `[k, n]`, or their gradients, `[k, p]`, if the
            problem has rows.
        positive: Whether weights must not be negative.
        score: How to choose.
    """
    size = state.indices.shape[0]
    filled = jnp.arange(size, dtype=jnp.int32) < begun.n_valid
    chosen = jnp.where(filled, begun.indices, 0)
    columns = jnp.where(filled[:, None], columns, 0).astype(state.columns.dtype)
    if problem.rows is None:
        products = columns[:, chosen]
    else:
        products = jnp.matmul(columns, columns.T, precision="highest")
    gram = jnp.where(filled, products + jnp.diag(problem.extra[chosen]), 0)
    refit = Refit(
        jnp.where(filled[:, None], gram, 0),
        jnp.where(filled, problem.corr[chosen], 0),
        jnp.zeros_like(gram),
        jnp.zeros_like(gram[0]),
        # An atom of weight zero stays in the tableau, not basic: it may come back.
        filled & (begun.weights > 0) if positive else filled,
    )
    refit = _refit.rebuild(refit)
    refit = _refit.non_negative(refit) if positive else refit
    fitted = fit(problem, refit, columns, chosen, None, positive=positive)
    closed = jnp.where(filled, chosen, state.open.shape[0])
    state = state._replace(
        corr=fitted.corr,
        open=state.open.at[closed].set(False, mode="drop"),
        columns=columns,
        indices=chosen,
        refit=fitted.refit,
        objective=jnp.where(filled, begun.objective, jnp.nan).astype(gram.dtype),
        last=fitted.objective,
        steps=jnp.asarray(begun.n_valid, jnp.int32),
    )
    if score == "ols":
        state = fori_loop(
            0,
            state.steps,
            lambda t, state: _factor(state, columns[t], chosen[t], t, None),
            state,
        )
    return _aim(problem, state, positive=positive, score=score, axis=None)


def grow(state: Pursuit, size: int) -> Pursuit:
    """Make room for `size` choices."""
    more = size - state.indices.shape[0]
    down = [(0, more), (0, 0)]
    return state._replace(
        columns=jnp.pad(state.columns, down),
        rows=None if state.rows is None else jnp.pad(state.rows, down),
        indices=jnp.pad(state.indices, (0, more)),
        refit=_refit.grow(state.refit, size),
        objective=jnp.pad(state.objective, (0, more), constant_values=jnp.nan),
    )


def running(state: Pursuit) -> jax.Array:
    """Return whether another step fits without growing the state."""
    return (state.status == _RUNNING) & (state.steps < state.indices.shape[0])


def advance(
    problem: Problem,
    state: Pursuit,
    cache: ColumnCache,
    until: jax.typing.ArrayLike,
    *,
    positive: bool,
    score: Score,
    axis: str | None = None,
) -> Pursuit:
    """Take steps for as long as the next candidate's column is in the cache.

    Args:
        problem: Constants of the pursuit.
        state: Where it stands.
        cache: Columns, the next candidate's among them.
        until: How many steps to have taken then, at most.
        positive: Whether weights must not be negative.
        score: How to choose.
        axis: Of the mesh whose devices share the candidates, if any.
    """

    def more(state: Pursuit) -> jax.Array:
        at_hand = jnp.any(cache.ids == state.next)
        return running(state) & (state.steps < until) & at_hand

    def step(state: Pursuit) -> Pursuit:
        column = cache.columns[jnp.argmax(cache.ids == state.next)]
        return _choose(
            problem, state, column, positive=positive, score=score, axis=axis
        )

    return while_loop(more, step, state)


def pause(state: Pursuit) -> jax.Array:
    """Return the number of steps after which to `refresh`."""
    return (state.steps // FRESH + 1) * FRESH


def refresh(state: Pursuit) -> Pursuit:
    """Take rounding errors out of the weights, which steps let grow."""
    if state.indices.shape[0] <= FRESH:
        return state
    return state._replace(refit=_refit.rebuild(state.refit))


def stages(budget: int, begun: Match | None = None) -> list[int]:
    """Return the sizes to grow through: early steps should not pay for the last."""
    sizes = [budget]
    while sizes[0] > FRESH:
        sizes.insert(0, max(FRESH, -(-sizes[0] // 4)))
    if begun is None:
        return sizes
    first = begun.indices.shape[0]
    return [first, *(size for size in sizes if size > first)]


def finish(problem: Problem, state: Pursuit) -> Match:
    """Return the match: chosen candidates in order, without weights of zero.

    Of a strict match that rounding stopped, return what was chosen before any doubt,
    with weights of zero: the choices to go on from.
    """
    weights = state.refit.weights
    stopped = problem.strict & (state.status == PRECISION)
    sure = jnp.arange(weights.shape[0], dtype=jnp.int32) < state.sure
    kept = jnp.where(stopped, sure, weights != 0)
    order = jnp.argsort(~kept, stable=True)
    rank = jnp.sum(kept).astype(jnp.int32)
    filled = jnp.arange(weights.shape[0], dtype=jnp.int32) < rank
    return Match(
        indices=jnp.where(filled, state.indices[order], 0),
        weights=jnp.where(filled, weights[order], 0),
        n_valid=rank,
        objective=state.objective,
        target_norm=problem.norm,
        steps=state.steps,
        status=state.status,
        dropped=state.steps - rank,
        rounded=state.rounded,
    )


def _choose(
    problem: Problem,
    state: Pursuit,
    column: jax.Array,
    *,
    positive: bool,
    score: Score,
    axis: str | None,
) -> Pursuit:
    """Choose the next candidate and look for another.

    Its column of G is given, or its gradient where the problem has rows.
    """
    j, t = state.next, state.steps
    square, extra, corr = entries((problem.diag, problem.extra, problem.corr), j, axis)
    diagonal = square + extra
    (size,) = entries((jnp.abs(state.corr),), j, axis)
    filled = jnp.arange(state.indices.shape[0], dtype=jnp.int32) < t
    if problem.rows is None:
        (with_chosen,) = entries((column,), state.indices, axis)
    else:
        with_chosen = jnp.matmul(state.columns, column, precision="highest")
    with_chosen = jnp.where(filled, with_chosen, 0)
    # An atom in the span of the basic ones (pivot 0) is passed over for good.
    # Its slot, with weight 0, is the next atom's then.
    refit, pivot = _refit.add(state.refit, t, with_chosen, diagonal, corr)
    independent = _independent(problem, pivot, diagonal)
    state = state._replace(open=without(state.open, j, axis), refit=refit)
    slack = 64 * finfo(problem.norm.dtype).eps * problem.norm

    def take(state: Pursuit) -> Pursuit:
        columns = state.columns.at[t].set(column)
        indices = state.indices.at[t].set(j)
        refit = _refit.exchange(state.refit, t)
        refit = _refit.non_negative(refit) if positive else refit
        refit, corr, last, error = fit(
            problem, refit, columns, indices, axis, positive=positive
        )
        # A new atom can only lower the objective: if it rises by more than rounding,
        # the type's digits are spent, and the step is undone.
        # False for NaN, too. Only small arrays are chosen between, without copies of
        # large ones: slot t of `columns` and `indices` counts only once `steps` does,
        # and no step follows one that is undone, so that none needs its tableau.
        fine = last <= state.last + slack

        def better(new: jax.Array, old: jax.Array | float) -> jax.Array:
            return jnp.where(fine, new, old)

        error = jnp.maximum(error, state.error)
        _, longest = largest(jnp.where(state.open, problem.diag, square), axis)
        # The component of a gradient along an error is rarely much longer than this.
        along = jnp.sqrt(longest / problem.width) * error
        doubtful = size < DOUBTFUL * along
        is_sure = fine & (state.sure == t) & (size * state.lead > 4 * along)
        stops = ~fine | (problem.strict & doubtful)
        state = state._replace(
            corr=better(corr, state.corr),
            error=better(error, state.error),
            rounded=state.rounded | doubtful,
            sure=jnp.where(is_sure, t + 1, state.sure),
            columns=columns,
            indices=indices,
            refit=refit._replace(
                values=better(refit.values, state.refit.values),
                basic=jnp.where(fine, refit.basic, state.refit.basic),
            ),
            objective=state.objective.at[t].set(better(last, jnp.nan)),
            last=better(last, state.last),
            steps=t + fine.astype(jnp.int32),
            status=jnp.where(stops, jnp.int32(PRECISION), state.status),
        )
        return _factor(state, column, j, t, axis) if score == "ols" else state

    def pass_over(state: Pursuit) -> Pursuit:
        # It correlates with the residual: only rounding says that it depends on them.
        status = jnp.where(problem.strict, jnp.int32(PRECISION), state.status)
        return state._replace(rounded=jnp.asarray(True), status=status)

    state = cond(independent, take, pass_over, state)
    return _aim(problem, state, positive=positive, score=score, axis=axis)


def _factor(
    state: Pursuit, column: jax.Array, j: jax.Array, t: jax.Array, axis: str | None
) -> Pursuit:
    """Add a row to the pivoted Cholesky factor of K."""
    rows, left = state.rows, state.left
    if rows is None or left is None:
        raise TypeError("the state was started without a factor")
    # Row t of the pivoted factor: column j of K less its part in the earlier rows. The
    # ridge is missing at j itself, which is closed: its entry is not used again.
    across, left_j = entries((rows, left), j, axis)
    row = column - jnp.matmul(across, rows, precision="highest")
    row = row / jnp.sqrt(left_j)
    return state._replace(rows=rows.at[t].set(row), left=left - row**2)


def _aim(
    problem: Problem,
    state: Pursuit,
    *,
    positive: bool,
    score: Score,
    axis: str | None,
) -> Pursuit:
    """Find the candidate to choose next, or the reason to stop."""
    promise = scores(problem, state, positive=positive, score=score)
    best, most = largest(promise, axis)
    # No match on a mesh is continued, so that none needs a lead.
    second = jnp.max(promise.at[best].set(0)) if axis is None else most
    eps = finfo(promise.dtype).eps
    floor = jnp.maximum(problem.tol**2, FLOOR * eps)
    matched = (state.last <= floor * problem.norm) & (problem.norm > 0)
    least = eps * (_MATCHED if problem.rows is None else FLOOR)
    rounding = problem.strict & (problem.tol**2 < least) & (state.steps > 0)
    codes = [
        (rounding & (state.last <= least * problem.norm), PRECISION),
        (state.steps >= problem.limit, BUDGET),
        (matched, TOLERANCE),
        (~(most > 0), EXHAUSTED),
    ]
    status = jnp.int32(_RUNNING)
    # The first that applies wins.
    for applies, code in reversed(codes):
        status = jnp.where(applies, code, status)
    status = jnp.where(state.status == _RUNNING, status, state.status)
    return state._replace(next=best, lead=1 - second / most, status=status)


def scores(
    problem: Problem, state: Pursuit, *, positive: bool, score: Score
) -> jax.Array:
    """Score the candidates, `[n]`: above zero for those that may be chosen."""
    size = state.corr if positive else jnp.abs(state.corr)
    # A correlation below this is rounding.
    eps = finfo(size.dtype).eps
    noise = 32 * eps * jnp.sqrt(problem.diag) * jnp.sqrt(problem.norm)
    allowed = state.open & (size > noise)
    # Roots of the scores: they order candidates alike, and do not overflow.
    if score == "nomp":
        size = size / jnp.sqrt(problem.diag)
    elif score == "ols" and state.left is not None:
        # corr² / left is the fall of the objective if all weights are fitted again.
        allowed &= _independent(problem, state.left, problem.diag + problem.extra)
        size = size / jnp.sqrt(state.left)
    return jnp.where(allowed, size, 0)


def _independent(problem: Problem, pivot: jax.Array, diagonal: jax.Array) -> jax.Array:
    """Return whether the remainder of a diagonal entry exceeds rounding."""
    return pivot > ROUNDING * finfo(problem.diag.dtype).eps * diagonal
