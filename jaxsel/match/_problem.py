"""Constants of a pursuit."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsel._inputs.checks import widen
from jaxsel.gradients import Gradient, Oracle, squared_norm


class Problem(NamedTuple):
    """Constants of a pursuit: all arrays are `[n]`, or scalars.

    Attributes:
        diag: Squared lengths; NaN where a gradient has one, which is never chosen.
        extra: Ridge and penalty, which K's diagonal adds to `diag`.
        corr: Correlations with the target.
        valid: Which candidates may be chosen.
        norm: The target's squared length.
        tol: Stop when the objective is at most `tol² · norm`.
        limit: How many steps at most.
        rows: The gradients, `[n, p]`, where correlations are those with the residual:
            the chosen gradients then stand in place of their columns of G. None where
            they come from these columns.
        target: The gradient to match, `[p]`, if there are rows.
        width: How many numbers a gradient has, p.
        strict: Whether to stop once rounding may matter.
    """

    diag: jax.Array
    extra: jax.Array
    corr: jax.Array
    valid: jax.Array
    norm: jax.Array
    tol: jax.Array
    limit: jax.Array
    width: jax.Array
    strict: jax.Array
    rows: jax.Array | None = None
    target: jax.Array | None = None


def pose(
    oracle: Oracle,
    target: Gradient,
    *,
    l2: jax.typing.ArrayLike,
    extra: jax.typing.ArrayLike = 0.0,
    valid: jax.Array | None = None,
    tol: jax.typing.ArrayLike = 0.0,
    limit: jax.typing.ArrayLike,
    strict: jax.typing.ArrayLike = False,
    held: bool = False,
) -> Problem:
    """Compute the constants of a pursuit: one `diag` and one `corr` of the oracle.

    Args:
        oracle: The n candidates.
        target: The gradient to match.
        l2: Weight of `‖w‖²`.
        extra: Optional `[n]`: added to `l2` for each candidate.
        valid: Optional `[n]`: which candidates may be chosen.
        tol: Stop at a relative error of this.
        limit: How many steps at most.
        strict: Whether to stop once rounding may matter.
        held: Whether to correlate the rows that the oracle holds with the residual.
    """
    diag = widen(oracle.diag())
    dtype = diag.dtype
    return Problem(
        diag=diag,
        extra=jnp.broadcast_to(jnp.asarray(l2, dtype) + extra, diag.shape).astype(
            dtype
        ),
        corr=oracle.corr(target).astype(dtype),
        valid=jnp.ones(diag.shape, bool) if valid is None else valid,
        norm=squared_norm(target).astype(dtype),
        tol=jnp.asarray(tol, dtype),
        limit=jnp.asarray(limit, jnp.int32),
        width=jnp.asarray(sum(leaf.size for leaf in jax.tree.leaves(target)), dtype),
        strict=jnp.asarray(strict),
        rows=oracle.rows_held() if held else None,
        target=target.astype(dtype) if held else None,
    )
