"""Columns of G that were asked for, and wait until their candidates are chosen."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

# Requests whose columns are kept.
_KEPT = 4


class Shelf(NamedTuple):
    """Columns that were asked for, the oldest of which make room for new ones.

    Attributes:
        ids: Whose they are, `[r]`; -1 where there is none.
        columns: Columns of G, `[r, n]`.
        place: Where the next ones go.
    """

    ids: jax.Array
    columns: jax.Array
    place: jax.Array


def empty_shelf(n: int, dtype: Any, many: int) -> Shelf:
    """Return a shelf for columns of length n that come `many` at a time."""
    room = many * (_KEPT if many > 1 else 1)
    columns = jnp.zeros((room, n), dtype)
    return Shelf(jnp.full(room, -1, jnp.int32), columns, jnp.int32(0))


def put(shelf: Shelf, ids: jax.Array, columns: jax.Array) -> Shelf:
    """Put columns `[m, n]` on the shelf."""
    room, many = shelf.ids.shape[0], ids.shape[0]
    columns = columns.astype(shelf.columns.dtype)  # fewer bits in half precision
    return Shelf(
        lax.dynamic_update_slice_in_dim(shelf.ids, ids, shelf.place, 0),
        lax.dynamic_update_slice_in_dim(shelf.columns, columns, shelf.place, 0),
        (shelf.place + many) % room,
    )
