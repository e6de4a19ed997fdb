"""Matching pursuit as one pure function, for use inside `jit`."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jaxtyping import Bool

from jaxsel.gradients import Gradient, Oracle

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
from ._shelf import Shelf, empty_shelf, put
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

    What `omp` computes, without checks. Call it under `jit`: else its loops are
    compiled at every call, for seconds. Under `vmap` over targets the columns of all
    targets' choices are one matrix product; leave `many` at 1 there.

    Args:
        oracle: The n candidates.
        target: The gradient to match, in the oracle's form.
        budget: Room for choices, k: static.
        l2: Weight of `‖w‖²`.
        extra: Optional `[n]`: added to it for each candidate.
        valid: Optional `[n]`: which candidates may be chosen.
        tol: Stop at a relative error of this.
        limit: How many steps at most, not static; as many as there is room for if None.
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
    shelf = empty_shelf(len(problem.diag), problem.diag.dtype, many)

    def segment(carry: tuple[Pursuit, Shelf]) -> tuple[Pursuit, Shelf]:
        state, shelf = carry
        until = pause(state)

        def more(carry: tuple[Pursuit, Shelf]) -> jax.Array:
            return running(carry[0]) & (carry[0].steps < until)

        def fetch(carry: tuple[Pursuit, Shelf]) -> tuple[Pursuit, Shelf]:
            state, shelf = carry
            ids = state.next[None]
            if many > 1:
                best = likely(problem, state, among=_AHEAD * many, **rule)
                some = oracle.take(best)
                ids = wanted(problem, state, shelf, best, some, many=many, **rule)
            shelf = put(shelf, ids, oracle.columns(ids))
            return advance(problem, state, shelf, until, **rule), shelf

        return lax.while_loop(more, fetch, (refresh(state), shelf))

    for size in sizes:
        carry = (grow(state, size), shelf)
        if size <= FRESH:
            state, shelf = segment(carry)
        else:
            state, shelf = lax.while_loop(lambda c: running(c[0]), segment, carry)
    return finish(problem, state)
