"""Parts of the results' reprs: short, computed without JAX, and safe while traced."""

import jax
import numpy as np
from jax.core import Tracer

SHOWN = 5
"""Entries of a result that its repr lists."""


def is_readable(*arrays: jax.Array) -> bool:
    """Return whether this process can read all entries, none of them traced."""
    return not any(
        isinstance(array, Tracer)
        or (isinstance(array, jax.Array) and not array.is_fully_addressable)
        for array in arrays
    )


def show(scalar: jax.Array) -> str:
    """Return a scalar or an array as text; "?" while it is traced."""
    return "?" if isinstance(scalar, Tracer) else str(np.asarray(scalar).tolist())


def show_count(count: jax.Array) -> str:
    """Return a count as text, or the least and the greatest of several."""
    if count.ndim == 0 or isinstance(count, Tracer):
        return show(count)
    counts = np.asarray(count)
    return f"{counts.min()}..{counts.max()}"


def show_first(indices: np.ndarray) -> str:
    """Return the first few indices as text."""
    shown = [*map(str, indices[:SHOWN]), *(["..."] if len(indices) > SHOWN else [])]
    return f"[{', '.join(shown)}]"


def show_pairs(indices: np.ndarray, values: np.ndarray) -> str:
    """Return indices with their values as text."""
    pairs = zip(indices, values, strict=True)
    return f"{{{', '.join(f'{i}: {float(value):.4g}' for i, value in pairs)}}}"
