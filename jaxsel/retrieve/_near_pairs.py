"""All pairs of rows that are near each other: tiles of a product, with bounds.

Rows are rotated onto the principal axes of a sample. The product of two rows is at most
that of their first p coordinates and the product of the lengths of the rest, so a tile
of products in p + 1 dimensions says which pairs may be near. The few that may are
settled in float64, from the rows themselves; a tile of many is computed in full, and
settled in float64 where float32 leaves a doubt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from jaxsel._inputs.chunk import chunk_slices
from jaxsel.neighbors import Metric

TILE = 2048  # rows of a tile: 16 MB of products
_SAMPLED = 4096  # rows of which principal axes are computed
_TRIED = 512  # rows with which numbers of axes are compared
_SETTLED = 4096  # pairs at a time in float64
# Nanoseconds: of a multiply-add in a product, of a pass over a product, and of a
# coordinate of a pair that is settled. Only their ratios matter, and only for speed.
_PRODUCT, _PASS, _SETTLE = 0.025, 0.4, 3.0


class Tile(NamedTuple):
    """The near pairs of some rows of two tables, by positions.

    Attributes:
        i: Positions in the first table of pairs that float64 settled, `[k]`.
        j: Positions in the second table, `[k]`.
        rows: Rows of the tile.
        columns: Its columns.
        sure: Which other pairs are near, `[rows, columns]`; None if none are.
    """

    i: np.ndarray
    j: np.ndarray
    rows: slice
    columns: slice
    sure: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Nearness:
    """A rule by which two rows are near.

    Attributes:
        metric: "cosine" or "l2".
        threshold: Least cosine, or largest distance.
    """

    metric: Metric
    threshold: float

    @property
    def radius(self) -> float:
        """Largest distance of near rows; of rows of length 1 for "cosine"."""
        if self.metric == "l2":
            return self.threshold
        return float(np.sqrt(max(0.0, 2 - 2 * self.threshold)))

    def closeness(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return cosines or distances of rows of float64, `[k]`; 0 for rows of zeros.

        Costs k·d operations.
        """
        if self.metric == "l2":
            offsets = a - b
            return np.sqrt(np.einsum("kd,kd->k", offsets, offsets))
        lengths = np.sqrt(np.einsum("kd,kd->k", a, a) * np.einsum("kd,kd->k", b, b))
        product = np.einsum("kd,kd->k", a, b)
        return np.divide(product, lengths, out=np.zeros(len(a)), where=lengths > 0)

    def holds(self, closeness: np.ndarray) -> np.ndarray:
        """Return which pairs are near, `[k]`."""
        if self.metric == "l2":
            return closeness <= self.threshold
        return closeness >= self.threshold


class Table:
    """Some rows of a source of features, ready for products.

    Attributes:
        source: `[n, d]`: an array, a memory-mapped file, or `Rows`.
        rows: Row numbers of its positions, `[k]`, in an order by which near rows come
            near each other.
    """

    def __init__(self, source: Any, rows: np.ndarray, metric: Metric):
        self.source, self.rows = source, rows
        self.metric: Metric = metric

    def exact(self, positions: np.ndarray) -> np.ndarray:
        """Return rows in float64.

        For "cosine" they are multiplied by powers of two, exactly, where their squares
        could overflow.
        """
        part = np.asarray(self.source[self.rows[positions]])
        narrow = part.dtype.itemsize < 8  # its squares neither overflow nor vanish
        part = part.astype(np.float64)
        if self.metric == "cosine" and not narrow:
            peak = np.abs(part).max(axis=1)
            part = np.ldexp(part, -np.frexp(peak)[1][:, None])
        return part

    def prepared(self, positions: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """Return rows of length 1 ("cosine"), or centred ones ("l2"), in float64."""
        part = self.exact(positions)
        if self.metric == "l2":
            return part - centre
        length = np.sqrt(np.einsum("kd,kd->k", part, part))
        return part / np.where(length > 0, length, 1)[:, None]


@dataclasses.dataclass
class _Side:
    """A table on principal axes.

    Attributes:
        table: Its rows, in order.
        near: First coordinates and the length of the rest, `[k, p + 1]` float32;
            or all coordinates, `[k, d]`.
        norms: Squared lengths, `[k]` float32.
        along: The coordinate by which rows are in order, `[k]`.
    """

    table: Table
    near: np.ndarray
    norms: np.ndarray
    along: np.ndarray


class Search:
    """A search for the near pairs of two tables, or of one with itself.

    Costs n·m·p multiply-adds with a p below d where bounds tell most pairs apart;
    memory for p + 1 numbers a row, and for tiles.
    """

    def __init__(self, tables: list[Table], nearness: Nearness):
        self.nearness, self.tables = nearness, tables
        positions = [
            np.linspace(0, len(t.rows) - 1, min(len(t.rows), _SAMPLED)).astype(int)
            for t in tables
        ]
        parts = [t.exact(p) for t, p in zip(tables, positions, strict=True)]
        self.centre = np.concatenate(parts).mean(axis=0)
        sample = np.concatenate(
            [t.prepared(p, self.centre) for t, p in zip(tables, positions, strict=True)]
        )
        moments = sample.T @ sample
        self.axes = np.linalg.eigh(moments)[1][:, ::-1]
        turned = sample @ self.axes
        self.leading = int(turned.std(axis=0).argmax())
        self.dims = self._choose_dims(turned)
        self.sides = [self._side(table) for table in tables]
        sizes = [min(TILE, len(side.near)) for side in (self.sides[0], self.sides[-1])]
        self.buffer = np.empty(sizes, np.float32)

    @property
    def d(self) -> int:
        return len(self.axes)

    def _choose_dims(self, turned: np.ndarray) -> int:
        """Return the number of axes of which products cost least, by a sample."""
        rows = turned[:: -(-len(turned) // _TRIED)]
        count = len(rows) * (len(turned) - 1)
        best, least = self.d, np.inf
        for dims in [p for p in (8, 16, 32, 48, 64, 96, 128, 192, 256) if p < self.d]:
            low = self._thresholds()[0]
            near = [self._columns(part, dims) for part in (rows, turned)]
            if self.nearness.metric == "l2":
                norms = [np.einsum("kd,kd->k", part, part) for part in (rows, turned)]
                near = [*self._with_norms(*near, *norms)]
            hits = np.count_nonzero(near[0] @ near[1].T >= low) - len(rows)
            cost = dims * _PRODUCT + _PASS
            cost += min(
                max(hits, 0) / max(count, 1) * _SETTLE * self.d,
                self.d * _PRODUCT + _PASS,
            )
            if cost < least:
                best, least = dims, cost
        return best if least < self.d * _PRODUCT + _PASS else self.d

    def _columns(self, turned: np.ndarray, dims: int) -> np.ndarray:
        """Return the first coordinates and the length of the rest, in float32."""
        if dims == self.d:
            return turned.astype(np.float32)
        rest = turned[:, dims:]
        length = np.sqrt(np.einsum("kd,kd->k", rest, rest)).astype(np.float32)
        # Rounded up, so that the bound holds.
        length = np.nextafter(length, np.float32(np.inf))
        return np.column_stack([turned[:, :dims].astype(np.float32), length])

    def _error(self) -> float:
        """Return the largest error of a product, as a share of both squared lengths.

        It is the error of a sum of products in float32, in any order, and of rounding
        its terms.
        """
        return (self.d + 16) * 2.0**-24

    def _thresholds(self, norm: float = 0.0) -> tuple[float, float]:
        """Return the product from which on rows may be near, and surely are.

        Args:
            norm: Largest squared length in the tile.
        """
        error = self._error()
        if self.nearness.metric == "cosine":
            threshold = self.nearness.threshold
            return threshold - 2 * error, threshold + 2 * error
        low = -0.5 * self.nearness.radius**2
        slack = 2.0**-20 * abs(low)
        return low - slack, low + slack + 8 * error * norm

    def _with_norms(
        self, a: np.ndarray, b: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add columns by which a product is minus half a squared distance, or more."""
        share = 0.5 - 2 * self._error()
        ends = [(-share * norms).astype(np.float32) for norms in (a_norms, b_norms)]
        ones = [np.ones(len(part), np.float32) for part in (a, b)]
        return (
            np.column_stack([a, ends[0], ones[0]]),
            np.column_stack([b, ones[1], ends[1]]),
        )

    def _side(self, table: Table) -> _Side:
        """Rotate the rows of a table, and put them in order."""
        count = len(table.rows)
        width = self.d if self.dims == self.d else self.dims + 1
        near = np.empty((count, width), np.float32)
        norms, along = np.empty(count), np.empty(count)
        for part in chunk_slices(count, max(64, (1 << 21) // self.d)):
            rows = table.prepared(np.arange(part.start, part.stop), self.centre)
            turned = rows @ self.axes
            near[part] = self._columns(turned, self.dims)
            norms[part] = np.einsum("kd,kd->k", rows, rows)
            along[part] = turned[:, self.leading]
        order = np.argsort(along, kind="stable")
        ordered = Table(table.source, table.rows[order], table.metric)
        return _Side(
            ordered, near[order], norms[order].astype(np.float32), along[order]
        )

    def tiles(self, rows: slice) -> Iterator[Tile]:
        """Yield the tiles of some rows of the first table that have a near pair."""
        first, second = self.sides[0], self.sides[-1]
        same = first is second
        reach = self.nearness.radius * (1 + 1e-9)
        reach += 1e-9 * float(np.abs(first.along).max() + np.abs(second.along).max())
        low, high = (float(first.along[row]) for row in (rows.start, rows.stop - 1))
        # Both in order: outside of these, the leading coordinates differ too much.
        begin = int(np.searchsorted(second.along, low - reach, side="left"))
        end = int(np.searchsorted(second.along, high + reach, side="right"))
        for columns in self.blocks(-1):
            before = columns.stop <= begin or (same and columns.start < rows.start)
            if before or columns.start >= end:
                continue
            tile = self._tile(rows, columns, same and columns.start == rows.start)
            if tile is not None:
                yield tile

    def blocks(self, side: int = 0) -> list[slice[int, int]]:
        """Return the rows of tiles, or with -1 their columns."""
        return chunk_slices(len(self.sides[side].near), TILE)

    def _tile(self, rows: slice, columns: slice, is_diagonal: bool) -> Tile | None:
        first, second = self.sides[0], self.sides[-1]
        a, b = first.near[rows], second.near[columns]
        norms = first.norms[rows], second.norms[columns]
        product = self._product(a, b, *norms)
        peak = max(float(part.max()) for part in norms)
        low, high = self._thresholds(peak)
        may = product >= low
        if is_diagonal:
            may = np.triu(may, 1)
        hits = np.count_nonzero(may)
        if not hits:
            return None
        full = self.dims == self.d
        if not full and hits * _SETTLE > may.size * _PRODUCT:
            a, b = (
                side.table.prepared(
                    cast(np.ndarray, np.arange(part.start, part.stop)), self.centre
                ).astype(np.float32)
                for side, part in ((first, rows), (second, columns))
            )
            product = self._product(a, b, *norms)
            may &= product >= low
            full = True
        sure = may & (product >= high) if full else None
        if sure is not None:
            may &= ~sure
        # Of a flat array, since it is far slower with two axes.
        i, j = np.divmod(np.flatnonzero(may), may.shape[1])
        i, j = self._settled(i + rows.start, j + columns.start)
        if sure is not None and not sure.any():
            sure = None
        return Tile(i, j, rows, columns, sure)

    def _product(
        self,
        a: np.ndarray,
        b: np.ndarray,
        a_norms: np.ndarray,
        b_norms: np.ndarray,
    ) -> np.ndarray:
        """Return products, `[a, b]`, in memory that the next call overwrites."""
        if self.nearness.metric == "l2":
            a, b = self._with_norms(a, b, a_norms, b_norms)
        return np.matmul(a, b.T, out=self.buffer[: len(a), : len(b)])

    def _settled(self, i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs among candidates that are near, by float64."""
        first, second = self.sides[0].table, self.sides[-1].table
        near = np.zeros(len(i), bool)
        for part in chunk_slices(len(i), _SETTLED):
            rows = first.exact(i[part]), second.exact(j[part])
            near[part] = self.nearness.holds(self.nearness.closeness(*rows))
        return i[near], j[near]


def equal_rows(blocks: Callable[[], Iterator[np.ndarray]], source: Any) -> np.ndarray:
    """Return for each row the first row that equals it, `[n]`.

    Args:
        blocks: Reads the rows in order, `[b, d]` at a time.
        source: Gives rows by their numbers.
    """
    hashes = np.concatenate([_hashes(block) for block in blocks()])
    first, place = np.unique(hashes, return_index=True, return_inverse=True)[1:]
    origin = first[place.reshape(-1)]
    repeated = np.flatnonzero(origin != np.arange(len(origin)))
    for part in chunk_slices(len(repeated), _SETTLED):
        rows = repeated[part]
        same = (np.asarray(source[rows]) == np.asarray(source[origin[rows]])).all(1)
        # Another row of the same hash stays for itself.
        origin[rows[~same]] = rows[~same]
    return origin


def _hashes(block: np.ndarray) -> np.ndarray:
    """Return a number for each row that equal rows share, `[b]` uint64."""
    # Adding 0 makes -0.0 a 0.0.
    bits = cast(Any, (np.ascontiguousarray(block, np.float64) + 0.0).view(np.uint64))
    drawn = cast(Any, np.random.default_rng(0).integers(2**63, size=bits.shape[1]))
    # The upper half, too: low bits of most floats are 0.
    mixed = (bits ^ (bits >> np.uint64(29))) * (drawn.astype(np.uint64) * 2 + 1)
    return (mixed ^ (mixed >> np.uint64(32))).sum(axis=1, dtype=np.uint64)
