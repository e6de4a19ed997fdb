"""Results of pyDVL as `Values`, and the other way."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsel._results.types import Values


def to_pydvl(values: Values) -> Any:
    """Return values as pyDVL's `ValuationResult`.

    Indices are positions, and names are `values.index`. A count is that of `values`,
    and a variance `m2 / (count - 1)`, so that `stderr` agrees wherever there are two
    samples or more. pyDVL writes 0 for the value of a point without samples, and for
    the variance of one with a single sample; variances that are not known are NaN.
    `error_bound` and `provenance` have no place there.

    Args:
        values: One for each point, by `reduce="mean"`.

    Returns:
        An unsorted `pydvl.valuation.result.ValuationResult`, of status `Converged`.

    Raises:
        ImportError: If pyDVL is not installed.
        ValueError: If the values are not means, or their index repeats a label.
    """
    from pydvl.utils.status import Status
    from pydvl.valuation.result import ValuationResult

    if values.reduce != "mean":
        raise ValueError(
            f"values must be means for pyDVL, got reduce={values.reduce!r}: compute "
            "them with reduce='mean'"
        )
    n = len(values)
    count = np.broadcast_to(np.asarray(values.count, np.int64), (n,))
    variances = np.where(count > 1, np.nan, 0.0)
    if values.m2 is not None:
        variances = np.asarray(values.m2, np.float64) / np.maximum(count - 1, 1)
    return ValuationResult(
        values=np.where(count > 0, np.asarray(values.values, np.float64), 0.0),
        variances=variances,
        counts=count.copy(),
        data_names=_names(values.index),
        algorithm=values.method,
        status=Status.Converged,
    )


def from_pydvl(result: Any) -> Values:
    """Return pyDVL's `ValuationResult` as `Values`, in the order of its data indices.

    The inverse of `to_pydvl`, up to rounding to float32 unless JAX has float64 enabled.
    The names become `Values.index`; if there are none, the indices do, unless they are
    0, 1, 2, ... Points without updates have the value NaN: it is not known.

    Args:
        result: A `pydvl.valuation.result.ValuationResult`, in any order.

    Raises:
        TypeError: If it is something else.
    """
    wanted = ("values", "variances", "counts", "indices", "names", "algorithm")
    if missing := [name for name in wanted if not hasattr(result, name)]:
        raise TypeError(
            "result must be pyDVL's ValuationResult, such as valuation.result, got "
            f"{type(result).__name__} without {missing[0]!r}"
        )
    order = np.argsort(result.indices, kind="stable")
    values, variances, counts, indices, names = (
        np.asarray(getattr(result, name))[order] for name in wanted[:5]
    )
    m2 = variances * np.maximum(counts - 1, 0)
    known = (counts > 1).any() and not np.isnan(m2).all()
    same = len(counts) > 0 and (counts == counts[0]).all()
    index = names.tolist()
    if index == indices.astype(str).tolist():
        index = indices.tolist()
    return Values(
        values=jnp.asarray(np.where(counts > 0, values, np.nan), float),
        count=jnp.asarray(counts[0] if same else counts, jnp.int32),
        m2=jnp.asarray(m2, float) if known else None,
        method=result.algorithm,
        index=None if index == list(range(len(index))) else tuple(index),
    )


def _names(index: tuple[Any, ...] | None) -> np.ndarray | None:
    """Return labels as an array that keeps their types."""
    if index is None:
        return None
    if len(set(index)) < len(index):
        raise ValueError(
            "values.index must have each label once for pyDVL, but labels repeat: pass "
            "dataclasses.replace(values, index=None)"
        )
    names = np.array(index)
    if names.ndim != 1 or names.tolist() != list(index):
        names = np.empty(len(index), object)
        names[:] = index
    return names
