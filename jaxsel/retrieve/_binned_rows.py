"""Columns of rows that are read in passes: edges, numbers of bins, codes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Generator, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._inputs.rows import RowChunk, Rows
from jaxsel._runs.progress import track

from ._table import (
    BINS,
    FILLED,
    Column,
    as_floats,
    check_range,
    check_same_columns,
    choose,
    digitise,
    gaps,
    is_numeric,
    number_categories,
    origin_of,
    split_columns,
)

if TYPE_CHECKING:
    from ._table import Table

# Rows, and numbers in them, that are read and coded together.
_ROWS, _ENTRIES = 2**16, 2**21


@dataclasses.dataclass
class _Numbers:
    """A column that is cut into bins.

    Attributes:
        place: Which column it is.
        hard: Its numbers of the hard samples, less `origin`, `[m]`, NaN where they are
            missing.
        origin: Offset subtracted from large whole numbers; see `origin_of`.
        low: The lowest edge; infinite if no number is known.
        high: The highest.
        bins: How many; 0 until that is known.
        filled: Those that have a number, for each of the numbers of bins from which
            one is chosen, as long as they are few enough.
    """

    place: int
    hard: np.ndarray
    origin: int = 0
    low: float = np.inf
    high: float = -np.inf
    bins: int = 0
    filled: dict[int, set[int]] = dataclasses.field(default_factory=dict[int, set[int]])

    def widen(self, numbers: np.ndarray) -> None:
        """Widen the edges to span these numbers."""
        known = numbers[~np.isnan(numbers)]
        if known.size:
            self.low = min(self.low, float(known.min()))
            self.high = max(self.high, float(known.max()))

    def fill(self, numbers: np.ndarray) -> None:
        """Add the bins of these numbers; drop the bin counts that fill too many."""
        known = numbers[~np.isnan(numbers)]
        for bins, filled in [*self.filled.items()]:
            filled |= {*np.unique(digitise(known, self.low, self.high, bins)).tolist()}
            if len(filled) > FILLED:
                del self.filled[bins]

    @functools.cached_property
    def hard_codes(self) -> np.ndarray:
        """Bins of the hard samples, `[m]`, once edges and number of bins are known."""
        return digitise(self.hard, self.low, self.high, self.bins)

    def column(self, chunk: RowChunk) -> Column:
        """Return the codes of some rows, and of the hard samples."""
        codes = digitise(self.of(chunk), self.low, self.high, self.bins)
        return Column(codes, self.hard_codes, ordered=True)

    def of(self, chunk: RowChunk, which: np.ndarray | None = None) -> np.ndarray:
        """Return the numbers of a chunk, or of its rows marked in `which`."""
        floats = as_floats(
            self.place, *gaps(chunk.features[:, self.place]), self.origin
        )
        return floats if which is None else floats[which[chunk.start : chunk.stop]]


@dataclasses.dataclass
class _Categories:
    """A column of categories; those absent from the hard samples have no number.

    Attributes:
        place: Which column it is.
        number: The number of each category.
        hard_codes: Of the hard samples, `[m]`.
    """

    place: int
    number: dict[Any, int]
    hard_codes: np.ndarray

    def column(self, chunk: RowChunk) -> Column:
        """Return the codes of some rows, and of the hard samples."""
        values = gaps(chunk.features[:, self.place])
        codes = number_categories(self.place, *values, self.number, more=False)
        return Column(codes, self.hard_codes, ordered=False)


def row_columns(
    rows: Rows,
    hard_table: Table,
    *,
    bins: int | None,
    categorical: Sequence[Hashable] | None,
    edges_from: np.ndarray | slice,
    chunk_size: int | None,
    progress: bool,
) -> Iterator[list[Column]]:
    """Yield the columns of rows and hard samples, chunk by chunk, in the last pass.

    Arguments as for `read_columns`, and:

    Args:
        rows: `[n, columns]`.
        hard_table: As for `binning_distance`.
        bins: Bins of each numeric column, or None to choose for each.
        categorical: Numbers of columns, or None to go by the types.
        edges_from: Numbers, or a mask, of the rows that set the edges.
        chunk_size: Rows at a time, or None to choose.
        progress: Whether to show a bar for each pass.
    """
    numbers, categories = _open(rows, hard_table, categorical)
    d = len(numbers) + len(categories)
    size = chunk_size or max(1, min(_ROWS, _ENTRIES // d))
    which = None
    if not isinstance(edges_from, slice):
        which = np.zeros(len(rows), bool)
        which[edges_from] = True

    def read_pass(what: str) -> Generator[RowChunk, None, None]:
        total = None if rows.n is None else -(-rows.n // size)
        label = f"binning, {what}"
        with contextlib.closing(rows.chunks(size, check=False)) as chunks:
            yield from track(chunks, progress=progress, label=label, total=total)

    if numbers:
        with contextlib.closing(read_pass("edges")) as chunks:
            _find_edges(rows, numbers, chunks, which)
    for column in numbers:
        column.bins = bins or 0
    if numbers and bins is None:
        with contextlib.closing(read_pass("bins")) as chunks:
            _find_bins(numbers, chunks, which)
    both = sorted([*numbers, *categories], key=lambda column: column.place)
    with contextlib.closing(read_pass("distances")) as chunks:
        for chunk in chunks:
            yield [column.column(chunk) for column in both]


def _open(
    rows: Rows, hard_table: Table, categorical: Sequence[Hashable] | None
) -> tuple[list[_Numbers], list[_Categories]]:
    """Classify columns as numbers or categories, without reading the rows."""
    shape = (1, *rows.source.row_shape)
    names, _, _ = split_columns("table", np.zeros(shape, rows.dtype))
    hard_names, hard, kinds = split_columns("hard_table", hard_table)
    check_same_columns(names, hard_names)
    chosen = kinds if categorical is None else choose(categorical, names)
    numbers: list[_Numbers] = []
    categories: list[_Categories] = []
    for j, column in enumerate(hard):
        values, gap = gaps(column)
        by_type = categorical is None and not is_numeric(values[~gap])
        if j in chosen or by_type:
            number: dict[Any, int] = {}
            codes = number_categories(j, values, gap, number)
            categories.append(_Categories(j, number, codes))
        else:
            origin = origin_of(values, gap)
            hard_floats = as_floats(j, values, gap, origin)
            numbers.append(_Numbers(j, hard_floats, origin))
    return numbers, categories


def _find_edges(
    rows: Rows,
    numbers: list[_Numbers],
    chunks: Iterator[RowChunk],
    which: np.ndarray | None,
) -> None:
    """Read all rows once, for the lowest and the highest number of each column."""
    for column in numbers:
        column.widen(column.hard)
        check_range(column.place, *_ends(column), finite=True)
    for chunk in chunks:
        for column in numbers:
            floats = column.of(chunk)
            infinite = np.flatnonzero(np.isinf(floats))
            if infinite.size:
                row = chunk.start + int(infinite[0])
                raise ValueError(
                    f"column {column.place} must hold finite numbers, but row {row} "
                    f"has {floats[infinite[0]]}{rows.source.place(rows.begin + row)}"
                )
            column.widen(floats if which is None else column.of(chunk, which))
    for column in numbers:
        column.low, column.high = _ends(column)
        check_range(column.place, column.low, column.high, finite=True)


def _find_bins(
    numbers: list[_Numbers], chunks: Iterator[RowChunk], which: np.ndarray | None
) -> None:
    """Read the rows again, until the number of bins of each column is known."""
    for column in numbers:
        column.filled = {bins: set() for bins in BINS[:-1]}
        column.fill(column.hard)
    for chunk in chunks:
        undecided = [column for column in numbers if column.filled]
        if not undecided:
            break
        for column in undecided:
            column.fill(column.of(chunk, which))
    for column in numbers:
        # `BINS` descends: the first that fills few of its bins is the largest.
        column.bins = max(column.filled, default=BINS[-1])
        column.filled = {}


def _ends(column: _Numbers) -> tuple[float, float]:
    known = column.low <= column.high
    return (column.low, column.high) if known else (0.0, 0.0)
