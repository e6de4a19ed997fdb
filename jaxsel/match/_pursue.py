"""Matching pursuit as one pure function, for use inside `jit`."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jaxtyping import Bool

from jaxsel.gradients import Gradient, Oracle

from ._column_cache import ColumnCache, empty_cache, put
from ._lookahead import likely, wanted
from ._pursuit import (
    FRESH,
    Pursuit,
    Score,
    advance,
    finish,
    grow,
    pause,
    pose,
    refresh,
    running,
    stages,
    start,
)
from ._types import Match

# Candidates among which to look ahead, for each column of a request.
_AHEAD = 16


def pursue(
    oracle: Oracle,
    target: Gradient,
    *,
    budget: int,
    l2: jax.typing.ArrayLike = 0.5,
    extra: jax.typing.ArrayLike = 0.0,
    valid: Bool[jax.Array, " n"] | None = None,
    tol: jax.typing.ArrayLike = 0.0,
    limit: jax.typing.ArrayLike | None = None,
    positive: bool = True,
    score: Score = "omp",
    many: int = 1,
) -> Match:
    """Match a target gradient with a few candidates: a pure kernel.

    Computes what `omp` does, without checks. Call it under `jit`; otherwise its loops
    are compiled at every call, which takes seconds. Under `vmap` over targets, one
    matrix product gives the columns that all targets choose; leave `many` at 1 there.

    Args:
        oracle: The n candidates.
        target: The gradient to match, in the oracle's form.
        budget: Room for choices, k: static.
        l2: Weight of `‖w‖²`.
        extra: Optional `[n]`: added to `l2` for each candidate.
        valid: Optional `[n]`: which candidates may be chosen.
        tol: Stop at a relative error of this.
        limit: How many steps at most, traced; `budget` if None.
        positive: Whether weights must not be negative.
        score: "omp", "nomp" or "ols".
        many: How many columns to ask the oracle for at once, at most n.

    Returns:
        A `Match`. Takes memory for k columns of n, and twice that with "ols".
    """
    limit = budget if limit is None else limit
    problem = pose(
        oracle, target, l2=l2, extra=extra, valid=valid, tol=tol, limit=limit
    )
    sizes = stages(budget)
    rule: Any = {"positive": positive, "score": score}
    state = start(problem, size=sizes[0], **rule)
    cache = empty_cache(len(problem.diag), problem.diag.dtype, many)

    def segment(carry: tuple[Pursuit, ColumnCache]) -> tuple[Pursuit, ColumnCache]:
        state, cache = carry
        until = pause(state)

        def more(carry: tuple[Pursuit, ColumnCache]) -> jax.Array:
            return running(carry[0]) & (carry[0].steps < until)

        def fetch(carry: tuple[Pursuit, ColumnCache]) -> tuple[Pursuit, ColumnCache]:
            state, cache = carry
            ids = state.next[None]
            if many > 1:
                best = likely(problem, state, among=_AHEAD * many, **rule)
                some = oracle.take(best)
                ids = wanted(problem, state, cache, best, some, many=many, **rule)
            cache = put(cache, ids, oracle.columns(ids))
            return advance(problem, state, cache, until, **rule), cache

        return lax.while_loop(more, fetch, (refresh(state), cache))

    for size in sizes:
        carry = (grow(state, size), cache)
        if size <= FRESH:
            state, cache = segment(carry)
        else:
            state, cache = lax.while_loop(lambda c: running(c[0]), segment, carry)
    return finish(problem, state)
