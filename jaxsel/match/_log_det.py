"""Diverse candidates: the greedy determinantal choice."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsel._checks import check_count, check_positive, widen
from jaxsel._typed import compiled, epsilon, while_loop
from jaxsel._types import Selection
from jaxsel.gradients import Oracle, Streamed

from ._across import largest
from ._inputs import Candidates, as_oracle
from ._pursuit import ROUNDING
from ._usable import check_products, usable

_State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""Rows of the factor, what is left of the diagonal, the order, how many."""


def log_det(candidates: Candidates, budget: int, *, l2: float = 0.5) -> Selection:
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

    Returns:
        A `Selection` in the order of choice, with weights 1. Costs one column of the
        oracle for each choice, k²n multiply-adds, and memory for k·n numbers.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, a number is out of range, or the squared length
            of a gradient overflows.

    References:
        Chen, Zhang and Zhou, Fast greedy MAP inference for determinantal point process,
        NeurIPS 2018, Algorithm 1.
    """
    oracle = as_oracle("candidates", candidates)
    k = min(check_count("budget", budget), len(oracle))
    l2 = check_positive("l2", l2, zero=True)
    if isinstance(oracle, Streamed):
        diag = widen(oracle.diag()) + l2
        state = _begin(diag, k)
        for _ in range(k):
            j, fits = _pivot(state, diag)
            if not bool(fits):
                break
            state = _take(state, j, oracle.column(j))
    else:
        diag, state = _factorise(oracle, l2, budget=k)
    check_products(diag)
    _, _, order, count = state
    filled = jnp.arange(k) < count
    return Selection(
        indices=jnp.where(filled, order, 0),
        weights=filled.astype(diag.dtype),
        n_valid=count,
        method=f"log_det(budget={budget}, l2={l2:g})",
    )


@compiled(static_argnames="budget")
def _factorise(
    oracle: Oracle, l2: jax.Array | float, *, budget: int
) -> tuple[jax.Array, _State]:
    diag = widen(oracle.diag()) + l2

    def more(state: _State) -> jax.Array:
        return (state[3] < budget) & _pivot(state, diag)[1]

    def step(state: _State) -> _State:
        j, _ = _pivot(state, diag)
        return _take(state, j, oracle.column(j))

    return diag, while_loop(more, step, _begin(diag, budget))


def _begin(diag: jax.Array, budget: int) -> _State:
    """Return the factor's rows, the remaining diagonal, the order and the count."""
    rows = jnp.zeros((budget, diag.shape[0]), diag.dtype)
    left = jnp.where(usable(diag), diag, 0)
    return rows, left, jnp.zeros(budget, jnp.int32), jnp.int32(0)


def _pivot(state: _State, diag: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The candidate farthest from the span, and whether it is out of it at all."""
    j, left = largest(state[1], None)
    return j, left > ROUNDING * epsilon(diag.dtype) * diag[j]


def _take(state: _State, j: jax.Array, column: jax.Array) -> _State:
    rows, left, order, t = state
    row = column.astype(left.dtype) - jnp.matmul(rows[:, j], rows, precision="highest")
    # On the diagonal the ridge belongs to K, but no candidate is taken twice.
    row = row / jnp.sqrt(left[j])
    # A candidate with nothing left stays so: the row may be NaN there.
    left = jnp.where(left > 0, jnp.maximum(left - row**2, 0), 0).at[j].set(0)
    order = order.at[t].set(j.astype(jnp.int32))
    return rows.at[t].set(row), left, order, t + 1
