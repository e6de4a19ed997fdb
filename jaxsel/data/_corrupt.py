"""Helpers shared by the corruptions.

All of them are pure functions of a key and arrays, and may be put inside `jit` and
`vmap`. Shapes and dtypes are checked while tracing; values are checked only where they
are known then. Sample i draws from `fold_in(key, i)`, so that its corruption does not
depend on the number of samples; which ones are chosen does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


def is_known(value: object) -> bool:
    """Return whether a value is concrete: not traced, so that it can be checked."""
    return not isinstance(value, Tracer)


def check_share(name: str, value: float | jax.Array, *, below: float = 1.0) -> None:
    """Raise unless a known value is between 0 and `below`."""
    if is_known(value) and not 0 <= float(value) <= below:  # NaN fails too
        raise ValueError(f"{name} must be between 0 and {below}, got {value}")


def check_images(x: jax.Array) -> None:
    """Raise unless `x` are images of bytes, or of floats in 0..1 (where known)."""
    if x.ndim != 4 or 0 in x.shape[1:]:
        raise ValueError(f"x must be images of shape [n, h, w, c], got {x.shape}")
    check_dtype(x)
    if x.dtype == jnp.uint8 or not is_known(x) or x.size == 0:
        return
    # With NumPy: operations of JAX are traced even where their operands are known.
    host = np.asarray(x)
    low, high = float(host.min()), float(host.max())
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"x must be images in 0..1 (or bytes), got values from {low} to {high}"
        )


def check_dtype(x: jax.Array) -> None:
    if x.dtype != jnp.uint8 and not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"x must be floating or uint8, got dtype {x.dtype}")


def check_labels(y: jax.Array, n_classes: int | None, n: int | None = None) -> None:
    """Raise unless labels are n whole numbers in 0..n_classes - 1 (where known)."""
    if y.ndim != 1 or (n is not None and len(y) != n):
        raise ValueError(
            f"y must have shape [{'n' if n is None else n}], got {y.shape}"
        )
    if not jnp.issubdtype(y.dtype, jnp.integer):
        raise TypeError(f"y must be whole numbers, got dtype {y.dtype}")
    if n_classes is None:
        return
    if n_classes - 1 > jnp.iinfo(y.dtype).max:
        raise ValueError(
            f"n_classes must be at most {jnp.iinfo(y.dtype).max + 1} for labels of "
            f"dtype {y.dtype}, got {n_classes}"
        )
    if not is_known(y) or y.size == 0:
        return
    labels = np.asarray(y)
    if labels.min() < 0 or labels.max() >= n_classes:
        bad = labels[(labels < 0) | (labels >= n_classes)][0]
        raise ValueError(f"y must be between 0 and {n_classes - 1}, got {bad}")


def count_of(n: int, rate: float | jax.Array) -> int | jax.Array:
    """Return `round(rate * n)`, halves to even; exact where the rate is known."""
    check_share("rate", rate)
    if is_known(rate):
        return round(float(rate) * n)
    return jnp.round(jnp.asarray(rate) * n).astype(jnp.int32)


def choose_rows(key: jax.Array, n: int, count: int | jax.Array) -> jax.Array:
    """Return a mask `[n]` of exactly `count` rows, any of them alike."""
    return jax.random.permutation(key, n) < count


@functools.partial(jax.jit, static_argnames=("change", "unit"))
def corrupt_rows(
    key: jax.Array,
    x: jax.Array,
    count: int | jax.Array,
    settings: Any,
    *,
    change: Callable[[jax.Array, jax.Array, Any], jax.Array],
    unit: bool,
) -> tuple[jax.Array, jax.Array]:
    """Apply `change(row_key, row, settings)` to some rows; the others stay as they are.

    Bytes are taken as 0..1 and come back as bytes, rounded. With `unit`, results are
    clipped to 0..1; bytes always are.
    """
    is_bytes = x.dtype == jnp.uint8
    key_rows, key_change = jax.random.split(key)
    mask = choose_rows(key_rows, len(x), count)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key_change, jnp.arange(len(x)))
    old = x.astype(jnp.float32) / 255 if is_bytes else x
    new = jax.vmap(change, (0, 0, None))(keys, old, settings)
    if unit or is_bytes:
        new = jnp.clip(new, 0, 1)
    new = jnp.round(new * 255) if is_bytes else new
    return mix(mask, new.astype(x.dtype), x), mask


def mix(mask: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Take rows of `new` where the mask is true, else of `old`."""
    return jnp.where(mask.reshape(-1, *[1] * (old.ndim - 1)), new, old)
