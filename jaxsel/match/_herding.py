"""Herding: samples whose plain mean stays close to the target's."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsel._checks import check_count
from jaxsel._typed import compiled, fori_loop
from jaxsel._types import Selection
from jaxsel.gradients import Gradient, Oracle, Streamed

from ._across import largest
from ._inputs import Candidates, as_oracle, check_target
from ._usable import check_products, correlations, usable

_State = tuple[jax.Array, jax.Array, jax.Array]
"""The sum of the chosen columns, who is free, and the order of choice."""


def herding(candidates: Candidates, target: Gradient, budget: int) -> Selection:
    """Choose candidates whose unweighted mean follows a target.

    Each step takes the candidate with the largest inner product with
    `(t + 1) b − (sum of those chosen)`; none is taken twice. Unlike `omp`, it gives
    each sample the same weight, 1/k, for training loops without weights.

    Args:
        candidates: An oracle of n gradients, or features or gradients `[n, p]`. Those
            with a NaN are refused in an array; in an oracle they are never chosen.
        target: The mean to follow, in the oracle's form.
        budget: How many to choose, k, at most n.

    Returns:
        A `Selection` in the order of choice, with weights 1/k. If fewer than k can be
        chosen, it has all of these. Costs one column of the oracle for each choice, and
        O(n) memory.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, or products of gradients overflow.

    References:
        Welling, Herding dynamical weights to learn, ICML 2009. Chen, Welling and Smola,
        Super-samples from kernel herding, UAI 2010 (with replacement there).
    """
    oracle = as_oracle("candidates", candidates)
    k = min(check_count("budget", budget), len(oracle))
    target, several = check_target(oracle, target)
    if several:
        raise ValueError("target must be a single gradient for herding")
    if isinstance(oracle, Streamed):
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
    count = jnp.minimum(jnp.sum(may), k).astype(jnp.int32)
    filled = jnp.arange(k) < count
    return Selection(
        indices=jnp.where(filled, state[2], 0),
        weights=jnp.where(filled, 1 / count.astype(corr.dtype), 0),
        n_valid=count,
        method=f"herding(budget={budget})",
    )


@compiled(static_argnames="budget")
def _herd(oracle: Oracle, target: Gradient, *, budget: int) -> tuple[jax.Array, _State]:
    corr = correlations(oracle, target)

    def step(t: jax.Array, state: _State) -> _State:
        j = _best(corr, state, t)
        return _taken(state, t, j, oracle.column(j))

    return corr, fori_loop(0, budget, step, _begin(corr, budget))


def _begin(corr: jax.Array, budget: int) -> _State:
    return jnp.zeros_like(corr), usable(corr), jnp.zeros(budget, jnp.int32)


def _best(corr: jax.Array, state: _State, t: jax.Array | int) -> jax.Array:
    total, free, _ = state
    return largest(jnp.where(free, (t + 1) * corr - total, -jnp.inf), None)[0]


def _taken(
    state: _State, t: jax.Array | int, j: jax.Array, column: jax.Array
) -> _State:
    total, free, order = state
    # With nobody free, j is anybody, and its column may be NaN.
    total = total + jnp.where(jnp.any(free), column.astype(total.dtype), 0)
    return total, free.at[j].set(False), order.at[t].set(j.astype(jnp.int32))
