"""Splitting long axes into chunks of one shape, so that each is compiled once.

The shape of a matrix product changes its last bits, so chunks are padded rather than
cut short: then near-ties do not depend on where a chunk ends.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from .checks import check_count

# Fewer rows than this make a matrix product read all the features for little work.
MIN_ROWS = 4

# How many (validation point, training point) pairs are in memory at once, on each
# device, at 10 to 60 bytes each. On a CPU malloc hands out the same memory again below
# 32 MB; above, every chunk pays for new pages (a quarter of the hybrid's time at twice
# this). A GPU wants large chunks: at a tenth of this it takes 1.7 times as long.
_ENTRIES = {"cpu": 500_000}
_ENTRIES_ELSEWHERE = 50_000_000


def entries() -> int:
    """Return how many pairs of points are in memory at once, on each device."""
    return _ENTRIES.get(jax.default_backend(), _ENTRIES_ELSEWHERE)


def chunk_rows(
    n_rows: int, row_length: int, *, chunk_size: int | None, devices: int, entries: int
) -> int:
    """Choose how many rows one chunk has: a multiple of `devices`.

    Args:
        n_rows: Number of rows in all.
        row_length: Entries that one row needs.
        chunk_size: The caller's choice of rows, or None.
        devices: Number of devices that share a chunk.
        entries: Most entries that each device may hold at once.
    """
    if chunk_size is not None:
        most = check_count("chunk_size", chunk_size)
    else:
        most = max(MIN_ROWS, entries // row_length) * devices
    chunks = -(-n_rows // min(most, n_rows))
    rows = -(-n_rows // chunks)  # as even as possible: little padding in the last
    return -(-rows // devices) * devices


def chunk_slices(n_rows: int, rows: int) -> list[slice[int, int]]:
    """Cover `n_rows` by slices of `rows` rows; the last may be shorter."""
    starts = range(0, n_rows, rows)
    return list(map(slice, starts, [*starts[1:], n_rows]))


def take_rows(tree: Any, chunk: slice, rows: int) -> Any:
    """Cut a chunk out of every array; repeat its last row until there are `rows`."""
    arrays, structure = jax.tree.flatten(tree)
    for i, array in enumerate(arrays):
        part = array[chunk]
        if missing := rows - len(part):
            part = np.concatenate([part, np.repeat(part[-1:], missing, axis=0)])
        arrays[i] = part
    return structure.unflatten(arrays)


def take_rows_at(tree: Any, rows: Any) -> Any:
    """Return these rows of every array: a slice or indices."""

    def take(array: npt.ArrayLike) -> np.ndarray:
        return np.asarray(array)[rows]

    return jax.tree.map(take, tree)


def first_row(tree: Any) -> Any:
    """Return the first row of every array."""
    return jax.tree.map(lambda array: array[0], tree)
