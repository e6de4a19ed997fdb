"""Pursuit with its loop on the host: for candidates in files, or to show a bar."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._runs.progress import bar_class, first_step
from jaxsel.gradients import Gradient, Streamed

from ._column_cache import ColumnCache, empty_cache, put
from ._inputs import one_of
from ._lookahead import likely, wanted
from ._problem import Problem, pose
from ._pursuit import (
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

# Columns to ask for at once from files.
_MANY_STREAMED = 16
# Candidates among which to look ahead, where reading all takes seconds.
_AHEAD = 1024

_start: Callable[..., Pursuit] = jax.jit(
    start, static_argnames=("size", "positive", "score")
)
_resume: Callable[..., Pursuit] = jax.jit(
    resume, static_argnames=("positive", "score"), donate_argnames="state"
)
_grow: Callable[..., Pursuit] = jax.jit(grow, static_argnames="size")
_likely: Callable[..., jax.Array] = jax.jit(
    likely, static_argnames=("among", "positive", "score")
)
_wanted: Callable[..., jax.Array] = jax.jit(
    wanted, static_argnames=("many", "positive", "score")
)
_put: Callable[..., ColumnCache] = jax.jit(put, donate_argnames="cache")
_advance: Callable[..., Pursuit] = jax.jit(
    advance, static_argnames=("positive", "score"), donate_argnames="state"
)
_refresh: Callable[..., Pursuit] = jax.jit(refresh, donate_argnames="state")
_finish: Callable[..., Match] = jax.jit(finish)


def on_host(oracle: Any, target: Gradient, *, several: bool, **options: Any) -> Match:
    """Match with the loop on the host, fetching columns as they are needed.

    Args:
        oracle: The candidates.
        target: One target, or several stacked ones.
        several: Whether they are several.
        options: Of one match, all of them: see `_match`.
    """
    if not several:
        return _match(oracle, target, **options)
    targets = range(len(jax.tree.leaves(target)[0]))
    parts = [_match(oracle, one_of(target, t), **options) for t in targets]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)


def _match(
    oracle: Any,
    target: Gradient,
    *,
    size: int,
    extra: np.ndarray,
    valid: np.ndarray,
    progress: bool,
    l2: float,
    tol: float,
    strict: bool,
    begun: Match | None,
    positive: bool,
    score: Score,
) -> Match:
    sizes = stages(size, begun)
    rule: Any = {"positive": positive, "score": score}
    # Looking ahead saves passes over files; what is in memory needs none.
    many = min(_MANY_STREAMED, len(oracle)) if isinstance(oracle, Streamed) else 1
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(
            bar_class()(total=size, desc="Chosen", leave=False, disable=not progress)
        )
        done = stack.enter_context(first_step(bar)) if progress else None
        problem: Problem = pose(
            oracle,
            target,
            l2=l2,
            extra=jnp.asarray(extra),
            valid=jnp.asarray(valid),
            tol=tol,
            limit=size,
            strict=strict,
        )
        state: Pursuit = _start(problem, size=sizes[0], **rule)
        if begun is not None:
            before = oracle.columns(begun.indices)
            state = _resume(problem, state, begun, before, **rule)
        cache = empty_cache(len(oracle), problem.diag.dtype, many)
        for room in sizes:
            state = _grow(state, size=room)
            while bool(running(state)):
                until = pause(state)
                ids = state.next[None]
                if many > 1:
                    best = _likely(problem, state, among=_AHEAD, **rule)
                    atoms = oracle.take(best)
                    ids = _wanted(problem, state, cache, best, atoms, many=many, **rule)
                cache = _put(cache, ids, oracle.columns(ids))
                state = _advance(problem, state, cache, until, **rule)
                if int(state.steps) == int(until):
                    state = _refresh(state)
                bar.update(int(state.steps) - bar.n)
                if done is not None:
                    done()
    return _finish(problem, state)
