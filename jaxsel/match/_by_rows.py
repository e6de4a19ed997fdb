"""Pursuit among rows in memory by a compiled operation, in float64 on a CPU.

It does what `pursue` does on the same rows in float64, whatever the type of the rows:
each step bounds all correlations from rows of bytes, and computes in full only those
that may be the best. No program is compiled for it, and no match begins in float32.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from jaxsel import _native
from jaxsel._inputs.checks import widen
from jaxsel.gradients import Gradient, Oracle

from ._pursuit import FLOOR
from ._types import OVERFLOW, Match

# Numbers in all rows: beyond these, products of eight columns at a time cost less.
_MOST = 16_000_000


def applies(
    candidates: Any,
    target: Any,
    score: str,
    penalty: Any,
    mesh: jax.sharding.Mesh | None,
) -> bool:
    """Decide whether the compiled operation takes these candidates and target."""
    if mesh is not None or score == "ols" or np.ndim(penalty) > 1:
        return False
    if isinstance(candidates, Oracle):
        candidates = candidates.rows_held()
    if isinstance(candidates, Tracer) or isinstance(target, Tracer):
        return False
    try:
        shape = np.shape(candidates)
        single = np.ndim(target) == 1
    except (TypeError, ValueError):
        return False
    rows = len(shape) == 2 and single and 0 < math.prod(shape) <= _MOST
    return rows and jax.default_backend() == "cpu" and _native.available()


def by_rows(
    oracle: Oracle,
    target: Gradient,
    *,
    size: int,
    l2: float,
    extra: np.ndarray,
    valid: np.ndarray,
    tol: float,
    widest: Any,
    positive: bool,
    score: str,
    **_: Any,
) -> Match:
    """Match rows: `pursue` of one target, for candidates to which this `applies`.

    Its status is `OVERFLOW`, with nothing chosen, if a squared length does not fit the
    result's type.

    Args:
        oracle: The candidates.
        target: The gradient to match, `[p]`.
        widest: The result's type, where the rows are float64; else it is float32.
        size: How many to choose at most.
        l2: Weight of `‖w‖²`.
        extra: Ridge added to `l2` for each candidate, `[n]`.
        valid: Which candidates may be chosen, `[n]`.
        tol: Stop at a relative error of this.
        positive: Whether weights must not be negative.
        score: "omp" or "nomp".
    """
    rows = oracle.rows_held()
    if rows is None:
        raise TypeError("the oracle holds no rows")
    pursued = _native.pursue(
        np.asarray(widen(rows)),
        np.asarray(target, np.float64),
        l2 + extra,
        valid,
        budget=size,
        floor=max(tol**2, FLOOR * np.finfo(np.float64).eps),
        positive=positive,
        by_length=score == "nomp",
    )
    kept = np.flatnonzero(pursued.weights)
    indices, weights = np.zeros(size, np.int32), np.zeros(size)
    indices[: len(kept)] = pursued.indices[kept]
    weights[: len(kept)] = pursued.weights[kept]
    dtype = widest if rows.dtype == np.float64 else np.float32
    least, most = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
    fits = pursued.norm == 0 or least <= pursued.norm <= most
    fits &= pursued.longest <= most
    with np.errstate(over="ignore"):
        arrays: dict[str, Any] = {
            "indices": indices,
            "weights": weights.astype(dtype),
            "n_valid": np.int32(len(kept)),
            "objective": pursued.objective.astype(dtype),
            "target_norm": np.asarray(pursued.norm, dtype),
            "steps": np.int32(pursued.steps),
            "status": np.int32(pursued.status if fits else OVERFLOW),
            "dropped": np.int32(pursued.steps - len(kept)),
            "rounded": np.bool_(pursued.rounded),
        }
    return Match(**jax.device_put(arrays))
