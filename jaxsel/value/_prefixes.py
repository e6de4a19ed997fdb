"""Utilities of the prefixes of many permutations, a block of sizes at a time."""

from __future__ import annotations

import jax
import numpy as np

from ._evaluator import Evaluator
from ._sampling import prefix_masks


def prefix_utilities(
    work: Evaluator,
    ranks: jax.Array,
    count: int,
    ends: np.ndarray,
    *,
    sizes: tuple[int, int],
    tolerance: float,
    patience: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Call a utility with the prefixes of permutations until these end.

    Permutations advance together, so many sizes at a time as fill a call. When half of
    them have ended, the others move together, and calls shrink to a quarter, then take
    more sizes. A permutation's result does not depend on any of that.

    Args:
        work: The utility.
        ranks: Of `permutation_ranks`, `[lanes, n]`; a power of two of them.
        count: How many of them are wanted.
        ends: The utility of no points and of all.
        sizes: The smallest and the largest prefix wanted, from 1 to n - 1.
        tolerance: See `tmc_shapley`; 0 for no truncation.
        patience: See `tmc_shapley`.

    Returns:
        The utility by size, `[count, n + 1]`, NaN where not computed; and the size at
        which each permutation ended, `[count]`, n if it did not.
    """
    lanes = np.arange(len(ranks))
    lanes[count:] = -1
    at, last = sizes
    found = np.full((count, work.n + 1), np.nan)
    found[:, 0], found[:, -1] = ends
    ended = np.full(count, work.n)
    limit = tolerance * abs(ends[1] - ends[0])
    block = _block(last - at + 1, max(1, work.rows // len(lanes)))
    fewest = len(lanes) * block // 4
    like = None
    while at <= last and (lanes >= 0).any():
        masks = prefix_masks(ranks, lanes, at, last, block=block)
        values, params = work.evaluate(masks, like)
        active = np.flatnonzero(lanes >= 0)
        until = min(at + block, last + 1)
        now = lanes[active]
        found[now, at:until] = values.reshape(len(lanes), block)[active, : until - at]
        if tolerance:
            since = max(sizes[0], at - patience + 1)
            near = np.abs(ends[1] - found[now, since:until]) <= limit
            steps = _first_run(near, patience)
            ended[now] = np.where(steps >= 0, since + steps, work.n)
            lanes[active[steps >= 0]] = -1
        places = np.arange(len(lanes))
        alive = np.flatnonzero(lanes >= 0)
        if alive.size and 2 * len(alive) <= len(lanes):
            width = 1 << (len(alive) - 1).bit_length()
            places = np.pad(alive, (0, width - len(alive)))
            lanes = np.pad(lanes[alive], (0, width - len(alive)), constant_values=-1)
        origin = places * block + block - 1
        at, block = at + block, max(block, fewest // len(lanes))
        like = params, np.repeat(origin, block)
    return found, ended


def _block(sizes: int, most: int) -> int:
    """Return how many sizes a call has, so that all calls have about as many."""
    calls = -(-max(sizes, 1) // most)
    return -(-max(sizes, 1) // calls)


def _first_run(near: np.ndarray, length: int) -> np.ndarray:
    """Return the column that completes the first run of true entries, -1 if none."""
    if near.shape[1] < length:
        return np.full(len(near), -1)
    counts = np.pad(near.cumsum(1), ((0, 0), (1, 0)))
    complete = counts[:, length:] - counts[:, :-length] == length
    return np.where(complete.any(1), complete.argmax(1) + length - 1, -1)
