"""Herding: samples with an unweighted mean close to the target."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import AXIS, along, gather, replicate, shard
from jaxsel._devices.typed import finfo, fori_loop, jit
from jaxsel._inputs.checks import check_count
from jaxsel._results.types import Selection
from jaxsel.gradients import Gradient, Oracle, Streamed

from ._across import any_of, columns, largest, without
from ._float64 import narrowed, repeats, widened
from ._inputs import Candidates, as_oracle, check_target, in_columns
from ._resident import ALL, SPLIT, Mesh, Resident, laid_out, on_parts
from ._usable import check_products, correlations, usable

_State = tuple[jax.Array, jax.Array, jax.Array]
"""Sum of the chosen columns, mask of unchosen candidates, and order of choice."""


def herding(
    candidates: Candidates,
    target: Gradient,
    budget: int,
    *,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> Selection:
    """Choose candidates by herding: their unweighted mean follows a target.

    Each step takes the candidate with the largest inner product with
    `(t + 1) b − (sum of those chosen)`; none is taken twice. Unlike `omp`, it gives
    each sample the same weight, 1/k, for training loops without weights.

    Args:
        candidates: An oracle of n gradients, or features or gradients `[n, p]`. Those
            with a NaN are refused in an array; in an oracle they are never chosen.
        target: The mean to follow, in the oracle's form.
        budget: How many to choose, k, at most n.
        mesh: Devices to share the candidates among. Those whose arrays are spread over
            these stay there, and no process gets all of them. Must be None for
            candidates in files.
        axis: Which axis of the mesh; its only one, or "data", if None.

    Returns:
        A `Selection` in the order of choice, with weights 1/k. If fewer than k can be
        chosen, it has all of these. Costs one column of the oracle for each choice, and
        O(n) memory; some three times that where rounding to float32 would decide, as
        among candidates far from the origin: then float64 does.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, or products of gradients overflow.

    References:
        Welling, Herding dynamical weights to learn, ICML 2009. Chen, Welling and Smola,
        Super-samples from kernel herding, UAI 2010 (with replacement there).

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> gradients = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
        >>> selection = jaxsel.herding(gradients, np.array([0.5, 0.5]), 2)
        >>> print(selection.indices, selection.weights)
        [0 2] [0.5 0.5]
    """
    mesh = along(mesh, axis)
    oracle = laid_out(as_oracle("candidates", candidates, mesh), mesh)
    k = min(check_count("budget", budget), len(oracle))
    target, several = check_target(oracle, in_columns(candidates, target))
    if several:
        raise ValueError("target must be a single gradient for herding")
    if isinstance(oracle, Resident):
        corr, state = _across_devices(oracle, target, k)
    elif isinstance(oracle, Streamed):
        corr = correlations(oracle, target)
        state = _begin(corr, k)
        for t in range(k - 1):
            j = _best(corr, state, t)
            state = _taken(state, t, j, oracle.column(j))
        # Nothing comes after the last one: its column is not needed.
        j = _best(corr, state, k - 1)
        state = _taken(state, k - 1, j, jnp.zeros_like(corr))
    else:
        corr, state = _herd(oracle, target, budget=k)
    may = usable(corr)
    check_products(jnp.stack([corr, state[0]]), may)
    if repeats(_is_rounded(corr, state[0], may, k), oracle):
        with jax.enable_x64(True):
            wide = widened(candidates), widened(target)
            return narrowed(herding(*wide, budget, mesh=mesh))
    count = jnp.minimum(jnp.sum(may), k).astype(jnp.int32)
    filled = jnp.arange(k, dtype=count.dtype) < count
    return Selection(
        indices=jnp.where(filled, state[2], 0),
        weights=jnp.where(filled, 1 / count.astype(corr.dtype), 0),
        n_valid=count,
        method=f"herding(budget={budget})",
    ).unpadded()


def _is_rounded(corr: jax.Array, total: jax.Array, may: jax.Array, k: int) -> bool:
    """Tell whether rounding reaches a thousandth of how the best scores differ."""
    products, sums = (np.asarray(a, np.float64)[np.asarray(may)] for a in (corr, total))
    terms = np.maximum(k * np.abs(products), np.abs(sums)).max(initial=0)
    if not len(products):
        return False
    best = np.sort(k * products - sums)[-max(2, math.isqrt(len(products))) :]
    spread = best.std()
    return bool(2 * finfo(corr.dtype).eps * terms > 1e-3 * spread)


@jit(static_argnames="budget")
def _herd(oracle: Oracle, target: Gradient, *, budget: int) -> tuple[jax.Array, _State]:
    return _follow(oracle, target, True, budget, None)


def _across_devices(
    candidates: Resident, target: Gradient, budget: int
) -> tuple[jax.Array, _State]:
    """Choose among candidates where they are; every process gets n products."""
    mesh, is_one = candidates.mesh, candidates.places >= 0
    placed = replicate(target, mesh), shard(is_one, mesh)
    result = _herd_across(candidates.oracle, *placed, budget=budget, mesh=mesh)
    corr, (total, free, order) = gather(result)
    return jnp.asarray(corr[is_one]), (
        jnp.asarray(total[is_one]),
        jnp.asarray(free[is_one]),
        jnp.asarray(candidates.places[order], jnp.int32),
    )


@jit(static_argnames=("budget", "mesh"))
def _herd_across(
    oracle: Oracle, target: Gradient, valid: jax.Array, *, budget: int, mesh: Mesh
) -> tuple[jax.Array, _State]:
    def on_shard(oracle: Oracle, target: Gradient, valid: jax.Array) -> Any:
        return _follow(oracle, target, valid, budget, AXIS)

    out = (SPLIT, (SPLIT, SPLIT, ALL))
    return on_parts(on_shard, oracle, mesh, target, valid, out=out)


def _follow(
    oracle: Oracle,
    target: Gradient,
    valid: jax.Array | bool,
    budget: int,
    axis: str | None,
) -> tuple[jax.Array, _State]:
    corr = correlations(oracle, target)

    def step(t: jax.Array, state: _State) -> _State:
        j = _best(corr, state, t, axis)
        return _taken(state, t, j, columns(oracle, j[None], axis)[0], axis)

    return corr, fori_loop(0, budget, step, _begin(corr, budget, valid))


def _begin(corr: jax.Array, budget: int, valid: jax.Array | bool = True) -> _State:
    return jnp.zeros_like(corr), usable(corr) & valid, jnp.zeros(budget, jnp.int32)


def _best(
    corr: jax.Array, state: _State, t: jax.Array | int, axis: str | None = None
) -> jax.Array:
    total, free, _ = state
    return largest(jnp.where(free, (t + 1) * corr - total, -jnp.inf), axis)[0]


def _taken(
    state: _State,
    t: jax.Array | int,
    j: jax.Array,
    column: jax.Array,
    axis: str | None = None,
) -> _State:
    total, free, order = state
    # If no candidate is left, j is arbitrary and its column may be NaN.
    total = total + jnp.where(any_of(free, axis), column.astype(total.dtype), 0)
    return total, without(free, j, axis), order.at[t].set(j.astype(jnp.int32))
