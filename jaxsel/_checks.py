"""Checks of what callers pass in. Each error names the argument and what is allowed."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

if TYPE_CHECKING:
    import numpy.typing as npt


def check_choice(name: str, value: Any, allowed: Sequence[Any]) -> None:
    if value not in allowed:
        options = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {options}, got {value!r}")


def check_count(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return a whole number of at least `minimum`, as an int."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def check_positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return a finite number above zero (or at least zero), as a float."""
    allowed = "zero or more" if zero else "above zero"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number {allowed}, got {value!r}")
    value = float(value)
    if not np.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name} must be finite and {allowed}, got {value}")
    return value


def as_array(name: str, value: Any) -> np.ndarray | jax.Array:
    """Return the value as an array; JAX arrays stay where they are.

    Raises:
        TypeError: If it is being traced, or is ragged.
        ValueError: If it is a masked array with masked entries.
    """
    if isinstance(value, Tracer):
        raise TypeError(
            f"{name} is being traced by jit, vmap or grad, but this function checks "
            "its input on the host: call the pure kernel inside transformations instead"
        )
    if isinstance(value, jax.Array):
        return value
    if np.ma.is_masked(value):
        raise ValueError(
            f"{name} has {np.ma.count_masked(value)} masked entries, whose hidden "
            "numbers would count as data: fill them (.filled) or leave their rows out"
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        raise TypeError(f"{name} must be an array, got ragged nested lists") from error


def check_features(
    name: str, value: npt.ArrayLike | jax.Array
) -> np.ndarray | jax.Array:
    """Return finite numbers of shape `[n, d]`, n and d at least 1."""
    array = as_array(name, value)
    check_numeric(name, array)
    if array.ndim != 2:
        raise ValueError(
            f"{name} must have shape [n, d], one row a sample, got {array.shape}"
            + ("; flatten each sample to a row" if array.ndim > 2 else "")
        )
    if 0 in array.shape:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    check_finite(name, array)
    return array


def check_numeric(name: str, array: np.ndarray | jax.Array) -> None:
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise TypeError(f"{name} must be numeric, got dtype {array.dtype}")
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"{name} must be real, got dtype {array.dtype}")


def check_finite(name: str, array: np.ndarray | jax.Array) -> None:
    """Refuse NaN and infinity, naming the first row that has one."""
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return
    numpy = jnp if isinstance(array, jax.Array) else np
    # The sum is finite if every entry is, unless it overflows: only then look closer.
    with np.errstate(over="ignore", invalid="ignore"):
        wide = array.dtype
        if isinstance(wide, np.dtype):
            wide = np.float32 if wide.itemsize < 4 else wide.newbyteorder("=")
        if bool(numpy.isfinite(array.sum(dtype=wide))):
            return
    rows = numpy.isfinite(array).reshape(len(array), -1).all(axis=1)
    bad = np.flatnonzero(~np.asarray(rows))
    if bad.size:
        raise ValueError(
            f"{name} must be finite, but row {bad[0]} has NaN or infinity "
            f"({bad.size} of {len(array)} rows do)"
        )


def check_same_length(name_a: str, a: Any, name_b: str, b: Any) -> None:
    if len(a) != len(b):
        raise ValueError(
            f"{name_a} and {name_b} must have the same length, got {len(a)} "
            f"and {len(b)}"
        )


def float_type(array: np.ndarray | jax.Array) -> type[np.floating]:
    """Return float32, or float64 where that is what it is and JAX has it enabled."""
    wide = array.dtype == np.float64 and jax.config.read("jax_enable_x64")
    return np.float64 if wide else np.float32


def to_float(array: np.ndarray | jax.Array) -> jax.Array:
    """Return a JAX array of `float_type`."""
    return jnp.asarray(array, float_type(array))


def encode_labels(
    y: npt.ArrayLike | jax.Array,
    y_val: npt.ArrayLike | jax.Array,
    *,
    names: tuple[str, str] = ("y", "y_val"),
    whole: bool = True,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Number the classes of both label arrays together, in sorted order.

    Labels may be integers, booleans, strings, or floats that are whole numbers.

    Args:
        y: Array of shape `[n]`.
        y_val: Array of shape `[m]`, of the same kind.
        names: What errors call them.
        whole: Whether floats must be whole numbers: others look like targets.

    Returns:
        The int32 codes of each, and how many classes there are.
    """
    arrays = []
    for name, value in zip(names, (y, y_val), strict=True):
        array = np.asarray(as_array(name, value))
        if jnp.issubdtype(array.dtype, jnp.floating):
            array = array.astype(np.float64)  # NumPy does not know bfloat16
        if array.ndim != 1:
            raise ValueError(
                f"{name} must be labels of shape [n] or class probabilities of shape "
                f"[n, n_classes], got {array.shape}"
            )
        if np.issubdtype(array.dtype, np.floating):
            check_finite(name, array)
            if whole and np.any(array != np.round(array)):
                first = array[array != np.round(array)][0]
                raise ValueError(
                    f"{name} must hold class labels, got {first}: for numeric targets "
                    "use knn_regression_shapley"
                )
        arrays.append(array)
    kinds = ["text" if a.dtype.kind in "USO" else "number" for a in arrays]
    if kinds[0] != kinds[1]:
        raise TypeError(
            f"{names[0]} and {names[1]} must hold labels of one kind, got "
            f"dtype {arrays[0].dtype} and {arrays[1].dtype}"
        )
    try:
        classes, codes = np.unique(np.concatenate(arrays), return_inverse=True)
    except TypeError as error:
        raise TypeError(
            f"{names[0]} and {names[1]} must hold labels of one comparable type"
        ) from error
    codes = codes.astype(np.int32).reshape(-1)
    return codes[: len(arrays[0])], codes[len(arrays[0]) :], len(classes)
