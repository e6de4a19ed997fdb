"""A cache of columns of G, fetched before their candidates are chosen."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

# Requests whose columns are kept.
_KEPT = 4


class ColumnCache(NamedTuple):
    """The columns fetched last; new ones replace the oldest.

    Attributes:
        ids: Candidates of the columns, `[r]`; -1 where there is none.
        columns: Columns of G, `[r, n]`.
        place: Position of the next columns.
    """

    ids: jax.Array
    columns: jax.Array
    place: jax.Array


def empty_cache(n: int, dtype: Any, many: int) -> ColumnCache:
    """Return a cache for columns of length n, fetched `many` at a time."""
    room = many * (_KEPT if many > 1 else 1)
    columns = jnp.zeros((room, n), dtype)
    return ColumnCache(jnp.full(room, -1, jnp.int32), columns, jnp.int32(0))


def put(cache: ColumnCache, ids: jax.Array, columns: jax.Array) -> ColumnCache:
    """Put columns `[m, n]` in the cache."""
    # `room` is a multiple of `many`, so that no update runs over the end: it would be
    # moved back, over other columns, without an error.
    room, many = cache.ids.shape[0], ids.shape[0]
    columns = columns.astype(cache.columns.dtype)  # fewer bits in half precision
    return ColumnCache(
        lax.dynamic_update_slice_in_dim(cache.ids, ids, cache.place, 0),
        lax.dynamic_update_slice_in_dim(cache.columns, columns, cache.place, 0),
        (cache.place + many) % room,
    )
