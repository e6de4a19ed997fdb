"""The binning distance between rows of tables (Algorithm 4).

References:
    Mycroft: Towards Effective and Efficient External Data Augmentation, appendix E.2
    and Algorithm 4.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Int32, Integer

from jaxsel._inputs.checks import check_choice, check_concrete, check_count
from jaxsel._inputs.rows import Rows
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel._results.types import Selection

from ._binned_rows import row_columns
from ._coverage import cover
from ._retrieve import selection
from ._table import MISSING, Column, read_columns

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._table import Table

Mode = Literal["hamming", "per_feature"]
MODES = ("hamming", "per_feature")
# Rows of codes at a time: with a few dozen columns they stay in a core's cache. And
# distances to all hard samples at a time, at 4 bytes each.
_ROWS, _PAIRS = 2**16, 2**22
_FEW = 10  # rows chosen, of which ties say little


def binning_distance(
    table: Table | Rows,
    hard_table: Table,
    *,
    mode: Mode = "hamming",
    bins: int | None = None,
    categorical: Sequence[Hashable] | None = None,
    edges_from: npt.ArrayLike | None = None,
    chunk_size: int | None = None,
    progress: bool = False,
) -> jax.Array:
    """Return the distance of each row of a table from the nearest hard sample, in bins.

    Columns of numbers are cut into bins of equal width, whose edges come from both
    tables, so that units and scales don't matter. A table is a pandas DataFrame, a
    structured array, or a `[n, columns]` array of numbers, text or objects. NaN, None,
    pandas.NA and "" are missing values, in a bin of their own.

    "hamming" counts the columns in which a row and a hard sample are in different bins,
    and takes the least count over the hard samples. "per_feature" takes, for each
    column by itself, the hard sample whose bin is nearest, and adds up these
    differences in bins, so a row can match different hard samples in different columns.
    Two different categories, or a missing and a known value, are then one bin apart.

    `Rows`, whose columns are numbers or categories that are numbers, are read in
    passes: one for the edges, one for the numbers of bins if `bins` is None, and one
    for the distances. A column that is categorical takes part in the last only. The
    result is that of the whole array.

    Costs O(n·m·columns) for "hamming" and O((n + m)·columns) for "per_feature". Memory
    for codes of the whole table, or, with `Rows`, for three chunks and the result.

    Args:
        table: The owner's samples, n rows: a table in memory, or `Rows` `[n, columns]`
            of `data.open_rows`.
        hard_table: The hard samples, m rows with the same columns.
        mode: "hamming", as in the paper, or "per_feature", as in its public code.
        bins: Bins in each column of numbers; None takes for each the first of 200, 100,
            50, 20, 10, 5 of which at most 6 are not empty.
        categorical: Columns that hold categories, by name (by number in a plain array);
            all others must then hold numbers, or text that reads as such. None goes by
            type: text and objects other than numbers are categories.
        edges_from: Row numbers, or a mask `[n]`: the owner's samples that, with the
            hard samples, set edges and numbers of bins; all of them if None. Numbers
            beyond the edges get a bin of their own at either side. Must be None for
            `Rows` of an iterator.
        chunk_size: Rows of `Rows` at a time, or None to choose: changes speed and
            memory, not the result.
        progress: Whether to show a progress bar for each pass over `Rows`.

    Returns:
        Array of shape `[n]`, int32.

    Raises:
        ValueError: If a table is empty or not two-dimensional, columns differ, a column
            of numbers has infinities, an option is out of range, or a source changed.
        TypeError: If a column holds neither numbers nor categories.

    References:
        Mycroft: Towards Effective and Efficient External Data Augmentation,
        Algorithm 4.

    Examples:
        >>> import pandas as pd
        >>> import jaxsel
        >>> owner = pd.DataFrame(
        ...     {"bytes": [10, 10_000, 12], "protocol": ["tcp", "udp", "tcp"]}
        ... )
        >>> attack = pd.DataFrame({"bytes": [11], "protocol": ["tcp"]})
        >>> print(jaxsel.binning_distance(owner, attack, bins=10))  # columns
        [0 2 0]
    """
    parts = _parts(
        table,
        hard_table,
        mode=mode,
        bins=bins,
        categorical=categorical,
        edges_from=edges_from,
        chunk_size=chunk_size,
        progress=progress,
    )
    return jnp.asarray(np.concatenate([_distances(part, mode) for part in parts]))


def _parts(
    table: Table | Rows,
    hard_table: Table,
    *,
    mode: Mode,
    bins: int | None,
    categorical: Sequence[Hashable] | None,
    edges_from: npt.ArrayLike | None,
    chunk_size: int | None,
    progress: bool,
) -> Iterator[list[Column]]:
    """Check the arguments of `binning_distance`; yield the columns of a few rows."""
    check_choice("mode", mode, MODES)
    bins = None if bins is None else check_count("bins", bins)
    if chunk_size is not None:
        chunk_size = check_count("chunk_size", chunk_size)
    options: Any = {"bins": bins, "categorical": categorical}
    if isinstance(table, Rows):
        if table.n is None and edges_from is not None:
            raise ValueError(
                "edges_from must be None for rows of an iterator, got "
                f"{type(edges_from).__name__}"
            )
        n = 0 if table.n is None else table.n
        options |= {"chunk_size": chunk_size, "progress": progress}
        edges = _edge_rows(edges_from, n)
        return row_columns(table, hard_table, edges_from=edges, **options)
    edges = _edge_rows(edges_from, _length(table))
    return iter([read_columns(table, hard_table, edges_from=edges, **options)])


def retrieve_binned(
    table: Table | Rows,
    hard_table: Table,
    budget: int,
    *,
    coverage: bool = False,
    mode: Mode = "hamming",
    bins: int | None = None,
    categorical: Sequence[Hashable] | None = None,
    edges_from: npt.ArrayLike | None = None,
    chunk_size: int | None = None,
    progress: bool = False,
) -> Selection:
    """Choose the rows of a table with the least binning distance to the hard samples.

    Arguments and errors as for `binning_distance`, and:

    Args:
        table: The owner's samples, n rows: a table, or `Rows`.
        hard_table: The hard samples, m rows with the same columns.
        budget: How many rows to choose.
        coverage: Whether to cover the hard samples, as `retrieve_nearest` does: each
            lists the rows by the number of columns in which they differ, and rank by
            rank each adds its row of that rank, if it is new. All rows chosen without
            it may be near to the same hard sample. Only with mode "hamming", as
            "per_feature" has no distance from a single hard sample. Needs memory for
            m·budget numbers.
        mode: "hamming" or "per_feature".
        bins: Bins in each column of numbers, or None to choose for each.
        categorical: Columns that hold categories.
        edges_from: Rows of the table that set the edges.
        chunk_size: Rows of `Rows` at a time, or None to choose.
        progress: Whether to show progress bars.

    Returns:
        Indices `[budget]`, nearest first, or in the order of coverage, ties by lower
        index, with weight 1. With fewer rows than `budget`, all of them, and `n_valid`
        says how many.

    Raises:
        ValueError: As for `binning_distance`, or if `budget` is less than 1, or with
            `coverage` and mode "per_feature".
        TypeError: As for `binning_distance`.

    References:
        Mycroft: Towards Effective and Efficient External Data Augmentation,
        Algorithm 4, and section 3.2 with Algorithm 3 (coverage).

    Examples:
        >>> import pandas as pd
        >>> import jaxsel
        >>> owner = pd.DataFrame(
        ...     {"bytes": [10, 10_000, 12], "protocol": ["tcp", "udp", "tcp"]}
        ... )
        >>> attack = pd.DataFrame({"bytes": [11], "protocol": ["tcp"]})
        >>> selection = jaxsel.retrieve_binned(owner, attack, 2, bins=10)
        >>> print(selection.indices)
        [0 2]
    """
    budget = check_count("budget", budget)
    options: Any = {"mode": mode, "bins": bins, "categorical": categorical}
    options |= {"edges_from": edges_from, "chunk_size": chunk_size}
    options["progress"] = progress
    if coverage:
        if mode == "per_feature":
            raise ValueError(
                "coverage must be False with mode='per_feature', which has no distance "
                f"from a single hard sample, got {coverage!r}"
            )
        parts = _parts(table, hard_table, **options)
        order = cover((near for part in parts for near in _pairwise(part)), budget)
        more = ", coverage=True"
    else:
        distance = binning_distance(table, hard_table, **options)
        check_concrete("table", distance)
        near = np.asarray(distance)
        order = np.argsort(near, kind="stable")[:budget]
        _doubt_ties(near, order)
        more = ""
    return selection(order, f"retrieve_binned(mode={mode!r}, bins={bins}{more})")


def _doubt_ties(near: np.ndarray, order: np.ndarray) -> None:
    """Warn if the order of the table decides about most of the rows chosen."""
    tied = int((near == near[order[-1]]).sum())
    chosen = int((near[order] == near[order[-1]]).sum())
    if tied > 2 * chosen and chosen > max(0.8 * len(order), _FEW):
        doubt(
            f"{chosen} of the {len(order)} rows chosen are as near to the hard samples "
            f"as {tied - chosen} others, and only come first in the table: choose by "
            "coverage, with other bins, or by another method"
        )


def fewest_mismatches(
    codes: Integer[jax.Array, "n columns"], hard_codes: Integer[jax.Array, "m columns"]
) -> Int32[jax.Array, " n"]:
    """Count the columns in which rows differ from the most similar hard sample.

    A pure kernel. Costs m·n·columns comparisons and O(n) memory.

    Args:
        codes: Array of shape `[n, columns]`, whole numbers.
        hard_codes: Array of shape `[m, columns]`.

    Returns:
        Array of shape `[n]`, int32.
    """
    columns = codes.T  # contiguous along n, the axis that is vectorised

    def compare(fewest: jax.Array, hard: jax.Array) -> tuple[jax.Array, None]:
        differ = jnp.sum(columns != hard[:, None], axis=0, dtype=jnp.int32)
        return jnp.minimum(fewest, differ), None

    most = jnp.full(codes.shape[0], codes.shape[1], jnp.int32)
    return lax.scan(compare, most, hard_codes)[0]


_fewest: Callable[..., jax.Array] = jax.jit(fewest_mismatches)


def _pairwise(columns: list[Column]) -> Iterator[np.ndarray]:
    """Yield numbers of differing columns, of hard samples and a few rows, `[m, b]`."""
    codes, hard_codes = _compact(columns)
    size = max(1, _PAIRS // len(hard_codes))
    dtype = np.min_scalar_type(len(columns))
    for start in range(0, len(codes), size):
        block = codes[start : start + size].T
        near = np.empty((len(hard_codes), block.shape[1]), dtype)
        for h, hard in enumerate(hard_codes):
            near[h] = np.sum(block != hard[:, None], axis=0, dtype=dtype)
        yield near


def _length(table: Any) -> int:
    return len(table) if hasattr(table, "__len__") else 0


def _edge_rows(edges_from: Any, n: int) -> np.ndarray | slice:
    if edges_from is None:
        return slice(None)
    check_concrete("edges_from", edges_from)
    rows = np.asarray(edges_from)
    if rows.ndim == 1 and rows.dtype == bool and len(rows) == n:
        return rows
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(
            f"edges_from must hold row numbers, or be a mask of shape ({n},), got "
            f"dtype {rows.dtype} and shape {rows.shape}"
        )
    rows = rows.astype(np.int64)
    if rows.size and not (rows.min() >= 0 and rows.max() < n):
        raise ValueError(
            f"edges_from must hold row numbers from 0 to {n - 1}, got {rows.min()} to "
            f"{rows.max()}"
        )
    return rows


def _distances(columns: list[Column], mode: Mode) -> np.ndarray:
    """Return the distances of some rows, `[b]` int32."""
    if mode == "per_feature":
        return _per_feature(columns).astype(np.int32)
    codes, hard_codes = _compact(columns)
    parts: list[np.ndarray] = []
    for start in range(0, len(codes), _ROWS):
        near = _fewest(codes[start : start + _ROWS], hard_codes)
        check_concrete("table", near)
        parts.append(np.asarray(near))
    return np.concatenate(parts)


def _compact(columns: list[Column]) -> tuple[np.ndarray, np.ndarray]:
    """Renumber codes that occur in the hard samples from 1 on; all others become 0.

    One byte a code will then do, unless a column has 256 kinds of hard samples.
    """
    shape = len(columns)
    hard = np.empty((len(columns[0].hard_codes), shape), np.int32)
    rows = np.empty((len(columns[0].codes), shape), np.int32)
    for j, column in enumerate(columns):
        kinds, hard[:, j] = np.unique(column.hard_codes, return_inverse=True)
        place = np.searchsorted(kinds, column.codes)
        place = np.minimum(place, len(kinds) - 1)
        rows[:, j] = np.where(kinds[place] == column.codes, place, -1)
    dtype = np.uint8 if hard.max() < 255 else np.int32
    return (rows + 1).astype(dtype), (hard + 1).astype(dtype)


def _per_feature(columns: list[Column]) -> np.ndarray:
    """Sum over columns the distance from the nearest bin of a hard sample."""
    total = np.zeros(len(columns[0].codes), np.int64)
    for column in columns:
        kinds = np.unique(column.hard_codes)
        gap = column.codes == MISSING
        has_gap, kinds = MISSING in kinds, kinds[kinds != MISSING]
        if not column.ordered:
            near = ~np.isin(column.codes, kinds)
        elif kinds.size:
            place = np.searchsorted(kinds, column.codes)
            below = kinds[np.maximum(place - 1, 0)]
            above = kinds[np.minimum(place, len(kinds) - 1)]
            near = np.minimum(
                np.abs(column.codes - below), np.abs(column.codes - above)
            )
        else:
            near = np.ones(len(column.codes), np.int64)
        # A gap has no place among the bins: it is one bin away from any of them.
        near = np.where(gap, not has_gap, near)
        total += np.minimum(near, 1) if has_gap else near
    return total
