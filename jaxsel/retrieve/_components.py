"""Groups of rows that near pairs connect, from pairs that come tile by tile."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ._near_pairs import Tile

_EDGES = 1 << 21  # pairs in memory before groups are joined
NONE = np.iinfo(np.int64).max


class Components:
    """Groups, the number of pairs, and the first near row of each, in O(n) memory.

    Attributes:
        labels: Group of each position of both tables, `[k]` or `[k + l]`.
        nearest: First row that is near each position of a table, `[k]` and `[l]`; NONE
            where there is none.
        n_pairs: Number of near pairs of rows.
    """

    def __init__(self, rows: list[np.ndarray], counts: list[np.ndarray]):
        """Start with each position alone.

        Args:
            rows: First row of each position, of one table or two, `[k]` each.
            counts: Number of equal rows of each position, `[k]` each.
        """
        self.rows, self.counts = rows, counts
        self.labels: np.ndarray = np.arange(sum(map(len, rows)))
        self.offset = len(rows[0]) if len(rows) > 1 else 0
        self.nearest = [np.full(len(part), NONE) for part in rows]
        self.n_pairs = 0
        self._edges: list[tuple[np.ndarray, np.ndarray]] = []
        self._waiting = 0

    def add(self, tile: Tile) -> None:
        """Count and connect the pairs of a tile."""
        if len(tile.i):
            self.add_pairs(tile.i, tile.j)
        if tile.sure is not None:
            self._add_mask(tile.rows, tile.columns, tile.sure)

    def join(self) -> None:
        """Join the groups of all pairs so far."""
        if not self._edges:
            return
        from scipy.sparse import coo_array, csgraph

        i, j = (np.concatenate(part) for part in zip(*self._edges, strict=True))
        self._edges, self._waiting = [], 0
        n = len(self.labels)
        ends: tuple[np.ndarray, np.ndarray] = self.labels[i], self.labels[j]
        graph = coo_array((np.ones(len(i), np.int8), ends), shape=(n, n))
        joined = cast(Any, csgraph.connected_components(graph.tocsr(), directed=False))
        self.labels = np.asarray(joined[1])[self.labels]

    def add_pairs(self, i: np.ndarray, j: np.ndarray) -> None:
        """Count and connect pairs of positions of both tables, `[k]` each."""
        products = self.counts[0][i].astype(np.int64) * self.counts[-1][j]
        self.n_pairs += int(products.sum())
        np.minimum.at(self.nearest[0], i, self.rows[-1][j])
        np.minimum.at(self.nearest[-1], j, self.rows[0][i])
        self._connect(i, j)

    def _add_mask(self, rows: slice, columns: slice, sure: np.ndarray) -> None:
        """Add pairs of which there may be millions: without a list of them."""
        weights = self.counts[0][rows], self.counts[-1][columns]
        if max(part.max() for part in weights) == 1:
            self.n_pairs += int(np.count_nonzero(sure))
        else:
            self.n_pairs += int(weights[0] @ (sure @ weights[1]))
        for side, part, others, mask in (
            (0, rows, self.rows[-1][columns], sure),
            (-1, columns, self.rows[0][rows], sure.T),
        ):
            first = np.where(mask, others, NONE).min(axis=1)
            near = self.nearest[side]
            near[part] = np.minimum(near[part], first)
        self.join()
        # Pairs within a group connect nothing: of equal rows few are between groups.
        a: np.ndarray = self.labels[rows]
        b: np.ndarray = self.labels[
            columns.start + self.offset : columns.stop + self.offset
        ]
        apart = sure & (a[:, None] != b)
        i, j = np.divmod(np.flatnonzero(apart), apart.shape[1])
        self._connect(i + rows.start, j + columns.start)

    def _connect(self, i: np.ndarray, j: np.ndarray) -> None:
        self._edges.append((i, j + self.offset))
        self._waiting += len(i)
        if self._waiting > _EDGES:
            self.join()
