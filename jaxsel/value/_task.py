"""Task of a KNN value: points with labels, and the gain of each neighbour.

A gain is 1 where two labels match. With class probabilities on either side (teacher
labels, annotator votes) it is the probability that they do, a real number.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import finfo
from jaxsel._inputs.alignment import Pair, check_pair
from jaxsel._inputs.checks import (
    check_choice,
    check_count,
    check_finite,
    check_numeric,
    check_same_length,
)
from jaxsel._inputs.labels import as_labels, check_shared_labels, encode_labels
from jaxsel._inputs.usual_mistakes import doubt_classes, doubt_neighbours, doubt_same
from jaxsel.neighbors import METRICS, Metric

# How far the sum of a row of class probabilities may be from 1: what is left by
# rounding to three decimals, and by types of few digits.
_DECIMALS, _ROUNDINGS = 2e-3, 4


class Task(NamedTuple):
    """Checked training and validation points, as `accumulate` takes them.

    Attributes:
        x: Training features, `[n, d]`.
        train: Pytree of arrays `[n, ...]`: class numbers, class probabilities, or
            targets.
        x_val: Validation features, `[m, d]`.
        query: Pytree of NumPy arrays `[m, ...]`: likewise, of the validation points.
        row_labels: The index of x, if it is a table with one.
    """

    x: np.ndarray | jax.Array
    train: Any
    x_val: np.ndarray | jax.Array
    query: Any
    row_labels: tuple[Any, ...] | None = None


class Classes(NamedTuple):
    """Number of classes, and their gains, as the kernels take them.

    Attributes:
        gains: Kernel from train and one entry of query to gains, `[n]`.
        n_classes: How many classes there are.
        binary: Whether all gains are 0 or 1.
    """

    gains: Callable[[jax.Array, jax.Array], jax.Array]
    n_classes: int
    binary: bool


def check_task(
    x: Any,
    y: Any,
    x_val: Any,
    y_val: Any,
    *,
    metric: Metric,
    n_classes: int | None = None,
    k: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
) -> tuple[Task, Classes]:
    """Check points and labels, and warn of usual mistakes.

    Args:
        x: Training features, `[n, d]`.
        y: Labels `[n]`, or class probabilities.
        x_val: Validation features, `[m, d]`.
        y_val: Their labels, or class probabilities.
        metric: Of the distances.
        n_classes: Number of classes; the number that y and y_val have if None.
        k: Number of neighbours, if there is one.
        mesh: Devices over which an x that is spread stays there.
    """
    check_choice("metric", metric, METRICS)
    pair = check_pair(x, y, x_val, y_val, mesh=mesh)
    train, query, classes = _check_labels(pair, y, y_val, n_classes)
    doubt_same(pair.x, train, pair.x_val, query)
    if k is not None:
        doubt_neighbours(k, len(pair.x))
    return Task(pair.x, train, pair.x_val, query, pair.row_labels), classes


def _check_labels(
    pair: Pair, y: Any, y_val: Any, n_classes: int | None
) -> tuple[np.ndarray, np.ndarray, Classes]:
    """Check labels or class probabilities, and choose how they become gains."""
    y, y_val = as_labels("y", y), as_labels("y_val", y_val)
    check_same_length("x", pair.x, "y", y)
    check_same_length("x_val", pair.x_val, "y_val", y_val)
    if n_classes is not None:
        check_count("n_classes", n_classes)
    for name, array in (("y", y), ("y_val", y_val)):
        if array.ndim == 2 and array.shape[1] == 1:
            raise ValueError(
                f"{name} must be labels of shape [n] or class probabilities of shape "
                f"[n, n_classes], got {array.shape}: for labels pass np.ravel({name})"
            )
    soft, soft_val = y.ndim == 2, y_val.ndim == 2
    if not soft and not soft_val:
        train, query, count = encode_labels(y, y_val)
        check_shared_labels(y, y_val, train, query)
        doubt_classes(np.asarray(y), count)
        if n_classes is not None and n_classes < count:
            raise ValueError(
                f"n_classes must be at least {count}, the number of classes in y and "
                f"y_val, got {n_classes}"
            )
        return train, query, Classes(match_gains, n_classes or count, binary=True)

    width = (y if soft else y_val).shape[1]
    if n_classes is not None and n_classes < width:
        raise ValueError(
            f"n_classes must be at least {width}, the number of columns of class "
            f"probabilities, got {n_classes}"
        )
    if soft and soft_val and y_val.shape[1] != width:
        raise ValueError(
            "y and y_val must have the same number of columns, one a class, got "
            f"{width} and {y_val.shape[1]}"
        )
    y = _check_side("y", y, width)
    y_val = _check_side("y_val", y_val, width)
    gains = _soft_gains if soft and soft_val else _column if soft else _entry
    return y, y_val, Classes(gains, n_classes or width, binary=False)


def match_gains(train: jax.Array, query: jax.Array) -> jax.Array:
    """Return 1 where a label equals the query's, else 0: `[n]`, scalar -> `[n]`."""
    return (train == query).astype(jnp.float32)


def _soft_gains(train: jax.Array, query: jax.Array) -> jax.Array:
    return jnp.matmul(train, query, precision="highest")


def _column(train: jax.Array, query: jax.Array) -> jax.Array:
    return train[:, query]


def _entry(train: jax.Array, query: jax.Array) -> jax.Array:
    return query[train]


def _check_side(name: str, array: np.ndarray | jax.Array, width: int) -> np.ndarray:
    if array.ndim == 2 and array.dtype.kind in "USO":
        raise ValueError(
            f"{name} must hold one label of each sample, but row 0 has "
            f"{array.shape[1]}: multi-label data are not supported"
        )
    check_numeric(name, array)
    check_finite(name, array)
    array = np.asarray(array)
    if array.ndim == 2 and array.shape[1] == width:
        return _check_probabilities(name, array)
    if array.ndim == 1 and np.issubdtype(array.dtype, np.integer):
        if array.min() < 0 or array.max() >= width:
            raise ValueError(
                f"{name} must hold class numbers from 0 to {width - 1} beside class "
                f"probabilities of {width} columns, got {array.min()} to {array.max()}"
            )
        return array.astype(np.int32)
    raise ValueError(
        f"{name} must hold class probabilities of shape [n, {width}] or class numbers "
        f"of shape [n], got shape {array.shape} and dtype {array.dtype}"
    )


def _check_probabilities(name: str, array: np.ndarray) -> np.ndarray:
    """Return rows of class probabilities as float32, and refuse anything else."""
    floats = jnp.issubdtype(array.dtype, jnp.floating)
    kind = array.dtype if floats else jnp.float32
    rows = array.astype(np.float32)
    total = rows.sum(axis=1, dtype=np.float64)
    # Each small entry of many may be off by half of the least number of its type.
    tiny = rows.shape[1] * finfo(kind).smallest_subnormal
    slack = max(_DECIMALS, _ROUNDINGS * finfo(kind).eps) + tiny
    negative = rows.min(axis=1) < 0
    bad = np.flatnonzero(negative | (np.abs(total - 1) > slack))
    if bad.size:
        row = bad[0]
        fault = (
            f"has {rows[row].min():.3g}"
            if negative[row]
            else f"sums to {total[row]:.4g}"
        )
        raise ValueError(
            f"{name} must hold class probabilities, each row zero or more and with the "
            f"sum 1, but row {row} {fault} ({bad.size} of {len(rows)} rows fail): take "
            "the softmax of logits, or divide rows by their sums"
        )
    return rows
