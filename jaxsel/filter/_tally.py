"""Counts of losses below edges, without sorting all of them.

Losses are binned by the leading digits of their binary form over the range of the
edges. Only those that share a bin with an edge are sorted.
"""

from __future__ import annotations

import numpy as np

from ._bits import to_place
from ._objective import Counts
from ._sorted import Sorted, distinct

_MOST_BITS = 17
FEW = 1 << 13
"""Losses that are sorted as fast as binned."""


def tally(losses: np.ndarray, weights: np.ndarray | None, edges: np.ndarray) -> Counts:
    """Return how much weight lies below the edges.

    Args:
        losses: `[n]`, of the edges' type, in any order.
        weights: Whole numbers, `[n]` int64, or None where each counts once.
        edges: `[E]`, ascending and distinct.
    """
    if len(losses) < FEW:
        return Sorted(losses, weights).counts(edges)
    low, high = to_place(edges[[0, -1]]).tolist()
    bits = min(_MOST_BITS, len(losses).bit_length() - 2)
    shift = max(0, (high - low).bit_length() - bits)
    first, last = low >> shift, high >> shift

    def bin_of(values: np.ndarray) -> np.ndarray:
        # The first bin is for all below the one of the least edge, the last for above.
        bins = to_place(values, wide=False)
        bins >>= shift
        np.clip(bins, first - 1, last + 1, out=bins)
        return np.subtract(bins, first - 1, dtype=np.int64)  # indexes fastest

    n_bins = last - first + 3
    loss_bins, edge_bins = bin_of(losses), bin_of(edges)
    shared = np.zeros(n_bins, bool)
    shared[edge_bins] = True
    rows = np.flatnonzero(shared[loss_bins])
    near = Sorted(losses[rows], None if weights is None else weights[rows])
    weight = _weight_of(loss_bins, weights, n_bins)
    # Weight of lower bins without edges; `near` counts the bins with edges.
    bins, upto = distinct(edge_bins), np.cumsum(weight)
    offset = upto[bins] - np.cumsum(weight[bins])
    offset = offset[np.searchsorted(bins, edge_bins)]
    counts = near.counts(edges)
    return Counts(counts.below + offset, counts.upto + offset, int(upto[-1]))


def _weight_of(bins: np.ndarray, weights: np.ndarray | None, n_bins: int) -> np.ndarray:
    if weights is None:
        return np.bincount(bins, minlength=n_bins)
    total = np.zeros(n_bins, np.int64)
    np.add.at(total, bins, weights)  # bincount adds in float64
    return total
