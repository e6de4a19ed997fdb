"""Shapley values where the best of several players counts: sources of answers."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import (
    as_array,
    check_choice,
    check_concrete,
    check_count,
    check_finite,
    check_numeric,
)
from jaxsel._inputs.chunk import chunk_slices
from jaxsel._inputs.owners import Owners, check_owners
from jaxsel._inputs.rows import Rows
from jaxsel._inputs.usual_mistakes import doubt, doubt_values
from jaxsel._results.types import Provenance, Values
from jaxsel._runs.fingerprint import fingerprint
from jaxsel._runs.progress import track

from ._max_game import Block, Tally, largest, shares

_ENTRIES = 1 << 18  # scores in memory at once: 2 MB of float64
_SMALLEST, _LARGEST = 1e-15, 1e15  # squares of scores that fit float32
_FEW = 50  # queries of which nothing is concluded
_APART = 1e3  # times the median query's best score


def max_shapley(
    scores: npt.ArrayLike | jax.Array | Rows,
    *,
    ids: npt.ArrayLike | jax.Array | Rows | None = None,
    n: int | None = None,
    owners: npt.ArrayLike | None = None,
    query_weights: npt.ArrayLike | None = None,
    reduce: Literal["mean"] | None = "mean",
    chunk_size: int | None = None,
    progress: bool = False,
) -> Values:
    """Return the exact Shapley value of each document for the best score of queries.

    The worth of a set S of documents is the mean over queries of
    `w_q * max(0, max of s_qi over i in S)`: each query is served by its best document
    alone. Values divide the worth of all documents among them. Use it to pay the
    sources of retrieved answers, with s_qi the relevance of document i to query q, or
    samples for the queries that they cover.

    Sorted in ascending order, `0 = s_(0) <= s_(1) <= ... <= s_(m)`, the document at
    place j of a query earns the sum over t = 1..j of
    `(s_(t) - s_(t-1)) / (m - t + 1)`: each rise is shared by the documents that reach
    it. Scores below zero count as zero, and documents of equal score earn the same.

    Args:
        scores: Scores `[q, m]` of m documents for q queries, of any unit, or `Rows` of
            them from `data.open_rows`. NaN where a document is no candidate of a query:
            it earns nothing there. A query may have no candidates.
        ids: The document of each score, `[q, m]` whole numbers from 0 to n - 1, or -1
            for none, where each query has candidates of its own. Of several scores of
            one document for a query the largest counts. None: the document is the
            column.
        n: Number of documents, with `ids` only; the length of `owners` or the largest
            id and one if None. Results that are to be merged need the same n.
        owners: The owner of each document, `[n]`, by labels of any kind. Owners are
            then the players: each brings all of its documents or none, so that its
            score for a query is the largest of its documents'. An owner gains nothing
            by handing in a document twice. For sums over documents as players call
            `by_owner` of the result without `owners`.
        query_weights: Weight w_q of each query, `[q]`, zero or more; 1 if None.
        reduce: "mean" over queries, or None: one row for each query.
        chunk_size: Queries at a time; chosen from m by default. Changes no result
            beyond rounding.
        progress: Whether to show a progress bar.

    Returns:
        `Values`, `[n]`, or one for each owner with `index` their labels; `[q, n]` with
        `reduce=None`. They are in the unit of scores. The standard error is that of
        the mean over queries. Results over further queries `merge`. Computed in
        float64, and rounded to float32 at the end.

    Costs a sort of each query, O(q·m log m), on the host. Memory above the result is
    some 60 bytes for each score of a chunk.

    Raises:
        ValueError: If shapes do not fit, a score is infinite, the largest times its
            weight is not within 1e-15 to 1e15, an id is no document, a weight is
            negative or not finite, or an argument is out of range.
        TypeError: If an argument has the wrong type, or is being traced.

    Warns:
        UserWarning: If no score is above zero, or one query's best score is more than
            1,000 times the median one.

    References:
        MaxShapley: Towards incentive-compatible generative search with fair context
        attribution, arXiv 2512.05958, 2025, for the game of documents; Littlechild and
        Owen, A simple expression for the Shapley value in a special case, Management
        Science 20(3), 1973, for the closed form.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> scores = np.array([[0.9, 0.6, 0.0], [np.nan, 0.4, 0.8]])
        >>> values = jaxsel.max_shapley(scores)
        >>> print(np.asarray(values.values).round(2))  # 0.85, the mean best score
        [0.3  0.25 0.3 ]
        >>> values = jaxsel.max_shapley(scores, owners=["a", "b", "a"])
        >>> print(np.asarray(values.values).round(2), values.index)
        [0.6  0.25] ('a', 'b')
    """
    check_choice("reduce", reduce, ("mean", None))
    queries = _open(scores, ids, query_weights, chunk_size, progress)
    players = _players(queries, n, owners)
    tally = Tally(players.count, keep=reduce is None)
    best: list[np.ndarray] = []
    for part in queries.blocks(players):
        block = _block(queries, players, part)
        top = np.max(block.gains, axis=1, initial=0)
        block.values = shares(block.gains)
        if block.weights is not None:
            block.values *= block.weights[:, None]
            top *= block.weights
        best.append(top)
        tally.add(block)
    tops = np.concatenate(best)
    if queries.weights is not None and len(queries.weights) != len(tops):
        raise ValueError(
            f"query_weights must have one weight for each of the {len(tops)} queries, "
            f"got {len(queries.weights)}"
        )
    _check_tops(tops)
    values = tally.result()
    check_concrete("scores", values.values)
    if reduce is not None:
        doubt_values(np.asarray(values.values))
    method = "max_shapley" if owners is None else f"max_shapley(owners={players.count})"
    digest = fingerprint(
        queries.rows.about if isinstance(queries.rows, Rows) else queries.rows,
        queries.ids.about if isinstance(queries.ids, Rows) else queries.ids,
        queries.weights,
    )
    known = {"documents, or their owners": fingerprint(players.count, players.codes)}
    return dataclasses.replace(
        values,
        method=method,
        reduce=reduce,
        index=players.names,
        provenance=Provenance(known, (f"{len(tops)} queries {digest}",)),
    )


@dataclasses.dataclass(frozen=True)
class _Players:
    """Players, and which of them each document belongs to.

    Attributes:
        count: Number of players.
        codes: Player of each document, `[n]`; None where documents are the players.
        names: Their labels, or None.
        n: Number of documents.
    """

    count: int
    codes: np.ndarray | None
    names: tuple[Any, ...] | None
    n: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Queries:
    """Checked arguments: scores `[q, m]`, ids, weights, and how to read them."""

    rows: Any
    ids: Any
    weights: np.ndarray | None
    width: int
    chunk_size: int | None
    progress: bool

    def blocks(self, players: _Players) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of the first query of a block, and its scores `[b, m]`."""
        # No fewer scores at a time than players, whose sums each block goes through.
        least = players.count if self.ids is not None else 0
        size = self.chunk_size or max(4, max(_ENTRIES, least) // self.width)
        if isinstance(self.rows, Rows):
            with contextlib.closing(self.rows.chunks(size, check=False)) as chunks:
                total = None if self.rows.n is None else -(-self.rows.n // size)
                for chunk in self._tracked(chunks, total):
                    yield chunk.start, chunk.features
            return
        parts = chunk_slices(len(self.rows), size)
        for part in self._tracked(parts, len(parts)):
            yield part.start, self.rows[part]

    def _tracked(self, items: Any, total: int | None) -> Any:
        return track(items, progress=self.progress, label="max_shapley", total=total)


def _open(
    scores: Any, ids: Any, weights: Any, chunk_size: int | None, progress: bool
) -> _Queries:
    if chunk_size is not None:
        chunk_size = check_count("chunk_size", chunk_size)
    rows = (
        scores if isinstance(scores, Rows) else np.asarray(as_array("scores", scores))
    )
    if not isinstance(rows, Rows):
        check_numeric("scores", rows)
    if rows.ndim != 2:
        remedy = "; pass one query as scores[None]" if rows.ndim == 1 else ""
        shape = f"{rows.ndim} axes" if isinstance(rows, Rows) else f"{rows.shape}"
        raise ValueError(
            f"scores must have shape [q, m], one row a query, got {shape}{remedy}"
        )
    width = rows.source.row_shape[0] if isinstance(rows, Rows) else rows.shape[1]
    if not width or (not isinstance(rows, Rows) and not len(rows)):
        raise ValueError(f"scores must not be empty, got shape {rows.shape}")
    if ids is not None:
        ids = ids if isinstance(ids, Rows) else np.asarray(as_array("ids", ids))
        if ids.dtype.kind not in "iu":
            raise TypeError(f"ids must be whole numbers, got {ids.dtype}")
        if ids.ndim != 2 or ids.shape[1] != width or ids.shape[0] != len(rows):
            raise ValueError(
                f"ids must have the shape of scores, {rows.shape}, got {ids.shape}"
            )
    if weights is not None:
        weights = np.asarray(as_array("query_weights", weights))
        check_numeric("query_weights", weights)
        if weights.ndim != 1:
            raise ValueError(
                f"query_weights must have shape [q], one a query, got {weights.shape}"
            )
        weights = weights.astype(np.float64)
        check_finite("query_weights", weights)
        if (weights < 0).any():
            place = int(weights.argmin())
            raise ValueError(
                f"query_weights must be zero or more, got {weights[place]:g} for query "
                f"{place}"
            )
    return _Queries(
        rows=rows,
        ids=ids,
        weights=weights,
        width=width,
        chunk_size=chunk_size,
        progress=progress,
    )


def _players(queries: _Queries, n: int | None, owners: Any) -> _Players:
    if queries.ids is None:
        if n is not None and n != queries.width:
            raise ValueError(
                f"n must be left out without ids: scores have {queries.width} columns, "
                f"got {n}"
            )
        n = queries.width
    elif n is not None:
        n = check_count("n", n)
    elif owners is not None:
        n = len(owners.codes) if isinstance(owners, Owners) else np.asarray(owners).size
    else:
        size = max(1, _ENTRIES // queries.width)
        parts = chunk_slices(len(queries.ids), size)
        n = max(1, *(int(queries.ids[part].max()) + 1 for part in parts))
    if owners is None:
        return _Players(n, None, None, n)
    codes, names = check_owners(owners, n)
    return _Players(len(names), codes, names, n)


def _block(queries: _Queries, players: _Players, part: tuple[int, np.ndarray]) -> Block:
    """Return the gains of players in a block of queries."""
    start, scores = part
    rows = slice(start, start + len(scores))
    scores = np.asarray(scores, np.float64)
    if np.isinf(scores).any():
        row = start + int(np.isinf(scores).any(axis=1).argmax())
        raise ValueError(
            f"scores must be finite, or NaN for no candidate, but query {row} has "
            "infinity"
        )
    gains = np.fmax(scores, 0.0)  # NaN, too, becomes 0
    weights = None if queries.weights is None else queries.weights[rows]
    if weights is not None and len(weights) < len(gains):
        raise ValueError(
            "query_weights must have one weight for each query, got "
            f"{len(queries.weights or ())} for more queries"
        )
    if queries.ids is None:
        if players.codes is not None:
            # `reduceat` takes runs, so columns go by owner. Of an empty run it would
            # return the next owner's gain; numbered by appearance, no owner has one.
            order = np.argsort(players.codes, kind="stable")
            starts = np.searchsorted(players.codes[order], np.arange(players.count))
            gains = np.maximum.reduceat(gains[:, order], starts, axis=1)
        return Block(gains, None, weights)
    ids = np.asarray(queries.ids[rows], np.int64)
    wrong = (ids < -1) | (ids >= players.n)
    if wrong.any():
        row, column = (int(axis[0]) for axis in np.nonzero(wrong))
        raise ValueError(
            f"ids must be documents from 0 to {players.n - 1}, or -1 for none, got "
            f"{ids[row, column]} for query {start + row}"
        )
    places = ids if players.codes is None else np.where(ids < 0, -1, players.codes[ids])
    gains[places < 0] = 0
    return Block(*largest(gains, places), weights)


def _check_tops(tops: np.ndarray) -> None:
    """Refuse scores with squares beyond float32, and warn of scores that say little.

    Args:
        tops: The best score of each query, at least 0, times its weight, `[q]`.
    """
    top = float(tops.max())
    if top == 0:
        doubt(
            "scores has no number above 0, so that all values are 0: pass similarities "
            "or gains, not distances or losses"
        )
        return
    if not _SMALLEST <= top <= _LARGEST:
        raise ValueError(
            "scores must have squares that fit float32: the largest must be "
            f"{_SMALLEST:g} to {_LARGEST:g}, got {top:.3g}; rescale them"
        )
    usual = float(np.median(tops[tops > 0]))
    if len(tops) >= _FEW and top > _APART * usual:
        doubt(
            f"the best score of query {int(tops.argmax())} is {top:.3g}, where that of "
            f"the median query is {usual:.3g}, so that it decides the values: divide "
            "the scores of each query by its best, or set query_weights"
        )
