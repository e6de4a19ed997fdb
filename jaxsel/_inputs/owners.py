"""Owners of training points: their labels as codes."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np


class Owners(NamedTuple):
    """Owners by first appearance.

    Attributes:
        codes: Number of the owner of each point, `[n]` int32.
        names: Their labels.
    """

    codes: np.ndarray
    names: tuple[Any, ...]


def check_owners(owners: Any, n: int) -> Owners:
    """Return the owners of n points, numbered by first appearance.

    Raises:
        TypeError: If a label cannot be compared with others.
        ValueError: If there is not one label for each point, or one is missing.
    """
    if isinstance(owners, Owners):
        labels = None
        shape = owners.codes.shape
    else:
        labels = np.asarray(owners)
        shape = labels.shape
    if shape != (n,):
        raise ValueError(
            f"owners must have one label for each of the {n} points, shape ({n},), got "
            f"shape {shape}"
        )
    if labels is None:
        return owners
    names: dict[Any, int] = {}
    codes = np.empty(n, np.int32)
    for i, label in enumerate(labels.tolist()):
        if label is None or label != label:
            raise ValueError(f"owners must all be named, got {label} at position {i}")
        try:
            codes[i] = names.setdefault(label, len(names))
        except TypeError as error:
            raise TypeError(
                f"owners must be labels such as numbers or text, got {label!r} at "
                f"position {i}"
            ) from error
    return Owners(codes, tuple(names))


def sums(values: Any, owners: Any) -> Any:
    """Return `Values` of owners: sums over the last axis; see `Values.by_owner`."""
    if values.reduce == "max":
        raise ValueError(
            "by_owner needs values that add up, but these are maxima over validation "
            "points (reduce='max')"
        )
    codes, names = check_owners(owners, len(values))

    def total(array: Any) -> Any:
        if array is None:
            return None
        rows = np.asarray(array)
        totals = np.zeros((*rows.shape[:-1], len(names)))
        for code in range(len(names)):
            totals[..., code] = rows[..., codes == code].sum(-1, dtype=np.float64)
        return jnp.asarray(totals, array.dtype)

    count = np.asarray(values.count)
    if count.ndim:
        count = np.array([count[codes == code].min() for code in range(len(names))])
    return dataclasses.replace(
        values,
        values=total(values.values),
        count=jnp.asarray(count),
        m2=None,
        error_bound=total(values.error_bound),
        method=f"{values.method}.by_owner({len(names)})",
        index=names,
    )
