"""Losses that are read in passes, to count how many of them lie below edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ._objective import Counts
from ._sorted import Chunk, Sorted, distinct, joined
from ._tally import tally

_CHANGED = "losses must be the same at each call, but differ between two passes"

GATHERED = 1 << 22
"""Losses that a pass may collect, to spare the passes after it."""


class Streamed:
    """Losses that are read as often as need be, and never held all at once.

    Where few of them lie in the intervals that new edges cut, between the edges known
    so far, one pass collects these, and later questions about them need none.

    Args:
        read: Returns an iterator over all chunks, the same ones each time.
    """

    def __init__(self, read: Callable[[], Iterable[Chunk]]):
        self.read, self.weighted = read, False
        self._edges = np.empty(0)
        self._counts: Counts = Counts(np.empty(0, np.int64), np.empty(0, np.int64), 0)
        self._cells: dict[int, Sorted] = {}

    def counts(self, edges: np.ndarray) -> Counts:
        """Return how much weight lies below the edges."""
        if not len(self._edges):
            self._count(edges)
            return self._counts
        cell = np.searchsorted(self._edges, edges)
        new = np.append(self._edges, np.inf)[cell] != edges
        cells = distinct(cell[new])
        above = np.append(self._counts.below, self._counts.total)
        lower = np.append(0, self._counts.upto)
        inside = above - lower
        # Too much to hold: count at all edges, old and new, in a pass of its own.
        if inside[cells].sum() > GATHERED:
            self._count(np.union1d(self._edges, edges))
            return self._counts.at(np.searchsorted(self._edges, edges))
        self._gather([c for c in cells.tolist() if c not in self._cells], inside)
        below, upto = lower[cell], lower[cell]
        known = np.flatnonzero(~new)
        below[known] = self._counts.below[cell[known]]
        upto[known] = self._counts.upto[cell[known]]
        for c in cells.tolist():
            rows = np.flatnonzero(new & (cell == c))
            inner = self._cells[c].counts(edges[rows])
            below[rows] += inner.below
            upto[rows] += inner.upto
        return Counts(below, upto, self._counts.total)

    def apart(self) -> Streamed:
        """Return the same with a memory of its own, for another thread."""
        other = Streamed(self.read)
        other.weighted, other._edges = self.weighted, self._edges
        other._counts, other._cells = self._counts, dict(self._cells)
        return other

    def number(self, value: float) -> int:
        """Return how many losses are at most `value`."""
        return sum(
            int((losses <= np.float64(value)).sum()) for losses, _ in self.read()
        )

    def _count(self, edges: np.ndarray) -> None:
        """Count at these edges, in one pass."""
        none = np.zeros(len(edges), np.int64)
        counts = Counts(none, none, 0)
        for losses, weights in self.read():
            counts = counts + tally(losses, weights, edges)
            self.weighted |= weights is not None
        if len(self._edges) and counts.total != self._counts.total:
            raise ValueError(_CHANGED)
        self._edges, self._counts, self._cells = edges, counts, {}

    def _gather(self, cells: list[int], inside: np.ndarray) -> None:
        """Collect the losses in some intervals between the edges, in one pass.

        Args:
            cells: Numbers of the intervals.
            inside: Weight that lies in each interval.
        """
        if not cells:
            return
        bounds = np.concatenate([[-np.inf], self._edges, [np.inf]])
        # A comparison with the outer bounds spares most losses the search.
        low, high = bounds[cells[0]], bounds[cells[-1] + 1]
        gathered: list[list[Chunk]] = [[] for _ in cells]
        for losses, weights in self.read():
            rows = np.flatnonzero((losses > low) & (losses < high))
            # `inside` counts weight: without losses of weight 0 it bounds their number,
            # too.
            if weights is not None:
                rows = rows[weights[rows] > 0]
            cell = np.searchsorted(self._edges, losses[rows])
            # A loss on an edge is counted already, and not inside its interval.
            cell[losses[rows] == bounds[cell + 1]] = -1
            for chunks, c in zip(gathered, cells, strict=True):
                part = rows[cell == c]
                chunks.append(
                    (losses[part], None if weights is None else weights[part])
                )
        for chunks, c in zip(gathered, cells, strict=True):
            part = Sorted(*joined(chunks)) if chunks else None
            if part is None or part.total != inside[c]:
                raise ValueError(_CHANGED)
            self._cells[c] = part
