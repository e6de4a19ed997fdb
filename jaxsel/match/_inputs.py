"""The input of choosers: candidates, targets and numbers for each candidate."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer

from jaxsel._devices.mesh import is_on, whole
from jaxsel._devices.typed import jit, tree_map
from jaxsel._inputs.alignment import align_columns
from jaxsel._inputs.checks import (
    as_array,
    check_concrete,
    check_numeric,
    check_positive,
)
from jaxsel._inputs.frames import columns_of
from jaxsel.gradients import Dense, Gradient, Oracle, Streamed, dense

from ._resident import Resident
from ._usable import check_lengths

Candidates = Oracle | npt.ArrayLike | jax.Array
"""An oracle of n gradients, or an array of them, `[n, p]`."""


def in_columns(candidates: Any, target: Any) -> Any:
    """Return the target with the columns of the candidates' data frame, by name.

    Args:
        candidates: A table, or anything else, which has no column names.
        target: A table, a pandas Series with a number for each column, or anything
            else, which stays as it is.

    Raises:
        ValueError: If tables have other columns.
    """
    if isinstance(target, (np.ndarray, jax.Array, Oracle)):
        return target
    columns = columns_of(candidates)
    if columns is None or not hasattr(type(target), "iloc") or np.ndim(target) != 1:
        return align_columns(candidates, target, names=("candidates", "target"))
    labels = list(target.index)
    return target.loc[columns] if {*labels} == {*columns} else target


def as_oracle(
    name: str,
    candidates: Candidates,
    mesh: jax.sharding.Mesh | None = None,
    *,
    hint: str = "; or pass an oracle of jaxsel.gradients",
) -> Any:
    """Return an oracle, wrapping an array.

    Candidates that are spread over the mesh stay there, and are `Resident`. Those that
    are spread over other processes come to every process whole.

    Raises:
        TypeError: If it is neither, or is being traced.
        ValueError: If an array has a wrong shape, or is not finite.
    """
    oracle: Any = candidates
    if isinstance(oracle, Resident):
        return oracle
    if not isinstance(candidates, Oracle):
        try:
            oracle = dense(whole_unless(candidates, mesh))
        except (TypeError, ValueError) as error:
            if name == "target" and np.ndim(candidates) == 1:
                raise ValueError(
                    "target must be the hard samples' gradients, of shape [m, p] or an "
                    f"oracle, got {np.shape(candidates)}: pass their mean as "
                    "target[None], or to omp"
                ) from None
            text = str(error).replace("gradients", name, 1)
            # JAX's errors are of these types too, but not made of a text.
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(text + hint) from None
    leaves = jax.tree.leaves(oracle)
    for leaf in leaves:
        check_concrete(name, leaf)
    if mesh is not None and any(is_on(leaf, mesh) for leaf in leaves):
        return Resident.of(oracle, mesh)
    if all(getattr(leaf, "is_fully_addressable", True) for leaf in leaves):
        return oracle
    return tree_map(lambda leaf: jnp.asarray(whole(leaf)), oracle)


def is_elsewhere(value: Any) -> bool:
    """Return whether an array is spread over processes."""
    if isinstance(value, Tracer):
        return False
    return not getattr(value, "is_fully_addressable", True)


def whole_unless(value: Any, mesh: jax.sharding.Mesh | None) -> Any:
    """Gather an array spread over processes to the host, unless it is on the mesh."""
    if is_on(value, mesh) or not is_elsewhere(value):
        return value
    return whole(value)


def check_penalty(
    penalty: npt.ArrayLike | jax.Array | None,
    penalty_l2: float,
    n: int,
    *,
    m: int | None = None,
) -> tuple[np.ndarray, float]:
    """Return ψ, `[n]`, or D, `[m, n]`, as float64, and its weight; zeros without one.

    Args:
        penalty: As in `omp`.
        penalty_l2: As in `omp`.
        n: How many candidates there are.
        m: How many rows a matrix must have; any number if None.
    """
    penalty_l2 = check_positive("penalty_l2", penalty_l2, zero=True)
    if penalty is None:
        return np.zeros(n), penalty_l2
    raw = as_array("penalty", penalty)
    check_numeric("penalty", raw)
    psi = np.asarray(raw, np.float64)
    fits = psi.shape == (n,) or (
        psi.ndim == 2 and psi.shape == (m or len(psi), n) and len(psi)
    )
    if not fits:
        rows = "m" if m is None else m
        raise ValueError(
            f"penalty must have shape {(n,)}, one for each candidate, or [{rows}, {n}],"
            f" a matrix of distances, got {psi.shape}"
        )
    if not (np.isfinite(psi).all() and (psi >= 0).all()):
        bad = tuple(np.argwhere(~(np.isfinite(psi) & (psi >= 0)))[0].tolist())
        place = bad[0] if len(bad) == 1 else bad
        raise ValueError(
            f"penalty must be finite and not negative, got {psi[bad]} at {place}"
        )
    return psi, penalty_l2


def penalty_diagonal(
    penalty: npt.ArrayLike | jax.Array | None, penalty_l2: float, n: int
) -> np.ndarray:
    """Return `penalty_l2 · ψ²`, `[n]`; a matrix is refused."""
    psi, penalty_l2 = check_penalty(penalty, penalty_l2, n)
    if psi.ndim > 1:
        raise ValueError(
            f"penalty must have shape {(n,)}, one for each candidate, got {psi.shape}"
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
    return tree_map(lambda leaf: leaf[t], targets)


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
    part = part.oracle if isinstance(part, Resident) else part
    if isinstance(
        part, Dense
    ):  # without tracing, which takes longer than a small match
        form: Any = jax.ShapeDtypeStruct(part.gradients.shape[1:], part.dtype)
    else:
        form = jax.eval_shape(_mean, part)
    if _is_listed(target) and isinstance(form, jax.ShapeDtypeStruct):
        target = as_array("target", target)
    got = tree_map(lambda leaf: jnp.asarray(whole(leaf)), target)
    wanted_shapes = [leaf.shape for leaf in jax.tree.leaves(form)]
    shapes = [leaf.shape for leaf in jax.tree.leaves(got)]
    counts = {shape[:1] for shape in shapes}
    if jax.tree.structure(got) == jax.tree.structure(form):
        if any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(got)):
            raise TypeError("target must be real, but has complex numbers")
        # Whole numbers would overflow where they are squared. Strict promotion would
        # refuse float64 beside float32.
        with jax.numpy_dtype_promotion("standard"):
            dtype = jnp.promote_types(part.dtype, jnp.float32)
        got = tree_map(lambda leaf: leaf.astype(dtype), got)
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


@jit()
def _all_finite(tree: Any) -> jax.Array:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()
