"""Arrays, tensors and objects of other libraries as NumPy arrays.

Types are known by their attributes, so that no other library need be installed.
"""

from __future__ import annotations

import decimal
import math
import numbers
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .frames import frame_array, vectors, without_label

_MOST_DENSE = 1 << 32  # bytes that a sparse matrix may take as an array


def foreign_array(name: str, value: Any) -> np.ndarray | jax.Array:
    """Convert lists, tensors, tables and sparse matrices to a plain array.

    Sparse matrices become dense, and objects that are all numbers become numbers. Other
    objects, such as labels, stay objects.

    Raises:
        TypeError: If it is no array, or its rows have different lengths.
        ValueError: If it has masked entries, or is sparse and too large to be dense.
    """
    if np.ma.is_masked(value):
        raise ValueError(
            f"{name} has {np.ma.count_masked(value)} masked entries, whose hidden "
            "numbers would count as data: fill them (.filled) or leave their rows out"
        )
    if isinstance(value, np.ndarray):
        return _typed(name, np.asarray(value))
    kind = type(value)  # an object's own attributes may be its columns
    if hasattr(kind, "as_features"):
        raise TypeError(
            f"{name} must be an array, got a Dataset: pass its y for labels, and for "
            "samples train.as_features(), or val.as_features(fit_on=train)"
        )
    if isinstance(value, list | tuple):
        return _from_sequence(name, value)
    try:
        if hasattr(kind, "toarray") or hasattr(kind, "todense"):
            return _dense(name, value)
        if hasattr(kind, "detach") and hasattr(kind, "cpu"):
            return _from_tensor(name, value)
        if hasattr(kind, "collect") and not hasattr(kind, "__array__"):
            raise TypeError(f"its rows are not in memory: pass {name}.collect()")
        if hasattr(kind, "column_names") and not hasattr(kind, "columns"):
            raise TypeError(f"pass the column that holds {name}")
        if (table := frame_array(value)) is not None:
            return table
        if hasattr(kind, "__cuda_array_interface__") and hasattr(kind, "get"):
            value = value.get()  # CuPy refuses implicit copies to the host
        array = np.asarray(value)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        if str(error).startswith(f"{name} "):
            raise
        text = " ".join(str(error).split())
        raise TypeError(
            f"{name} must be an array, got a {kind.__name__}: {text}"
        ) from error
    return _typed(name, array)


def _from_sequence(name: str, items: Sequence[Any]) -> np.ndarray:
    """Return a list of numbers, rows, tensors or sparse rows as an array."""
    if any(
        hasattr(kind, "detach")
        or hasattr(kind, "todense")
        or issubclass(kind, np.ma.MaskedArray)
        for kind in {type(item) for item in items}
    ):
        items = [np.asarray(foreign_array(name, item)) for item in items]
    try:
        array = np.asarray(items)
    except ValueError as error:
        raise TypeError(
            f"{name} must be an array, got ragged nested lists{_first_odd(items)}"
        ) from error
    return _typed(name, array)


def _first_odd(rows: Sequence[Any]) -> str:
    """Name the first row that is not as long as row 0."""
    lengths = [len(row) if hasattr(row, "__len__") else 1 for row in rows]
    for i, length in enumerate(lengths):
        if length != lengths[0]:
            return f": row {i} has length {length}, and row 0 length {lengths[0]}"
    return ""


def _typed(name: str, array: np.ndarray) -> np.ndarray:
    """Return objects that are all numbers in NumPy's type for them."""
    if array.dtype.kind == "T":  # NumPy's strings of any length
        return array.astype(object)
    if array.dtype != object:
        return array
    if array.ndim == 0:
        raise TypeError(
            f"{name} must be an array, got a {type(array.item()).__name__}: pass a "
            "NumPy array, or a list of rows"
        )
    items = array.reshape(-1).tolist()
    if not items or not all(isinstance(item, numbers.Real) for item in items):
        return array
    typed = np.array(items)
    if typed.dtype.kind not in "biuf" or np.isnan(typed).any():
        return array
    if typed.dtype.kind == "f" and any(
        isinstance(item, numbers.Integral) and int(value) != int(item)
        for item, value in zip(items, typed.tolist(), strict=True)
    ):  # whole numbers that float64 would merge
        return array
    return typed.reshape(array.shape)


def feature_numbers(name: str, objects: np.ndarray) -> np.ndarray | None:
    """Return features that were read as objects as numbers, NaN where one is missing.

    Args:
        name: Names the features in errors.
        objects: Numbers of any shape, or arrays or lists of one length, `[n]`.

    Returns:
        The numbers; None if there are other objects.

    Raises:
        ValueError: If lengths differ.
    """
    if objects.ndim == 1 and (rows := vectors(objects, name)) is not None:
        return rows
    flat = objects.reshape(-1).copy()
    flat[without_label(flat)] = math.nan
    if not all(isinstance(value, numbers.Real | decimal.Decimal) for value in flat):
        return None
    return flat.astype(np.float64).reshape(objects.shape)


def _dense(name: str, sparse: Any) -> np.ndarray | jax.Array:
    """Return the entries of a sparse matrix, unless they need too much memory."""
    _check_size(name, math.prod(sparse.shape) * sparse.dtype.itemsize)
    if hasattr(sparse, "toarray"):
        return sparse.toarray()
    return sparse.todense()  # jax.experimental.sparse, pydata/sparse


def _from_tensor(name: str, tensor: Any) -> np.ndarray:
    """Return a tensor of PyTorch as an array: on the host, dense, without gradient."""
    tensor = tensor.detach().cpu()
    if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
        _check_size(name, tensor.numel() * tensor.element_size())
        tensor = tensor.to_dense()
    if getattr(tensor, "is_quantized", False):
        tensor = tensor.dequantize()
    try:
        return np.asarray(tensor)
    except TypeError:  # bfloat16 and float8, which NumPy lacks
        return np.asarray(tensor.float())


def _check_size(name: str, size: int) -> None:
    if size > _MOST_DENSE:
        raise ValueError(
            f"{name} is sparse, and would take {size / 1e9:.1f} GB as an array, which "
            "distances need: reduce it to a few hundred columns first, as "
            "sklearn.decomposition.TruncatedSVD does"
        )
