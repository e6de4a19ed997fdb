"""Arguments of attributions: samples of a recipe, checked once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._inputs.alignment import align, row_index
from jaxsel._inputs.checks import (
    as_array,
    check_finite,
    check_numeric,
    check_same_length,
    to_float,
)


class Samples(NamedTuple):
    """Checked samples to train on, and targets.

    Attributes:
        x: `[n, ...]`, float32 (float64 in x64 mode) or integers, such as tokens.
        y: Labels, int32, or targets of the type of x, `[n]`.
        x_val: `[m, ...]`.
        y_val: `[m]`.
        row_labels: Labels of the rows of x where it is a table with an index, or None.
    """

    x: jax.Array
    y: jax.Array
    x_val: jax.Array
    y_val: jax.Array
    row_labels: tuple[Any, ...] | None

    def check_finite(self, run: str, *trees: Any) -> None:
        """Refuse results of a run, which the error names, that are not finite."""
        if not all(bool(jnp.isfinite(leaf).all()) for leaf in _floats(trees)):
            raise ValueError(
                f"recipe must train to finite numbers, but {run} has NaN or infinity: "
                f"{self.advice()}"
            )

    def advice(self) -> str:
        """Return advice for a training that diverges."""
        advice = "lower the learning rate"
        if jnp.issubdtype(self.x.dtype, jnp.floating):
            peak = float(jnp.abs(self.x).max())
            advice += f", or scale the columns of x, which reach {peak:.3g}"
        return advice


def check_samples(x: Any, y: Any, x_val: Any, y_val: Any) -> Samples:
    """Check samples and targets, and return them as arrays.

    Raises:
        TypeError: If something is not numeric, or is being traced.
        ValueError: If shapes or labels do not fit, or numbers are not finite.
    """
    index, x_val = row_index(x), align(x, y, x_val, y_val)
    features, features_val = _rows("x", x), _rows("x_val", x_val)
    if features.shape[1:] != features_val.shape[1:]:
        raise ValueError(
            "x and x_val must hold examples of one shape, got "
            f"{features.shape[1:]} and {features_val.shape[1:]}"
        )
    wide = features.dtype == jnp.float64
    labels, labels_val = _targets("y", y, wide), _targets("y_val", y_val, wide)
    check_same_length("x", features, "y", labels)
    check_same_length("x_val", features_val, "y_val", labels_val)
    if labels.dtype != labels_val.dtype:
        raise TypeError(
            "y and y_val must both hold whole numbers, or both others, got "
            f"{np.asarray(y).dtype} and {np.asarray(y_val).dtype}"
        )
    return Samples(features, labels, features_val, labels_val, index)


def _floats(trees: Any) -> list[Any]:
    leaves = jax.tree.leaves(trees)
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _rows(name: str, value: Any) -> jax.Array:
    array = as_array(name, value)
    check_numeric(name, array)
    if array.ndim < 2 or 0 in array.shape:
        raise ValueError(
            f"{name} must have shape [n, ...], one row a sample, and not be empty, got "
            f"{array.shape}"
        )
    check_finite(name, array)
    if array.dtype.kind in "iu":
        return jnp.asarray(array)
    return to_float(array)


def _targets(name: str, value: Any, wide: bool) -> jax.Array:
    array = as_array(name, value)
    check_numeric(name, array)
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape [n], got {array.shape}")
    check_finite(name, array)
    if array.dtype.kind in "biu":
        return jnp.asarray(array, jnp.int32)
    return jnp.asarray(array, jnp.float64 if wide else jnp.float32)
