"""Features as they were given: float32, or the bits of float64.

Near ties are settled by distances of these; see `_exact`.
"""

import jax
import jax.numpy as jnp
import numpy as np


def as_given(
    x: np.ndarray | jax.Array, x_val: np.ndarray | jax.Array, *, cosine: bool
) -> tuple[np.ndarray | jax.Array, np.ndarray | jax.Array]:
    """Return features as `Exact` takes them: float32, or the bits of float64.

    Args:
        x: Array of shape `[n, d]`.
        x_val: Array of shape `[m, d]`.
        cosine: Whether to scale rows to unit length, which is done in float64.
    """
    if not cosine and _fits_float32(x) and _fits_float32(x_val):
        return _narrow(x), _narrow(x_val)
    return _wide(x, cosine), _wide(x_val, cosine)


def rounds_nothing(*arrays: np.ndarray | jax.Array, peak: float) -> bool:
    """Return whether float32 distances of these features are exact: whole numbers.

    Args:
        *arrays: Features, `[n, d]` each.
        peak: The largest absolute value that is left of them once centred.
    """
    return 4 * arrays[0].shape[1] * peak**2 < 2**24 and all(map(_is_whole, arrays))


def _fits_float32(array: np.ndarray | jax.Array) -> bool:
    kind, size = array.dtype.kind, array.dtype.itemsize
    whole = kind in "iu" and size <= 2
    return whole or kind == "b" or (kind not in "iu" and size <= 4)


def _narrow(array: np.ndarray | jax.Array) -> np.ndarray | jax.Array:
    return array if array.dtype == np.float32 else array.astype(np.float32)


def _is_whole(array: np.ndarray | jax.Array) -> bool:
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return True
    numpy = jnp if isinstance(array, jax.Array) else np
    parts = array[:16], array  # the first rows mostly show that it is not
    return all(bool((part == numpy.round(part)).all()) for part in parts)


def _wide(array: np.ndarray | jax.Array, cosine: bool) -> np.ndarray:
    rows = np.array(array, np.float64, order="C", copy=cosine or None)
    if cosine:
        peak = np.abs(rows).max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            rows /= peak  # zero rows become NaN
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.view(np.uint32)
