"""Prefetching of columns of the candidates most likely to be chosen next.

Every request reads all gradients, so that 16 columns cost hardly more than one. The 16
candidates with the highest scores now would be the wrong ones: each choice changes the
residual, and with it the order. So the next steps are simulated among the few hundred
candidates with the highest scores, whose inner products with each other cost next to
nothing. The choice itself is still made among all candidates; a wrong guess costs
another request, nothing else.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsel.gradients import Oracle
from jaxsel.neighbors import top_k

from ._column_cache import ColumnCache
from ._problem import Problem
from ._pursuit import Pursuit, Score, advance, scores


def likely(
    problem: Problem, state: Pursuit, *, among: int, positive: bool, score: Score
) -> jax.Array:
    """Return the candidates with the highest scores, the next one included, `[m]`.

    Args:
        problem: Constants of the pursuit.
        state: Its current state.
        among: How many to return, if there are as many.
        positive: Whether weights must not be negative.
        score: How to choose.
    """
    promise = scores(problem, state, positive=positive, score=score)
    best = top_k(-promise, min(among, len(promise)))[1]
    # Ties may have put others before the one that is next.
    return jnp.where(jnp.any(best == state.next), best, best.at[0].set(state.next))


def wanted(
    problem: Problem,
    state: Pursuit,
    cache: ColumnCache,
    best: jax.Array,
    atoms: Oracle,
    *,
    many: int,
    positive: bool,
    score: Score,
) -> jax.Array:
    """Return candidates to fetch columns of, `[many]`: the next, and likely later ones.

    Args:
        problem: Constants of the pursuit.
        state: Its current state.
        cache: Columns that need not be asked for.
        best: Candidates from `likely`, `[m]`.
        atoms: The oracle of these.
        many: How many to ask for.
        positive: Whether weights must not be negative.
        score: How to choose.
    """
    rule: Any = {"positive": positive, "score": score}
    ahead = advance(*_among(problem, state, best, atoms), state.steps + many, **rule)
    slots, n = jnp.arange(state.indices.shape[0]), problem.diag.shape[0]
    new = (slots >= state.steps) & (slots < ahead.steps)
    # Index n is out of bounds, and dropped: slots without a new choice, empty cache.
    chosen = jnp.where(new, best[ahead.indices - len(slots)], n)
    held = jnp.where(cache.ids < 0, n, cache.ids)
    promise = scores(problem, state, **rule).at[chosen].set(jnp.inf, mode="drop")
    promise = promise.at[held].set(0, mode="drop").at[state.next].set(jnp.inf)
    return top_k(-promise, many)[1]


def _among(
    problem: Problem, state: Pursuit, best: jax.Array, atoms: Oracle
) -> tuple[Problem, Pursuit, ColumnCache]:
    """Restrict problem and state to the chosen candidates and the best others.

    The k slots of chosen candidates come first, then the m others, with all of their
    columns in the cache.
    """
    size = state.indices.shape[0]
    ids = jnp.concatenate([state.indices, best])
    slots = jnp.arange(size, dtype=jnp.int32)
    others = size + jnp.arange(len(best), dtype=jnp.int32)

    def cut(array: jax.Array) -> jax.Array:
        # Entries at the slots of the chosen only say how far to trust a choice: zeros
        # will do.
        return jnp.pad(array[:, best], [(0, 0), (size, 0)])

    few = problem._replace(
        diag=problem.diag[ids],
        extra=problem.extra[ids],
        corr=problem.corr[ids],
        valid=problem.valid[ids],
        # A guess may be in doubt: only the true pursuit must stop there.
        strict=jnp.asarray(False),
    )
    start = state._replace(
        corr=state.corr[ids],
        open=state.open[ids] & (jnp.arange(len(ids)) >= size),
        columns=cut(state.columns),
        rows=None if state.rows is None else cut(state.rows),
        left=None if state.left is None else state.left[ids],
        indices=jnp.where(slots < state.steps, slots, 0),
        next=size + jnp.argmax(best == state.next).astype(jnp.int32),
    )
    columns = jnp.concatenate([state.columns[:, best].T, atoms.gram(atoms)], axis=1)
    return few, start, ColumnCache(others, columns.astype(few.diag.dtype), jnp.int32(0))
