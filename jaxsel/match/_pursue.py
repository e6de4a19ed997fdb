"""Matching pursuit as one pure function, for use inside `jit`."""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jaxtyping import Bool

from jaxsel.gradients import Gradient, Oracle

from ._across import columns
from ._column_cache import ColumnCache, empty_cache, put
from ._lookahead import likely, wanted
from ._problem import pose
from ._pursuit import (
    FRESH,
    Pursuit,
    Score,
    advance,
    finish,
    grow,
    pause,
    refresh,
    resume,
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
    strict: jax.typing.ArrayLike = False,
    begun: Match | None = None,
    positive: bool = True,
    score: Score = "omp",
    many: int = 1,
    axis: str | None = None,
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
        strict: Whether to stop, with the status of rounding, once a choice is in doubt
            (`Match.rounded`) or the objective is rounding in part: what was chosen
            before any doubt is in the match then, with weights of zero. Traced.
        begun: A strict match that stopped, in float32 say: continue from its choices.
        positive: Whether weights must not be negative.
        score: "omp", "nomp" or "ols".
        many: How many columns to ask the oracle for at once, at most n.
        axis: Under `jax.shard_map` (with `check_vma=False`): the axis of the mesh whose
            devices have an equal number of candidates each. Then `oracle`, `extra` and
            `valid` are those of a device, and all else is the same for all; of a step,
            the best score of each device and what was chosen go to all of them. It
            needs `many=1`.

    Returns:
        A `Match`, whose indices count the candidates of all devices. Takes memory for k
        columns of n, and twice that with "ols"; for k gradients where the oracle holds
        gradients as rows, `many` is 1, and the score is not "ols".

    Raises:
        ValueError: If there is an `axis`, and `many` is not 1 or choices have begun.
    """
    if axis is not None and many != 1:
        raise ValueError(f"many must be 1 with an axis, got {many}")
    if axis is not None and begun is not None:
        raise ValueError("begun must be None with an axis")
    limit = budget if limit is None else limit
    # A step reads all rows once. Columns that come several at a time cost less, and
    # "ols" needs them in any case.
    direct = many == 1 and score != "ols"
    rows = oracle.rows_held() if direct else None
    # Of a target in the parameters' form (`Projected`) rows leave no residual.
    held = rows is not None and getattr(target, "shape", None) == rows.shape[1:]
    problem = pose(
        oracle,
        target,
        l2=l2,
        extra=extra,
        valid=valid,
        tol=tol,
        limit=limit,
        strict=strict,
        held=held,
    )
    sizes = stages(budget, begun)
    rule: Any = {"positive": positive, "score": score}
    state = start(problem, size=sizes[0], axis=axis, **rule)
    if begun is not None:
        before = columns(oracle, begun.indices, None, held=held)
        state = resume(problem, state, begun, before, **rule)
    width = state.columns.shape[1]
    cache = empty_cache(width, problem.diag.dtype, many)

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
                atoms = oracle.take(best)
                ids = wanted(problem, state, cache, best, atoms, many=many, **rule)
            cache = put(cache, ids, columns(oracle, ids, axis, held=held))
            return advance(problem, state, cache, until, axis=axis, **rule), cache

        return lax.while_loop(more, fetch, (refresh(state), cache))

    for size in sizes:
        carry = (grow(state, size), cache)
        # No refresh falls into the first stage: an outer loop would only be compiled.
        if size <= FRESH:
            state, cache = segment(carry)
        else:
            state, cache = lax.while_loop(lambda c: running(c[0]), segment, carry)
    return finish(problem, state)
