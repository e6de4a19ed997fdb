"""Near-duplicates within a table, or between two: exact, by tiles with bounds."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.alignment import align_columns
from jaxsel._inputs.checks import (
    check_choice,
    check_concrete,
    check_features,
    check_numeric,
    check_positive,
)
from jaxsel._inputs.chunk import chunk_slices
from jaxsel._inputs.rows import Rows
from jaxsel._inputs.usual_mistakes import doubt_columns
from jaxsel._runs.progress import track
from jaxsel.neighbors import METRICS, Metric

from ._components import NONE, Components
from ._near_duplicates import NearDuplicates
from ._near_pairs import Nearness, Search, Table, equal_rows

_LARGEST = 1e15  # features whose squares fit float32
_ENTRIES = 1 << 21  # features read at a time


def duplicates(
    x: npt.ArrayLike | jax.Array | Rows,
    x_val: npt.ArrayLike | jax.Array | Rows | None = None,
    *,
    threshold: float,
    metric: Metric = "cosine",
    progress: bool = False,
) -> NearDuplicates:
    """Find all near-duplicates of a table, or rows of one table that leak into another.

    The search is exact: a pair counts if its cosine is at least the threshold, or its
    distance at most that, computed in float64 from the rows as they are. Equal rows are
    near-duplicates always, rows of zeros too; with "cosine" a row of zeros is near to
    nothing else.

    Rows are compared tile by tile. Bounds by their first principal coordinates, and by
    the order along one of them, leave out most pairs; the bound is as good as these
    coordinates are. Rows that equal another are compared once.

    Args:
        x: Features, `[n, d]`: an array, a memory-mapped file, or `Rows` of
            `data.open_rows`, larger than memory perhaps.
        x_val: A second table, `[m, d]`, such as a test set. Pairs are then those of a
            row of x with a row of x_val only. Columns of two DataFrames are matched by
            name.
        threshold: Least cosine of a pair, above 0 and at most 1; or with "l2" the
            largest distance, zero or more, in the unit of x.
        metric: "cosine" or "l2" (Euclidean).
        progress: Whether to show a progress bar.

    Returns:
        `NearDuplicates`: groups of rows that pairs connect, a representative of each,
        the rows to keep, and leaks.

    Costs n²·p / 2 multiply-adds on the host (n·m·p for two tables), with p of d
    coordinates: as many as a sample says are cheapest. Memory above the input is p + 1
    float32 numbers and some 60 bytes for each row, and about 100 MB for tiles, however
    many pairs there are.

    Raises:
        ValueError: If shapes or columns do not fit, a number is NaN, infinite or, with
            "l2", above 1e15, or the threshold is out of range.
        TypeError: If an argument has the wrong type, or is being traced.

    Warns:
        UserWarning: If a column is so large that it decides which rows are near, or
            numbers the rows.

    Examples:
        >>> import numpy as np
        >>> from jaxsel import retrieve
        >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [0.99, 0.1], [1.0, 0.0]])
        >>> result = retrieve.duplicates(x, threshold=0.9)
        >>> print(result.keep, result.n_pairs)
        [0 1] 3
        >>> test = np.array([[0.1, 1.0], [-1.0, 0.3]])
        >>> print(retrieve.duplicates(x, test, threshold=0.9).leaked)
        [0]
    """
    check_concrete("x", jnp.zeros(()))  # inside jit every result would be traced
    check_choice("metric", metric, METRICS)
    nearness = Nearness(metric, _check_threshold(threshold, metric))
    if x_val is not None:
        x_val = x_val if isinstance(x_val, Rows) else align_columns(x, x_val)
    tables = [
        _Source.checked(name, table, metric)
        for name, table in (("x", x), ("x_val", x_val))
        if table is not None
    ]
    if len(tables) > 1 and tables[0].shape[1] != tables[1].shape[1]:
        raise ValueError(
            "x and x_val must have the same number of features, got "
            f"{tables[0].shape[1]} and {tables[1].shape[1]}"
        )
    origins = [equal_rows(table.blocks, table.rows) for table in tables]
    search = Search(
        [
            Table(table.rows, np.flatnonzero(origin == np.arange(len(origin))), metric)
            for table, origin in zip(tables, origins, strict=True)
        ],
        nearness,
    )
    counts = [np.bincount(origin, minlength=len(origin)) for origin in origins]
    first_rows = [side.table.rows for side in search.sides]
    components = Components(
        first_rows,
        [count[rows] for count, rows in zip(counts, first_rows, strict=True)],
    )
    blocks = search.blocks()
    for rows in track(blocks, progress=progress, label="duplicates", total=len(blocks)):
        for tile in search.tiles(rows):
            components.add(tile)
    if len(tables) > 1 and metric == "cosine":
        _connect_zeros(components, search)
    components.join()
    return _result(tables, origins, components, nearness)


@dataclasses.dataclass(frozen=True)
class _Source:
    """A checked table, read by slices and by arrays of row numbers."""

    name: str
    rows: Any

    @classmethod
    def checked(cls, name: str, table: Any, metric: Metric) -> _Source:
        """Check features, `Rows` in a pass, and warn of usual mistakes."""
        if not isinstance(table, Rows):
            rows = np.asarray(check_features(name, table))
            doubt_columns(name, rows, table, distances=metric == "l2")
        else:
            rows = table
            if rows.ndim != 2 or not len(rows):
                raise ValueError(f"{name} must have shape [n, d], got {rows!r}")
            check_numeric(name, rows[:1])
        source = cls(name, rows)
        peak = 0.0
        for block in source.blocks(check=True):
            peak = max(peak, float(np.abs(block.astype(np.float64)).max()))
        if metric == "l2" and peak > _LARGEST:
            raise ValueError(
                f"{name} must have features of at most {_LARGEST:g}, whose squares fit "
                f"float32, got {peak:.3g}; rescale them"
            )
        return source

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    def blocks(self, *, check: bool = False) -> Iterator[np.ndarray]:
        """Yield the rows in order, `[b, d]` at a time."""
        size = max(1, _ENTRIES // self.shape[1])
        if isinstance(self.rows, Rows):
            with contextlib.closing(self.rows.chunks(size, check=check)) as chunks:
                for chunk in chunks:
                    yield chunk.features
            return
        for part in chunk_slices(len(self.rows), size):
            yield self.rows[part]


def _check_threshold(threshold: Any, metric: Metric) -> float:
    value = check_positive("threshold", threshold, zero=metric == "l2")
    if metric == "cosine" and value > 1:
        raise ValueError(
            f"threshold must be at most 1 with metric='cosine', got {value:g}"
        )
    return value


def _connect_zeros(components: Components, search: Search) -> None:
    """Pair rows of zeros of two tables, which are equal but have no cosine."""
    zeros = [np.flatnonzero(side.norms == 0) for side in search.sides]
    if all(map(len, zeros)):
        components.add_pairs(*zeros)  # at most one of each: equal rows are one


def _result(
    tables: list[_Source],
    origins: list[np.ndarray],
    components: Components,
    nearness: Nearness,
) -> NearDuplicates:
    offset = 0
    groups: list[np.ndarray] = []
    partners: list[np.ndarray] = []
    closeness: list[np.ndarray] = []
    two = len(tables) > 1
    for side, origin in enumerate(origins):
        rows, near = components.rows[side], components.nearest[side]
        labels = np.empty(len(origin), np.int64)
        labels[rows] = components.labels[offset : offset + len(rows)]
        offset += len(rows)
        first = np.full(len(origin), NONE)
        first[rows] = near
        partner, label = first[origin], labels[origin]
        if not two:
            partner = np.minimum(partner, _equals(origin))
        label[partner == NONE] = -1
        partner[partner == NONE] = -1
        groups.append(label)
        partners.append(partner)
        other = tables[1 - side] if two else tables[0]
        closeness.append(_closeness(tables[side].rows, other.rows, partner, nearness))
    numbered = _by_appearance(np.concatenate(groups))
    parts = np.split(numbered, [len(origins[0])])
    return NearDuplicates(
        group=parts[0],
        partner=partners[0],
        closeness=closeness[0],
        group_val=parts[1] if two else None,
        partner_val=partners[1] if two else None,
        closeness_val=closeness[1] if two else None,
        n_pairs=components.n_pairs + (0 if two else _equal_pairs(origins[0])),
        metric=nearness.metric,
        threshold=nearness.threshold,
    )


def _equals(origin: np.ndarray) -> np.ndarray:
    """Return the first other row that equals each row, `[n]`; NONE if none does."""
    numbers = np.arange(len(origin))
    first = np.where(origin == numbers, NONE, origin)
    repeated = np.flatnonzero(origin != numbers)[::-1]
    first[origin[repeated]] = repeated  # the last one written is the lowest
    return first


def _equal_pairs(origin: np.ndarray) -> int:
    counts = np.bincount(origin)
    return int((counts * (counts - 1) // 2).sum())


def _by_appearance(labels: np.ndarray) -> np.ndarray:
    """Number labels in the order of their first rows, `[n]` int32; -1 stays."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    known = labels[first] >= 0
    numbers = np.full(len(first), -1, np.int32)
    numbers[np.flatnonzero(known)[np.argsort(first[known])]] = np.arange(known.sum())
    return numbers[inverse.reshape(-1)]


def _closeness(
    rows: Any, others: Any, partner: np.ndarray, nearness: Nearness
) -> np.ndarray:
    """Return the cosine or distance of each row and its partner; NaN without one."""
    closeness = np.full(len(partner), np.nan)
    known = np.flatnonzero(partner >= 0)
    for part in chunk_slices(len(known), 4096):
        numbers = known[part]
        a, b = (
            Table(source, places, nearness.metric).exact(np.arange(len(places)))
            for source, places in ((rows, numbers), (others, partner[numbers]))
        )
        closeness[numbers] = nearness.closeness(a, b)
        if nearness.metric == "cosine":
            closeness[numbers[(a == b).all(axis=1)]] = 1
    return closeness
