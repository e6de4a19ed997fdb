"""Diverse candidates: the greedy determinantal choice."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsel._checks import check_count, check_positive, widen
from jaxsel._mesh import AXIS, along, gather, shard
from jaxsel._typed import compiled, epsilon, while_loop
from jaxsel._types import Selection
from jaxsel.gradients import Oracle, Streamed

from ._across import columns, entries, largest, replaced
from ._inputs import Candidates, as_oracle
from ._pursuit import ROUNDING
from ._resident import ALL, SPLIT, Mesh, Resident, laid_out, on_parts
from ._usable import check_products, usable

_State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""Rows of the factor, what is left of the diagonal, the order, how many."""


def log_det(
    candidates: Candidates,
    budget: int,
    *,
    l2: float = 0.5,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> Selection:
    """Choose candidates that span as large a volume as possible.

    Greedy maximisation of `log det(G_S + l2 I)`: each step takes the candidate with the
    largest squared distance from the span of those chosen: the pivots of a Cholesky
    factorisation. If samples have a quality q, pass gradients or features times q.

    Args:
        candidates: An oracle of n gradients, or features or gradients `[n, p]`. Those
            with a NaN are refused in an array; in an oracle they are never chosen.
        budget: How many to choose at most, k.
        l2: Added to the diagonal. With 0, at most as many are chosen as the rank of the
            candidates.
        mesh: Devices to share the candidates among. Those whose arrays are spread over
            these stay there, and no process gets all of them. Must be None for
            candidates in files.
        axis: Which axis of the mesh; its only one, or "data", if None.

    Returns:
        A `Selection` in the order of choice, with weights 1. Costs one column of the
        oracle for each choice, k²n multiply-adds, and memory for k·n numbers, of which
        each device of a mesh has its share.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, a number is out of range, or the squared length
            of a gradient overflows.

    References:
        Chen, Zhang and Zhou, Fast greedy MAP inference for determinantal point process,
        NeurIPS 2018, Algorithm 1.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> features = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 0.9], [0.1, 0.8]])
        >>> selection = jaxsel.log_det(features, 2)
        >>> print(selection.indices)  # the two longest that differ
        [1 2]
    """
    mesh = along(mesh, axis)
    oracle = laid_out(as_oracle("candidates", candidates, mesh), mesh)
    k = min(check_count("budget", budget), len(oracle))
    l2 = check_positive("l2", l2, zero=True)
    if isinstance(oracle, Resident):
        diag, order, count = _across_devices(oracle, l2, k)
    elif isinstance(oracle, Streamed):
        diag = widen(oracle.diag()) + l2
        state = _begin(diag, k)
        for _ in range(k):
            j, fits = _pivot(state, diag)
            if not bool(fits):
                break
            state = _take(state, j, oracle.column(j))
        order, count = state[2:]
    else:
        diag, order, count = _factorise(oracle, l2, budget=k)
    check_products(diag)
    filled = jnp.arange(k) < count
    return Selection(
        indices=jnp.where(filled, order, 0),
        weights=filled.astype(diag.dtype),
        n_valid=count,
        method=f"log_det(budget={budget}, l2={l2:g})",
    ).unpadded()


def _across_devices(
    candidates: Resident, l2: float, budget: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Choose among candidates where they are; every process gets n lengths."""
    mesh, is_one = candidates.mesh, candidates.places >= 0
    found = _factorise_across(
        candidates.oracle, l2, shard(is_one, mesh), budget=budget, mesh=mesh
    )
    diag, order, count = gather(found)
    order = jnp.asarray(candidates.places[order], jnp.int32)
    return jnp.asarray(diag[is_one]), order, jnp.asarray(count)


@compiled(static_argnames=("budget", "mesh"))
def _factorise_across(
    oracle: Oracle, l2: jax.Array | float, valid: jax.Array, *, budget: int, mesh: Mesh
) -> tuple[jax.Array, jax.Array, jax.Array]:
    def own(oracle: Oracle, l2: jax.Array, valid: jax.Array) -> Any:
        return _greedy(oracle, l2, valid, budget, AXIS)

    return on_parts(own, oracle, mesh, l2, valid, out=(SPLIT, ALL, ALL))


@compiled(static_argnames="budget")
def _factorise(
    oracle: Oracle, l2: jax.Array | float, *, budget: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    return _greedy(oracle, l2, True, budget, None)


def _greedy(
    oracle: Oracle,
    l2: jax.Array | float,
    valid: jax.Array | bool,
    budget: int,
    axis: str | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the diagonal, the order of choice, and how many are chosen."""
    diag = widen(oracle.diag()) + l2

    def more(state: _State) -> jax.Array:
        return (state[3] < budget) & _pivot(state, diag, axis)[1]

    def step(state: _State) -> _State:
        j, _ = _pivot(state, diag, axis)
        return _take(state, j, columns(oracle, j[None], axis)[0], axis)

    _, _, order, count = while_loop(more, step, _begin(diag, budget, valid))
    return diag, order, count


def _begin(diag: jax.Array, budget: int, valid: jax.Array | bool = True) -> _State:
    """Return the factor's rows, the remaining diagonal, the order and the count."""
    rows = jnp.zeros((budget, diag.shape[0]), diag.dtype)
    left = jnp.where(usable(diag) & valid, diag, 0)
    return rows, left, jnp.zeros(budget, jnp.int32), jnp.int32(0)


def _pivot(
    state: _State, diag: jax.Array, axis: str | None = None
) -> tuple[jax.Array, jax.Array]:
    """The candidate farthest from the span, and whether it is out of it at all."""
    j, left = largest(state[1], axis)
    (whole,) = entries((diag,), j, axis)
    return j, left > ROUNDING * epsilon(diag.dtype) * whole


def _take(
    state: _State, j: jax.Array, column: jax.Array, axis: str | None = None
) -> _State:
    rows, left, order, t = state
    across, own = entries((rows, left), j, axis)
    row = column.astype(left.dtype) - jnp.matmul(across, rows, precision="highest")
    # On the diagonal the ridge belongs to K, but no candidate is taken twice.
    row = row / jnp.sqrt(own)
    # A candidate with nothing left stays so: the row may be NaN there.
    left = jnp.where(left > 0, jnp.maximum(left - row**2, 0), 0)
    left = replaced(left, j, 0, axis)
    order = order.at[t].set(j.astype(jnp.int32))
    return rows.at[t].set(row), left, order, t + 1
