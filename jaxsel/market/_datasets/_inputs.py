"""Checks of the arguments of `value_datasets`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import (
    as_array,
    check_finite,
    check_numeric,
    check_positive,
)

from ._purchase import Terms

_SKEW = 1e-4  # relative difference across the diagonal that float32 products may have


def check_vectors(vectors: Any, target: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors `[n, d]` and targets `[t, d]` as checked float64 rows."""
    rows, goals = (
        np.asarray(as_array(name, array))
        for name, array in (("vectors", vectors), ("target", target))
    )
    check_numeric("vectors", rows)
    check_numeric("target", goals)
    if rows.ndim not in (2, 3) or 0 in rows.shape:
        raise ValueError(
            "vectors must have shape [n, d], one row an owner, or [n, c, d], none of "
            f"them 0, got {rows.shape}"
        )
    inner = rows.shape[1:]
    if goals.shape[-len(inner) :] != inner or goals.ndim > rows.ndim or not goals.size:
        shown = ", ".join(map(str, inner))
        raise ValueError(
            f"target must have shape ({shown}), as an owner's vector, or (t, {shown}), "
            f"got {goals.shape}"
        )
    check_finite("vectors", rows)
    check_finite("target", goals[None] if goals.ndim < rows.ndim else goals)
    flat = rows.reshape(len(rows), -1).astype(np.float64)
    goals = goals.reshape(-1, flat.shape[1]).astype(np.float64)
    for name, array in (("vectors", flat), ("target", goals.mean(axis=0)[None])):
        lengths = np.einsum("nd,nd->n", array, array)
        if not np.isfinite(lengths).all() or not lengths.any():
            which = "must not all be zero" if name == "vectors" else "must not be zero"
            raise ValueError(
                f"{name} {which}, and squared lengths must lie within float64, got "
                f"lengths up to {np.abs(array).max():g}"
            )
    return flat, goals


def in_curvature(
    curvature: Any, flat: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors and targets in coordinates in which the curvature is 1."""
    if curvature is None:
        return flat, targets
    matrix, d = np.asarray(as_array("curvature", curvature)), flat.shape[1]
    check_numeric("curvature", matrix)
    if matrix.shape != (d, d):
        raise ValueError(f"curvature must have shape ({d}, {d}), got {matrix.shape}")
    check_finite("curvature", matrix)
    matrix = matrix.astype(np.float64)
    skew = np.abs(matrix - matrix.T).max()
    if skew > _SKEW * np.abs(matrix).max():
        raise ValueError(f"curvature must be symmetric, got entries {skew:g} apart")
    try:
        factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        least = np.linalg.eigvalsh(matrix)[0]
        raise ValueError(
            f"curvature must be positive definite, got the least eigenvalue {least:g}: "
            "add a multiple of the identity"
        ) from None
    both = np.linalg.solve(factor, np.concatenate([flat, targets]).T).T
    return both[: len(flat)], both[len(flat) :]


def check_names(owners: Sequence[Hashable] | None, n: int) -> tuple[Any, ...]:
    """Return n different names; positions if None."""
    if owners is None:
        return tuple(range(n))
    names = tuple(owners)
    if len(names) != n:
        raise ValueError(f"owners must have {n} names, one a vector, got {len(names)}")
    if len(set(names)) < n:
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"owners must have different names, got {twice!r} twice")
    return names


def per_owner(name: str, values: npt.ArrayLike | None, n: int) -> np.ndarray:
    """Return one finite number of at least 0 for each owner; 1 each if None."""
    if values is None:
        return np.ones(n)
    array = np.asarray(as_array(name, values))
    check_numeric(name, array)
    if array.shape != (n,):
        raise ValueError(
            f"{name} must have shape ({n},), one an owner, got {array.shape}"
        )
    check_finite(name, array)
    array = array.astype(np.float64)
    if (array < 0).any():
        first = int(np.argmax(array < 0))
        raise ValueError(f"{name} must be 0 or more, got {array[first]:g} at {first}")
    return array


def check_counts(counts: npt.ArrayLike | None, names: Sequence[Any]) -> np.ndarray:
    """Return the number of samples of each owner; 1 each if None."""
    sizes = per_owner("counts", counts, len(names))
    if (sizes == 0).any():
        name = names[int(np.argmax(sizes == 0))]
        raise ValueError(f"counts must be above 0, got 0 of owner {name}")
    return sizes


def check_terms(
    prices: npt.ArrayLike | None, budget: float | None, n: int, tol: float
) -> Terms:
    """Return prices and budget: the sum of all prices if None."""
    costs = per_owner("prices", prices, n)
    if budget is None:
        return Terms(costs, float(costs.sum()), tol)
    money = check_positive("budget", budget, zero=True)
    if money < costs.min():
        raise ValueError(
            f"budget must pay for the cheapest owner, {costs.min():g}, got {money:g}"
        )
    return Terms(costs, money, tol)
