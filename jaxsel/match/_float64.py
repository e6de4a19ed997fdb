"""Choices that float32 would round away are made again in float64.

Products of candidates that lie far from the origin, or in tight clusters, or whose
columns differ in scale, agree in all of float32's digits. Every chooser computes in
float32 first, bounds from its result what rounding may have changed, and, if that
matters, calls itself once more with float64 enabled.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import finfo, tree_map
from jaxsel._inputs.checks import as_array
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel.gradients import Dense, Factored, Oracle, Projected, Streamed

from ._resident import Resident

_T = TypeVar("_T")
# Oracles whose arrays can be widened: those of networks compute in their own type.
_CLOSED = (Dense, Factored, Projected)


def repeats(is_rounded: bool, oracle: Any) -> bool:
    """Decide whether to choose again in float64; warn where that is impossible.

    Args:
        is_rounded: Whether rounding may have changed the choice.
        oracle: The candidates that it was made among.
    """
    if not is_rounded or oracle.dtype == np.float64:
        return False
    if can_repeat(oracle):
        return True
    doubt(
        f"candidates are so much alike that products in {oracle.dtype} round their "
        "differences away, and rounding decides among them: subtract what they have in "
        "common, pass an array, or enable float64 (jax.enable_x64)"
    )
    return False


def can_repeat(oracle: Any) -> bool:
    """Tell whether candidates have a narrower type than float64, and can be widened."""
    part = oracle.oracle if isinstance(oracle, Resident) else oracle
    if isinstance(part, Streamed):
        part = part.load(np.zeros(1, np.int64))
    return part.dtype != np.float64 and isinstance(part, _CLOSED)


def widened(value: Any) -> Any:
    """Return candidates or a target as float64: call it with float64 enabled.

    Arrays of the caller keep digits that float32 has not; arrays of oracles, and those
    on devices, are converted where they are.
    """
    if isinstance(value, Resident):
        return Resident(widened(value.oracle), value.mesh, value.places)
    if isinstance(value, Streamed):
        load = value.load
        return Streamed(
            lambda rows: widened(load(rows)),
            value.n,
            chunk_size=value.chunk_size,
            progress=value.progress,
        )
    if isinstance(value, (Oracle, jax.Array)) or _has_layers(value):
        return tree_map(_wide, value)
    return np.asarray(as_array("candidates", value), np.float64)


def _has_layers(value: Any) -> bool:
    """Tell a gradient of `Factored`, a matrix a layer, from rows in a tuple."""
    return isinstance(value, tuple) and all(
        np.ndim(part) > 1 for part in cast("tuple[Any, ...]", value)
    )


def narrowed(result: _T) -> _T:
    """Return a result of float64 as float32: call it with float64 enabled."""

    def narrow(leaf: Any) -> Any:
        return leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf

    return tree_map(narrow, result)


def _wide(leaf: Any) -> Any:
    is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
    return jnp.asarray(leaf, jnp.float64) if is_float else leaf


def precision_of(candidates: Any) -> float:
    """Return the relative rounding error of the candidates' own numbers."""
    dtype = getattr(candidates, "dtype", np.float64)
    is_narrow = jnp.issubdtype(dtype, jnp.floating) and dtype != np.float64
    return finfo(jnp.float32 if is_narrow else jnp.float64).eps
