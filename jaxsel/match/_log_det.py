"""Diverse candidates: the greedy determinantal choice."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import AXIS, along, gather, shard
from jaxsel._devices.typed import finfo, jit, while_loop
from jaxsel._inputs.checks import check_count, check_positive, widen
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel._results.types import Selection
from jaxsel.gradients import Oracle, Streamed

from ._across import columns, entries, largest, replaced
from ._float64 import narrowed, precision_of, repeats, widened
from ._inputs import Candidates, as_oracle
from ._pursuit import ROUNDING
from ._resident import ALL, SPLIT, Mesh, Resident, laid_out, on_parts
from ._usable import check_products, usable

# Pivots below this share of the longest candidate's square, in units of eps, are chosen
# in float64: rounding would move them by more than a thousandth.
_DOUBTFUL = 2.0**14
# A share of a candidate's length that is rounding of its own numbers, in units of eps.
_NOISE = 8


class _State(NamedTuple):
    """A pivoted Cholesky factorisation of G + l2 I after some steps.

    Attributes:
        rows: Of the factor, `[k, n]`.
        remainder: Squared distances from the span of the chosen, without l2, `[n]`: -1
            where there is nothing to choose.
        order: The chosen, `[k]`.
        steps: How many they are.
        least: The smallest remainder, l2 included, with which one was chosen.
    """

    rows: jax.Array
    remainder: jax.Array
    order: jax.Array
    steps: jax.Array
    least: jax.Array


def log_det(
    candidates: Candidates,
    budget: int,
    *,
    l2: float = 0.5,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> Selection:
    """Choose diverse candidates by the greedy determinantal choice.

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
        each device of a mesh has its share; some three times that where a float32 pivot
        has lost its digits, as of columns of unlike scale: then float64 decides. If
        fewer than k can be chosen, a warning says so.

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
    result = _choose(oracle, l2, k, precision_of(candidates))
    diag, order, count, least = result
    check_products(diag)
    may = usable(diag)
    longest = float(jnp.max(jnp.where(may, diag, 0))) + l2
    most = min(k, int(may.sum()))
    doubtful = _DOUBTFUL * finfo(diag.dtype).eps * longest
    if repeats(int(count) < most or float(least) < doubtful, oracle):
        with jax.enable_x64(True):
            wide = laid_out(as_oracle("candidates", widened(candidates), mesh), mesh)
            result = _choose(wide, l2, k, precision_of(candidates))
            _, order, count, _ = narrowed(result)
    if int(count) < most:
        doubt(
            f"log_det chose {int(count)} of {most} candidates, for all others lie in "
            f"the span of these, up to rounding: raise l2, which is {l2:g}"
        )
    filled = jnp.arange(k, dtype=count.dtype) < count
    return Selection(
        indices=jnp.where(filled, order, 0),
        weights=filled.astype(diag.dtype),
        n_valid=count,
        method=f"log_det(budget={budget}, l2={l2:g})",
    ).unpadded()


_Deflated = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""Residual rows, their squared lengths, order of choice, number chosen."""
_Found = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""Squared lengths, order of choice, number chosen, and `least` of `_State`."""


def _choose(oracle: Any, l2: float, k: int, precision: float) -> _Found:
    if isinstance(oracle, Resident):
        return _across_devices(oracle, l2, precision, k)
    rows = None if isinstance(oracle, Streamed) else oracle.rows_held()
    if rows is not None and rows.dtype == np.float64:
        return _deflate(rows, l2, precision, budget=k)
    if not isinstance(oracle, Streamed):
        return _factorise(oracle, l2, precision, budget=k)
    diag = widen(oracle.diag())
    state = _begin(diag, k)
    for _ in range(k):
        j, fits = _pivot(state, diag, l2, precision)
        if not bool(fits):
            break
        state = _take(state, j, oracle.column(j), l2)
    return diag, *state[2:]


@jit(static_argnames="budget")
def _deflate(
    rows: jax.Array, l2: jax.Array | float, precision: float, *, budget: int
) -> _Found:
    """Pivot on remainders of the rows, `[n, p]`, instead of their products.

    Their squares cancel where the factor's do: an offset of 1e9 leaves 7 digits of a
    float64 row, and none of its square. A choice multiplies all rows by
    `(I + x xᵀ / l2)^(-1/2)`, or projects them, if l2 is 0.
    """
    diag = jnp.sum(rows**2, axis=-1)
    noise = jnp.maximum(_NOISE * precision, ROUNDING * finfo(rows.dtype).eps)
    floor = jnp.where(l2 > 0, 0, noise**2 * diag)
    open_ = usable(diag)

    def more(state: _Deflated) -> jax.Array:
        _, remainder, _, count = state
        return (count < budget) & jnp.any(remainder > jnp.where(open_, floor, 0) - l2)

    def step(state: _Deflated) -> _Deflated:
        rows, remainder, order, count = state
        j, square = largest(remainder, None)
        # (I + x xᵀ / l2)^(-1/2) = I − shrink · x xᵀ, with x the row of j.
        shrink = (1 - jnp.sqrt(l2 / (l2 + square))) / jnp.where(square > 0, square, 1)
        alike = jnp.matmul(rows, rows[j], precision="highest")
        rows = rows - shrink * alike[:, None] * rows[j][None]
        remainder = jnp.where(remainder > -jnp.inf, jnp.sum(rows**2, axis=-1), -jnp.inf)
        order = order.at[count].set(j.astype(jnp.int32))
        return rows, remainder.at[j].set(-jnp.inf), order, count + 1

    remainder = jnp.where(open_, diag, -jnp.inf)
    start = rows, remainder, jnp.zeros(budget, jnp.int32), jnp.int32(0)
    _, _, order, count = while_loop(more, step, start)
    return diag, order, count, jnp.zeros((), diag.dtype)


def _across_devices(
    candidates: Resident, l2: float, precision: float, budget: int
) -> _Found:
    """Choose among candidates where they are; every process gets n lengths."""
    mesh, is_one = candidates.mesh, candidates.places >= 0
    result = _factorise_across(
        candidates.oracle,
        (l2, precision),
        shard(is_one, mesh),
        budget=budget,
        mesh=mesh,
    )
    diag, order, count, least = gather(result)
    order = jnp.asarray(candidates.places[order], jnp.int32)
    return jnp.asarray(diag[is_one]), order, jnp.asarray(count), jnp.asarray(least)


@jit(static_argnames=("budget", "mesh"))
def _factorise_across(
    oracle: Oracle,
    numbers: tuple[float, float],
    valid: jax.Array,
    *,
    budget: int,
    mesh: Mesh,
) -> _Found:
    def on_shard(oracle: Oracle, numbers: tuple[Any, Any], valid: jax.Array) -> Any:
        return _greedy(oracle, *numbers, valid, budget, AXIS)

    return on_parts(on_shard, oracle, mesh, numbers, valid, out=(SPLIT, ALL, ALL, ALL))


@jit(static_argnames="budget")
def _factorise(
    oracle: Oracle, l2: jax.Array | float, precision: float, *, budget: int
) -> _Found:
    return _greedy(oracle, l2, precision, True, budget, None)


def _greedy(
    oracle: Oracle,
    l2: jax.Array | float,
    precision: jax.Array | float,
    valid: jax.Array | bool,
    budget: int,
    axis: str | None,
) -> _Found:
    diag = widen(oracle.diag())

    def more(state: _State) -> jax.Array:
        return (state.steps < budget) & _pivot(state, diag, l2, precision, axis)[1]

    def step(state: _State) -> _State:
        j, _ = _pivot(state, diag, l2, precision, axis)
        return _take(state, j, columns(oracle, j[None], axis)[0], l2, axis)

    end = while_loop(more, step, _begin(diag, budget, valid))
    return diag, end.order, end.steps, end.least


def _begin(diag: jax.Array, budget: int, valid: jax.Array | bool = True) -> _State:
    return _State(
        rows=jnp.zeros((budget, diag.shape[0]), diag.dtype),
        remainder=jnp.where(usable(diag) & valid, diag, -jnp.inf),
        order=jnp.zeros(budget, jnp.int32),
        steps=jnp.int32(0),
        least=jnp.asarray(jnp.inf, diag.dtype),
    )


def _pivot(
    state: _State,
    diag: jax.Array,
    l2: jax.Array | float,
    precision: jax.Array | float,
    axis: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return the candidate farthest from the span, and whether it is independent."""
    j, most = largest(state.remainder, axis)
    (whole,) = entries((diag,), j, axis)
    # Rounding of products is linear in eps; that of the candidates' own numbers enters
    # a squared distance squared.
    share = jnp.maximum(ROUNDING * finfo(diag.dtype).eps, (_NOISE * precision) ** 2)
    return j, most + l2 > share.astype(diag.dtype) * (whole + l2)


def _take(
    state: _State,
    j: jax.Array,
    column: jax.Array,
    l2: jax.Array | float,
    axis: str | None = None,
) -> _State:
    rows, remainder, order, t, least = state
    across, square = entries((rows, remainder), j, axis)
    row = column.astype(remainder.dtype)
    row = row - jnp.matmul(across, rows, precision="highest")
    # On the diagonal the ridge belongs to K, but no candidate is taken twice, and it
    # would round the squares of short gradients away: remainders leave it out.
    pivot = square + l2
    row = row / jnp.sqrt(pivot)
    # A candidate that may not be chosen stays so: the row may be NaN there.
    is_open = remainder > -jnp.inf
    remainder = jnp.where(is_open, jnp.maximum(remainder - row**2, 0), -jnp.inf)
    return _State(
        rows=rows.at[t].set(row),
        remainder=replaced(remainder, j, -jnp.inf, axis),
        order=order.at[t].set(j.astype(jnp.int32)),
        steps=t + 1,
        least=jnp.minimum(least, pivot),
    )
