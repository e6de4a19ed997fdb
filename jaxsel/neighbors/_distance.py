"""Distances from validation points to training points, as one matrix product.

The squared distance `|x|^2 + |q|^2 - 2 x.q` cancels badly when the features sit far
from the origin, so they are centred first; by the *rounded* mean, since subtracting
the exact one rounds integer-valued features and breaks their exact ties.
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxsel._devices.typed import norm
from jaxsel._inputs.checks import (
    check_choice,
    check_concrete,
    float_type,
    to_float,
    wide_type,
)

from ._exact import BY_QUERY, Exact, errors, repair

Metric = Literal["l2", "cosine"]
METRICS = ("l2", "cosine")
# Squared distances beyond these overflow, or vanish, in float32.
SMALLEST, LARGEST = 1e-15, 1e15


def prepare_features(
    x: np.ndarray | jax.Array, *others: np.ndarray | jax.Array, metric: Metric
) -> tuple[jax.Array, ...]:
    """Bring features to the form that `distances` takes: float, centred or normalised.

    NumPy input is centred in its own precision before it becomes float32, so that
    float64 features with a large offset lose nothing. Input that needs no change is
    not copied.

    Args:
        x: Array of shape `[n, d]`, whose rounded mean is subtracted from all.
        *others: Arrays of shape `[m, d]`.
        metric: "l2" or "cosine".

    Returns:
        The arrays in the order given, of unit rows for "cosine".

    Raises:
        ValueError: If squared distances would overflow or vanish in float32.
    """
    check_choice("metric", metric, METRICS)
    return _prepare((x, *others), metric)[0]


def _prepare(
    arrays: tuple[np.ndarray | jax.Array, ...], metric: Metric
) -> tuple[tuple[jax.Array, ...], bool, float]:
    """Return prepared features, whether they differ, and their largest number."""
    if metric == "cosine":
        return tuple(normalise(to_float(a)) for a in arrays), True, 1.0
    centre = rounded_mean(arrays[0])
    centred = bool(centre.any())
    edges: list[Any] = []
    for array in arrays:
        # Edges of columns take twice the time of those of the whole.
        axis = 0 if centred else None
        edges += [array.min(axis=axis), array.max(axis=axis)]
    peak = check_peak(centre if centred else np.zeros(1), *edges)
    if not centred:
        return tuple(map(to_float, arrays)), False, peak
    return tuple(subtract(a, centre) for a in arrays), True, peak


def check_peak(centre: np.ndarray, *edges: np.ndarray | jax.Array) -> float:
    """Return the largest absolute value of centred features; refuse one too large.

    Args:
        centre: Array of shape `[d]`, or `[1]`, which is subtracted.
        *edges: Arrays of shape `[d]`: the least and the largest of each feature; or
            numbers, of all features.
    """
    peak = float(np.abs(np.asarray(edges, np.float64) - centre).max())
    if not (peak == 0 or SMALLEST <= peak <= LARGEST):
        raise ValueError(
            "x must have features whose squares fit float32: their largest absolute "
            f"value, once centred, must be {SMALLEST:g} to {LARGEST:g}, got "
            f"{peak:.3g}; rescale them"
        )
    return peak


def prepare_exact(
    x: np.ndarray | jax.Array, x_val: np.ndarray | jax.Array, *, metric: Metric
) -> tuple[tuple[jax.Array, jax.Array], tuple[Any, np.ndarray] | None]:
    """Prepare features as float32, and keep the exact ones that settle near ties.

    Args:
        x: Array of shape `[n, d]`.
        x_val: Array of shape `[m, d]`.
        metric: "l2" or "cosine".

    Returns:
        The arrays as from `prepare_features`; and both as `Exact` takes them, or None
        where float32 distances are exact, as of small whole numbers. The points are the
        prepared array itself where preparing changed nothing.
    """
    (features, asked), centred, peak = _prepare((x, x_val), metric)
    check_concrete("x", features)
    ready = features.astype(jnp.float32), asked.astype(jnp.float32)
    if metric == "l2" and rounds_nothing(x, x_val, peak=peak):
        return ready, None
    points, queries = as_given(x, x_val, cosine=metric == "cosine")
    if points.dtype == np.float32 and not centred:
        points = ready[0]
    return ready, (points, np.asarray(queries))


def repaired(
    x: jax.Array,
    queries: jax.Array,
    *,
    metric: Metric,
    norms: jax.Array,
    points: jax.Array | None,
    asked: jax.Array | None,
    for_order: bool,
) -> tuple[jax.Array, Exact | None, Any]:
    """Return distances, recomputed where they cancelled, and the `Exact` for near ties.

    Args:
        x: Array of shape `[n, d]`, prepared.
        queries: Array of shape `[m, d]`, prepared.
        metric: "l2" or "cosine".
        norms: Array of shape `[n]`: `squared_norms(x)`.
        points: Features as `Exact` takes them, or None where distances are exact.
        asked: The queries as `Exact` takes them, or None.
        for_order: See `repair`.

    Returns:
        `[m, n]`; the `Exact` of m queries, or None; and which of its axes `jax.vmap`
        maps over.
    """
    near = distances(x, queries, metric=metric, norms=norms)
    if points is None or asked is None:
        return near, None, None
    error, query_error = error_parts(norms, queries, metric)
    exact = Exact(points, asked, error, query_error, metric == "cosine")
    axes = dataclasses.replace(exact, **BY_QUERY)
    return repair(near, exact, for_order=for_order), exact, axes


def error_parts(
    norms: jax.Array, queries: jax.Array, metric: Metric
) -> tuple[jax.Array, jax.Array]:
    """Return `error` and `query_error` of `Exact`, `[n]` and `[m, 3]`."""
    lengths = norms, squared_norms(queries)
    if metric == "cosine":  # half the squared difference of unit rows
        lengths = jnp.full_like(lengths[0], 0.5), jnp.full_like(lengths[1], 0.5)
    return errors(*lengths, queries.shape[1])


def normalise(x: Float[jax.Array, "n d"]) -> Float[jax.Array, "n d"]:
    """Scale each row to unit length: a pure kernel.

    Args:
        x: Array of shape `[n, d]`.

    Returns:
        Array of shape `[n, d]`; rows of zeros stay zero.
    """
    # By the largest entry first: the square of a large or tiny one is not finite.
    peak = jnp.max(jnp.abs(x), axis=-1, keepdims=True, initial=0.0)
    # XLA multiplies by the inverse, which of the largest floats is denormal, and so 0.
    down = jnp.where(peak > 1, 2.0**-64, 1.0)
    x, peak = x * down, peak * down
    x = x / jnp.where(peak > 0, peak, 1)
    length = norm(x, axis=-1, keepdims=True)
    return x / jnp.where(length > 0, length, 1)


def squared_norms(x: Float[jax.Array, "*n d"]) -> Float[jax.Array, "*n"]:
    """Return the squared length of each row: a pure kernel.

    Args:
        x: Array of shape `[n, d]`, or one row, `[d]`.

    Returns:
        Array of shape `[n]`, or a scalar.
    """
    return jnp.sum(x * x, axis=-1)


def distances(
    x: Float[jax.Array, "n d"],
    queries: Float[jax.Array, "*m d"],
    *,
    metric: Metric = "l2",
    norms: Float[jax.Array, " n"] | None = None,
) -> Float[jax.Array, "*m n"]:
    """Return how far each query is from each point: a pure kernel.

    Squared Euclidean distance for "l2" (the order by distance needs no root), and
    `1 - cos` for "cosine", both clamped at 0. The matrix product runs at highest
    precision.

    Args:
        x: Array of shape `[n, d]`, as `prepare_features` returns it: centred for
            "l2", of unit rows for "cosine".
        queries: Array of shape `[m, d]`, prepared likewise, or one query, `[d]`.
        metric: "l2" or "cosine".
        norms: Optional `[n]`: `squared_norms(x)`, to save computing them again.

    Returns:
        Array of shape `[m, n]`, or `[n]` for one query. Costs m·n·d multiply-adds.
    """
    product = jnp.matmul(queries, x.T, precision="highest")
    if metric == "cosine":
        return jnp.maximum(1 - product, 0)
    norms = squared_norms(x) if norms is None else norms
    norms = jnp.expand_dims(norms, tuple(range(queries.ndim - 1)))
    return jnp.maximum(norms + squared_norms(queries)[..., None] - 2 * product, 0)


def to_length(
    squared: Float[jax.Array, "*shape"], metric: Metric
) -> Float[jax.Array, "*shape"]:
    """Convert the result of `distances` to distances proper: a root for "l2".

    Args:
        squared: Array of any shape.
        metric: "l2" or "cosine".

    Returns:
        Array of the same shape: the roots for "l2", `squared` itself for "cosine".
    """
    return jnp.sqrt(squared) if metric == "l2" else squared


def rounded_mean(x: np.ndarray | jax.Array) -> np.ndarray:
    if isinstance(x, jax.Array):
        mean = jnp.mean(x, axis=0, dtype=wide_type(x.dtype))
    else:
        mean = np.mean(x, axis=0, dtype=np.float64)
    return np.round(np.asarray(mean, np.float64))


def subtract(x: np.ndarray | jax.Array, centre: np.ndarray) -> jax.Array:
    if isinstance(x, jax.Array):
        x = to_float(x)
        return x - jnp.asarray(centre, x.dtype)
    # In float64, a buffer at a time: only the float32 result is ever whole.
    out = np.empty(x.shape, float_type(x))
    np.subtract(x, centre, out=out, dtype=np.float64, casting="same_kind")
    return jnp.asarray(out)


def as_given(
    x: np.ndarray | jax.Array, x_val: np.ndarray | jax.Array, *, cosine: bool
) -> tuple[np.ndarray | jax.Array, np.ndarray | jax.Array]:
    """Return features as `Exact` takes them: float32, or the bits of float64.

    Nothing that was given is lost: near ties are settled by distances of these.

    Args:
        x: Array of shape `[n, d]`.
        x_val: Array of shape `[m, d]`.
        cosine: Whether to scale rows to unit length, which is done in float64.
    """
    if not cosine and _fits_float32(x) and _fits_float32(x_val):
        return x.astype(np.float32, copy=False), x_val.astype(np.float32, copy=False)
    return _wide(x, cosine), _wide(x_val, cosine)


def rounds_nothing(*arrays: np.ndarray | jax.Array, peak: float) -> bool:
    """Return whether float32 distances of these features are exact: whole numbers.

    Args:
        *arrays: Features, `[n, d]` each.
        peak: The largest absolute value that is left of them once centred.
    """
    if 4 * arrays[0].shape[1] * peak**2 >= 2**24:
        return False
    for array in arrays:
        if jnp.issubdtype(array.dtype, jnp.floating):
            numpy = jnp if isinstance(array, jax.Array) else np
            # The first rows mostly show that it is not.
            for part in (array[:16], array):
                if not bool((part == numpy.round(part)).all()):
                    return False
    return True


def _fits_float32(array: np.ndarray | jax.Array) -> bool:
    kind, size = array.dtype.kind, array.dtype.itemsize
    whole = kind in "iu" and size <= 2
    return whole or kind == "b" or (kind not in "iu" and size <= 4)


def _wide(array: np.ndarray | jax.Array, cosine: bool) -> np.ndarray:
    rows = np.array(array, np.float64, order="C", copy=cosine or None)
    if cosine:
        peak = np.abs(rows).max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            rows /= peak  # zero rows become NaN
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.view(np.uint32)
