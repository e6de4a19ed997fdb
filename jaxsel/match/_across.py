"""Reductions and lookups of arrays `[n]`, split over the devices of an axis or whole.

A pursuit needs no others, so that nothing of length n leaves a device. An axis of None
means a single device.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxsel._devices.typed import all_gather, psum, tree_map


def largest(array: jax.Array, axis: str | None) -> tuple[jax.Array, jax.Array]:
    """Return the index of the largest entry, the first of equal ones, and the entry.

    By two reductions, which XLA's CPU backend computes 12 times as fast as `argmax`.
    """
    n = array.shape[0]
    top = jnp.max(array)
    # Nothing equals a NaN: n - 1 then, in bounds and never used.
    indices = jnp.where(array == top, jnp.arange(n, dtype=jnp.int32), n - 1)
    best = jnp.min(indices)
    if axis is None:
        return best, top
    tops = all_gather(top, axis)
    places = all_gather(best + _first(n, axis), axis)
    # Devices are in the candidates' order, so that here too the first of equals wins.
    device = jnp.argmax(tops)
    return places[device].astype(jnp.int32), tops[device]


def entries(
    arrays: tuple[jax.Array, ...], at: jax.Array, axis: str | None
) -> tuple[jax.Array, ...]:
    """Return the entries at some indices of the last axis of each array."""
    if axis is None:
        return tuple(array[..., at] for array in arrays)

    def local_entries(array: jax.Array) -> jax.Array:
        place, local = _own(array.shape[-1], at, axis)
        return jnp.where(local, array[..., place], 0)

    # One device adds the entry, all others zeros: that rounds nothing.
    return psum(tuple(map(local_entries, arrays)), axis)


def without(mask: jax.Array, j: jax.Array, axis: str | None) -> jax.Array:
    """Return a mask with entry j set to False."""
    return replaced(mask, j, False, axis)


def replaced(
    array: jax.Array, j: jax.Array, value: float, axis: str | None
) -> jax.Array:
    """Return an array with another value at entry j."""
    if axis is None:
        return array.at[j].set(value)
    place, local = _own(array.shape[0], j, axis)
    return array.at[jnp.where(local, place, array.shape[0])].set(value, mode="drop")


def any_of(mask: jax.Array, axis: str | None) -> jax.Array:
    """Return whether any entry is True."""
    local = jnp.any(mask)
    return local if axis is None else psum(local.astype(jnp.int32), axis) > 0


def columns(
    oracle: Any, ids: jax.Array, axis: str | None, *, held: bool = False
) -> jax.Array:
    """Return the inner products of candidates at `ids` `[m]` with all, `[m, n]`.

    Where the oracle holds gradients as rows, and that is asked for, return these
    instead, `[m, p]`.
    """
    if axis is None and not held:
        return oracle.columns(ids)
    subset = oracle.take(ids) if axis is None else atoms(oracle, ids, axis)
    return subset.rows_held() if held else oracle.gram(subset)


def atoms(oracle: Any, ids: jax.Array, axis: str) -> Any:
    """Return the oracle of the candidates at `ids`, which every device then has."""
    n = len(oracle)

    def everywhere(array: jax.Array) -> jax.Array:
        place, local = _own(n, ids, axis)
        local = local.reshape(-1, *[1] * (array.ndim - 1))
        # Zeros from all devices but one, so that the sum rounds nothing and keeps -inf
        # or NaN where the candidate has it. Booleans have no sum.
        kind = jnp.int32 if array.dtype == bool else array.dtype
        rows = jnp.where(local, array[place], jnp.zeros((), array.dtype)).astype(kind)
        return psum(rows, axis).astype(array.dtype)

    return dataclasses.replace(oracle, **tree_map(everywhere, oracle.per_candidate()))


def _first(share: int, axis: str) -> jax.Array:
    return share * lax.axis_index(axis)


def _own(share: int, at: jax.Array, axis: str) -> tuple[jax.Array, jax.Array]:
    """Return indices clipped to this device's share, and whether they lie in it."""
    place = at - _first(share, axis)
    return jnp.clip(place, 0, share - 1), (place >= 0) & (place < share)
