"""Orthogonal matching pursuit over any oracle: the public function."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._checks import (
    as_array,
    check_choice,
    check_concrete,
    check_count,
    check_numeric,
    check_positive,
)
from jaxsel._mesh import along, n_shards, replicate, shard, whole
from jaxsel._typed import compiled, map_leaves
from jaxsel.gradients import Gradient, Oracle, Streamed, dense

from ._column_cache import ColumnCache, empty_cache, put
from ._lookahead import likely, wanted
from ._pursue import pursue
from ._pursuit import (
    Problem,
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
from ._types import OVERFLOW, Match
from ._usable import check_lengths, check_products

Candidates = Oracle | npt.ArrayLike | jax.Array
"""An oracle of n gradients, or an array of them, `[n, p]`."""

_SCORES = ("omp", "nomp", "ols")
# Columns to ask for at once: from files, and from more bytes than caches hold.
_MANY_STREAMED = 16
# Candidates among which to look ahead, where reading all takes seconds.
_AHEAD = 1024
_MANY_LARGE, _LARGE = 8, 16_000_000
# Up to so many candidates their number is rounded up, so that pools of many sizes share
# a program; copying more would cost more than it saves.
_ROUND = 8192
# Entries of all columns of the targets that are matched in one program.
_ENTRIES = 50_000_000


def omp(
    candidates: Candidates,
    target: Gradient,
    budget: int,
    *,
    l2: float = 0.5,
    positive: bool = True,
    score: Score = "omp",
    penalty: npt.ArrayLike | jax.Array | None = None,
    penalty_l2: float = 1.0,
    tol: float = 0.0,
    valid: npt.ArrayLike | jax.Array | None = None,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    progress: bool = False,
) -> Match:
    """Choose candidates whose weighted gradients sum to a target, one after another.

    Minimises `‖Σ w_i g_i − b‖² + l2 ‖w‖² + penalty_l2 ‖ψ w‖²` greedily over sets of at
    most `budget` candidates. Each step chooses a candidate by `score`, then fits the
    weights of all chosen ones again. It uses inner products only, in a pivoted form of
    the normal equations; gradients are never written out.

    Args:
        candidates: An oracle of n gradients, or an array of shape `[n, p]`. A candidate
            of an oracle whose gradient has a NaN is never chosen; an array with one is
            refused.
        target: The gradient b to match, in the oracle's form: `[p]` for an array; or
            several, stacked along a leading axis, which are matched independently.
        budget: How many to choose at most, k.
        l2: Weight λ of `‖w‖²`. It keeps one candidate from taking all the weight.
        positive: Whether weights must not be negative. Each step's fit is then exact
            non-negative least squares, and only candidates with a positive inner
            product with the residual are chosen.
        score: "omp": by the inner product with the residual. "nomp": by the share of
            the residual that the candidate alone explains, so that long gradients have
            no advantage. "ols": by how much the objective falls if all weights are
            fitted again. This is the best at equal budget, and the only one in which
            the ridge and the penalty affect the choice; it takes twice the memory.
        penalty: Optional ψ, `[n]`, not negative: larger for less desirable candidates.
        penalty_l2: Weight λ₂ of `‖ψ w‖²`.
        tol: Stop once the root of the objective, relative to the target's length, is
            at most this. In float32 it stops near 1e-3 in any case.
        valid: Optional booleans, `[n]`: which candidates may be chosen.
        mesh: Devices to share the candidates among.
        axis: Which axis of the mesh; its only one, or "data", if None.
        progress: Whether to show a bar; with a mesh there is none.

    Returns:
        A `Match`: indices in the order of choice, weights, how many there are, the
        objective after each step, and why it stopped. Candidates whose weight returned
        to zero are left out, and their places stay empty, so `n_valid` can be less than
        the budget. k steps cost k columns of the oracle and about k²n multiply-adds,
        and memory for n times k numbers, with k rounded up to a power of two.

    Raises:
        TypeError: If an argument has the wrong type, or is being traced.
        ValueError: If shapes don't fit, a number is out of range, or a squared length
            over- or underflows: in float32, of gradients longer than 1.8e19 and of
            targets shorter than 1.1e-19.

    References:
        Pati, Rezaiifar and Krishnaprasad, Orthogonal Matching Pursuit, Asilomar 1993.
        Killamsetty et al., GRAD-MATCH, ICML 2021, Algorithm 2. Sarwar et al., Mycroft,
        2024, Eq. 1 and Algorithm 2; it drops the most negative weight and solves again
        where this fits non-negative weights exactly. Kim and Park, SIAM Journal on
        Scientific Computing 33, 2011 (the fit).
    """
    oracle = as_oracle("candidates", candidates)
    budget = check_count("budget", budget)
    check_choice("score", score, _SCORES)
    l2 = check_positive("l2", l2, zero=True)
    tol = check_positive("tol", tol, zero=True)
    mesh = along(mesh, axis)
    n = len(oracle)
    extra = penalty_diagonal(penalty, penalty_l2, n)
    allowed = check_valid(valid, n)
    target, several = check_target(oracle, target)
    size = min(budget, n)
    options: Any = {"positive": bool(positive), "score": score}
    if isinstance(oracle, Streamed):
        if mesh is not None:
            raise ValueError("mesh must be None for streamed candidates")
        run = functools.partial(_stream, oracle, progress=progress)
    elif progress and mesh is None:
        run = functools.partial(_stream, oracle, progress=True)
    else:
        run = functools.partial(_compute, oracle, mesh=mesh)
    match = run(
        target,
        several=several,
        size=size,
        l2=l2,
        extra=extra,
        valid=allowed,
        tol=tol,
        **options,
    )
    if (np.asarray(match.status) == OVERFLOW).any():
        check_products(oracle.diag(), jnp.asarray(allowed))
    shown = f"omp(budget={budget}, l2={l2:g}, positive={positive}, score={score!r}"
    if penalty is not None:
        shown += f", penalty_l2={penalty_l2:g}"
    return dataclasses.replace(match, method=shown + ")")


def as_oracle(name: str, candidates: Candidates) -> Any:
    """Return an oracle, wrapping an array.

    Raises:
        TypeError: If it is neither, or is being traced.
        ValueError: If an array has a wrong shape, or is not finite.
    """
    oracle: Any = candidates
    if not isinstance(candidates, Oracle):
        try:
            oracle = dense(candidates)
        except (TypeError, ValueError) as error:
            text = str(error).replace("gradients", name, 1)
            # JAX's errors are of these types too, but not made of a text.
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{text}; or pass an oracle of jaxsel.gradients") from None
    for leaf in jax.tree.leaves(oracle):
        check_concrete(name, leaf)
    return oracle


def penalty_diagonal(
    penalty: npt.ArrayLike | jax.Array | None, penalty_l2: float, n: int
) -> np.ndarray:
    """Return `penalty_l2 · ψ²`, `[n]`."""
    penalty_l2 = check_positive("penalty_l2", penalty_l2, zero=True)
    if penalty is None:
        return np.zeros(n, np.float32)
    given = as_array("penalty", penalty)
    check_numeric("penalty", given)
    psi = np.asarray(given, np.float64)
    if psi.shape != (n,):
        raise ValueError(
            f"penalty must have shape {(n,)}, one for each candidate, got {psi.shape}"
        )
    if not (np.isfinite(psi).all() and (psi >= 0).all()):
        bad = np.flatnonzero(~(np.isfinite(psi) & (psi >= 0)))[0]
        raise ValueError(
            f"penalty must be finite and not negative, got {psi[bad]} at {bad}"
        )
    return penalty_l2 * psi**2


def check_valid(valid: npt.ArrayLike | jax.Array | None, n: int) -> np.ndarray:
    if valid is None:
        return np.ones(n, bool)
    array = np.asarray(as_array("valid", valid))
    if array.shape != (n,) or array.dtype != bool:
        raise ValueError(
            f"valid must be booleans of shape {(n,)}, got {array.dtype} of "
            f"{array.shape}"
        )
    return array


def one_of(targets: Gradient, t: int | jax.Array) -> Gradient:
    """Return one of several stacked targets, or some of them."""
    return map_leaves(lambda leaf: leaf[t], targets)


def _mean(oracle: Oracle) -> Gradient:
    return oracle.mean()


def _is_listed(target: object) -> bool:
    return isinstance(target, (list, tuple))


def check_target(oracle: Any, target: Gradient) -> tuple[Gradient, bool]:
    """Return a target of the oracle's form, and whether there are several of them."""
    if isinstance(target, Oracle):
        raise TypeError("target must be a gradient, got an oracle: pass its mean()")
    streamed = isinstance(oracle, Streamed)
    part = oracle.load(np.zeros(1, np.int64)) if streamed else oracle
    form = jax.eval_shape(_mean, part)
    if _is_listed(target) and isinstance(form, jax.ShapeDtypeStruct):
        target = as_array("target", target)
    got = map_leaves(lambda leaf: jnp.asarray(whole(leaf)), target)
    wanted_shapes = [leaf.shape for leaf in jax.tree.leaves(form)]
    shapes = [leaf.shape for leaf in jax.tree.leaves(got)]
    counts = {shape[:1] for shape in shapes}
    if jax.tree.structure(got) == jax.tree.structure(form):
        if any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(got)):
            raise TypeError("target must be real, but has complex numbers")
        # Whole numbers would overflow where they are squared.
        dtype = jnp.promote_types(part.dtype, jnp.float32)
        got = map_leaves(lambda leaf: leaf.astype(dtype), got)
        for leaf in jax.tree.leaves(got):
            check_concrete("target", leaf)
        if not _all_finite(got):
            raise ValueError("target must be finite, but has NaN or infinity")
        if shapes == wanted_shapes:
            check_lengths(got)
            return got, False
        if len(counts) == 1 and [shape[1:] for shape in shapes] == wanted_shapes:
            if counts == {(0,)}:
                raise ValueError("target must be at least one gradient, got none")
            check_lengths(got, several=True)
            return got, True
    raise ValueError(
        f"target must be a gradient in the candidates' form, arrays of shape "
        f"{', '.join(map(str, wanted_shapes))}, or several with a leading axis, got "
        f"{', '.join(map(str, shapes)) or got!r}"
    )


@compiled()
def _all_finite(tree: Any) -> jax.Array:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


_STATIC = ("budget", "positive", "score", "many")
_pursue: Callable[..., Match] = jax.jit(pursue, static_argnames=_STATIC)


@compiled(static_argnames=_STATIC)
def _pursue_all(oracle: Oracle, targets: Gradient, **options: Any) -> Match:
    return jax.vmap(functools.partial(pursue, oracle, **options))(targets)


def _compute(
    oracle: Any,
    target: Gradient,
    *,
    several: bool,
    size: int,
    extra: np.ndarray,
    valid: np.ndarray,
    mesh: jax.sharding.Mesh | None,
    **options: Any,
) -> Match:
    """Match in one compiled program, of rounded shapes so that it serves many sizes."""
    n = len(oracle)
    devices = n_shards(mesh)
    held = sum(a.nbytes for a in jax.tree.leaves(oracle.per_candidate()))
    rows = _rounded(n) if n <= _ROUND else n
    rows = -(-rows // devices) * devices
    room = min(1 << max(size - 1, 15).bit_length(), rows)
    arrays = oracle if rows == n else _padded(oracle, rows - n)
    extra, valid = (np.pad(array, (0, rows - n)) for array in (extra, valid))
    if mesh is not None:
        arrays = _shard(arrays, mesh)
        extra, valid = shard((extra, valid), mesh)
        target = replicate(target, mesh)
    options |= {"extra": extra, "valid": valid, "budget": room, "limit": size}
    if not several:
        many = _MANY_LARGE if held > _LARGE and mesh is None else 1
        match = _pursue(arrays, target, many=min(many, rows), **options)
        return _cut(match, size)
    targets = len(jax.tree.leaves(target)[0])
    group = min(targets, max(1, _ENTRIES // (room * rows)))
    group = -(-targets // -(-targets // group))  # as even as they get
    parts: list[Match] = []
    for first in range(0, targets, group):
        at = np.minimum(np.arange(first, first + group), targets - 1)
        some = one_of(target, jnp.asarray(at))
        parts.append(_pursue_all(arrays, some, many=1, **options))
    match = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:targets], *parts)
    return _cut(match, size)


def _rounded(n: int) -> int:
    """Round up to a power of two, or, above 1024, one of four sizes between two."""
    bits = max((n - 1).bit_length(), 6)
    step = 1 << (bits if bits <= 10 else bits - 3)
    return -(-n // step) * step


def _padded(oracle: Any, more: int) -> Any:
    """Repeat the last candidate: zeros might be no valid example of a loss."""
    return dataclasses.replace(oracle, **_lengthened(oracle.per_candidate(), more=more))


@compiled(static_argnames="more")
def _lengthened(arrays: Any, *, more: int) -> Any:
    def repeat(array: jax.Array) -> jax.Array:
        return jnp.concatenate([array, jnp.repeat(array[-1:], more, axis=0)])

    return map_leaves(repeat, arrays)


def _cut(match: Match, size: int) -> Match:
    if match.indices.shape[-1] == size:
        return match
    long = {name: getattr(match, name) for name in ("indices", "weights", "objective")}
    return dataclasses.replace(match, **_shortened(long, size=size))


@compiled(static_argnames="size")
def _shortened(arrays: Any, *, size: int) -> Any:
    return map_leaves(lambda array: array[..., :size], arrays)


def _shard(oracle: Any, mesh: jax.sharding.Mesh) -> Any:
    shared = {name: replicate(getattr(oracle, name), mesh) for name in oracle.shared}
    return dataclasses.replace(oracle, **shared, **shard(oracle.per_candidate(), mesh))


_start: Callable[..., Pursuit] = jax.jit(
    start, static_argnames=("size", "positive", "score")
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


def _stream(
    oracle: Any,
    target: Gradient,
    *,
    several: bool,
    size: int,
    extra: np.ndarray,
    valid: np.ndarray,
    progress: bool,
    l2: float,
    tol: float,
    positive: bool,
    score: Score,
) -> Match:
    """Match with the loop on the host, which reads candidates as columns are wanted."""
    if several:
        parts = [
            _stream(
                oracle,
                one_of(target, t),
                several=False,
                size=size,
                extra=extra,
                valid=valid,
                progress=progress,
                l2=l2,
                tol=tol,
                positive=positive,
                score=score,
            )
            for t in range(len(jax.tree.leaves(target)[0]))
        ]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    from tqdm.auto import tqdm

    problem: Problem = pose(
        oracle,
        target,
        l2=l2,
        extra=jnp.asarray(extra),
        valid=jnp.asarray(valid),
        tol=tol,
        limit=size,
    )
    sizes = stages(size)
    rule: Any = {"positive": positive, "score": score}
    state: Pursuit = _start(problem, size=sizes[0], **rule)
    # Looking ahead saves passes over files; what is in memory needs none.
    many = min(_MANY_STREAMED, len(oracle)) if isinstance(oracle, Streamed) else 1
    cache = empty_cache(len(oracle), problem.diag.dtype, many)
    with tqdm(total=size, desc="Chosen", leave=False, disable=not progress) as bar:
        for room in sizes:
            state = _grow(state, size=room)
            while bool(running(state)):
                until = pause(state)
                ids = state.next[None]
                if many > 1:
                    best = _likely(problem, state, among=_AHEAD, **rule)
                    some = oracle.take(best)
                    ids = _wanted(problem, state, cache, best, some, many=many, **rule)
                cache = _put(cache, ids, oracle.columns(ids))
                state = _advance(problem, state, cache, until, **rule)
                if int(state.steps) == int(until):
                    state = _refresh(state)
                bar.update(int(state.steps) - bar.n)
    return _finish(problem, state)
