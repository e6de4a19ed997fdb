"""Tables of numbers and categories: columns, missing values, bins.

Every column of two tables becomes whole numbers, the same for both: bins of equal
width for numbers, one number for each category. Missing values get one of their own.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._inputs.checks import check_concrete

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    Table = npt.ArrayLike | pd.DataFrame

_EXACT, _DIGITS = 2**53, 11  # float64's whole numbers, and those of int64 beyond
MISSING = -2  # below the bin for numbers under the lowest edge, -1
# Without `bins`: the first of `BINS` that fills at most `FILLED` bins of a column.
BINS, FILLED = (200, 100, 50, 20, 10, 5), 6


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of both tables, in bins or categories.

    Attributes:
        codes: Of the table, `[n]` int64; `MISSING` where a value is missing.
        hard_codes: Of the hard samples, `[m]` likewise.
        ordered: Whether codes are bins, so that their difference means something.
    """

    codes: np.ndarray
    hard_codes: np.ndarray
    ordered: bool


def read_columns(
    table: Table,
    hard_table: Table,
    *,
    bins: int | None,
    categorical: Sequence[Hashable] | None,
    edges_from: np.ndarray | slice,
) -> list[Column]:
    """Return the columns of both tables in bins and categories.

    Args:
        table: As for `binning_distance`.
        hard_table: As for `binning_distance`.
        bins: Bins of each numeric column, or None to choose for each.
        categorical: Names or numbers of columns, or None to go by their types.
        edges_from: Rows of the table that set the edges, together with all hard
            samples.
    """
    names, columns, kinds = split_columns("table", table)
    hard_names, hard_columns, hard_kinds = split_columns("hard_table", hard_table)
    check_same_columns(names, hard_names)
    chosen = kinds | hard_kinds if categorical is None else choose(categorical, names)
    result: list[Column] = []
    for j, (name, *pair) in enumerate(zip(names, columns, hard_columns, strict=True)):
        values, missing = zip(*(gaps(column) for column in pair), strict=True)
        as_category = j in chosen
        if categorical is None and not as_category:
            pairs = zip(values, missing, strict=True)
            as_category = not all(is_numeric(v[~gap]) for v, gap in pairs)
        if as_category:
            codes = _categories(name, values, missing)
        else:
            codes = _bins(name, values, missing, bins, edges_from)
        result.append(Column(*codes, ordered=not as_category))
    return result


def check_same_columns(names: list[Hashable], hard_names: list[Hashable]) -> None:
    """Raise if two tables have different columns."""
    if len(names) != len(hard_names):
        raise ValueError(
            "table and hard_table must have the same columns, got "
            f"{len(names)} and {len(hard_names)} of them"
        )
    if _named(names) and _named(hard_names) and names != hard_names:
        raise ValueError(
            "table and hard_table must have the same columns in the same order, got "
            f"{names} and {hard_names}"
        )


def split_columns(
    argument: str, table: Any
) -> tuple[list[Hashable], list[np.ndarray], set[int]]:
    """Return the names (or numbers) of a table's columns, and their values.

    Also return the positions of columns that pandas types as categories.
    """
    check_concrete(argument, table)
    kinds: set[int] = set()
    names: list[Hashable] = []
    columns: list[np.ndarray] = []
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        names.extend(table.columns)
        for j, dtype in enumerate(table.dtypes):
            if str(dtype) == "category":
                kinds.add(j)
            column = table.iloc[:, j]
            if not isinstance(dtype, np.dtype):  # a type of pandas' own
                column = column.astype(object)
            columns.append(column.to_numpy())
    else:
        # Nested lists may mix numbers and texts: those stay what they are.
        nested = not hasattr(table, "dtype")
        array = np.asarray(table, object if nested else None)
        if nested and array.ndim == 1:
            raise TypeError(f"{argument} must be a table, got ragged nested lists")
        if array.dtype.names and array.ndim == 1:
            names.extend(array.dtype.names)
            columns = [array[name] for name in array.dtype.names]
        elif array.ndim == 2:
            names.extend(range(array.shape[1]))
            columns = list(array.T)
        else:
            raise ValueError(
                f"{argument} must have shape [n, columns], one row a sample, got "
                f"{array.shape}"
            )
    if not columns or not len(columns[0]):
        rows = len(columns[0]) if columns else len(table)
        raise ValueError(
            f"{argument} must not be empty, got {rows} rows and {len(columns)} columns"
        )
    for name, column in zip(names, columns, strict=True):
        if column.ndim != 1 or column.dtype.kind not in "biufUSO":
            raise TypeError(
                f"{argument} must hold numbers or categories, but column {name!r} has "
                f"dtype {column.dtype} and shape {column.shape}"
            )
    return names, columns, kinds


def _named(names: list[Hashable]) -> bool:
    return names != list(range(len(names)))


def choose(categorical: Sequence[Hashable], names: list[Hashable]) -> set[int]:
    """Return the places of the columns that the caller calls categorical."""
    if isinstance(categorical, str) or not isinstance(categorical, Sequence):
        raise TypeError(
            "categorical must be a list of column names or numbers, got "
            f"{categorical!r}"
        )
    for name in categorical:
        if name not in names:
            raise ValueError(f"categorical must name columns of {names}, got {name!r}")
    return {names.index(name) for name in categorical}


def gaps(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a column and where its values are missing: NaN, None, NA or ""."""
    if column.dtype.kind == "f":
        return column, np.isnan(column)
    if column.dtype.kind in "US":
        return column, column == np.zeros(1, column.dtype)[0]
    if column.dtype.kind == "O":
        return column, np.fromiter(map(_is_missing, column), bool, len(column))
    return column, np.zeros(len(column), bool)


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, str | bytes) and not value):
        return True
    try:
        return bool(value != value)  # NaN and NaT
    except TypeError:  # pandas.NA, which is neither true nor false
        return True
    except ValueError:  # an array, which no column may hold
        return False


def is_numeric(values: np.ndarray) -> bool:
    """Return whether a column, without its gaps, is numeric; text never is."""
    if values.dtype.kind == "O":
        return all(isinstance(value, numbers.Real) for value in values)
    return values.dtype.kind in "biuf"


def _categories(name: Hashable, values: Any, missing: Any) -> list[np.ndarray]:
    """Number the categories of both tables together."""
    number: dict[Any, int] = {}
    pairs = zip(values, missing, strict=True)
    return [number_categories(name, v, gap, number) for v, gap in pairs]


def number_categories(
    name: Hashable,
    column: np.ndarray,
    gap: np.ndarray,
    number: dict[Any, int],
    *,
    more: bool = True,
) -> np.ndarray:
    """Return the numbers of the categories of a column, `MISSING` where it has a gap.

    Args:
        name: Of the column, for errors.
        column: Its values, `[n]`.
        gap: Where they are missing, `[n]`.
        number: The categories known so far.
        more: Whether to add others to these; they get -1 if not.
    """

    # NumPy's scalars and Python's compare alike; 1 and "1" are two categories.
    def of(value: Any) -> int:
        return number.setdefault(value, len(number)) if more else number.get(value, -1)

    codes = np.full(len(column), MISSING, np.int64)
    try:
        if column.dtype.kind == "O":
            known = [of(value) for value in column[~gap]]
        else:
            distinct, inverse = np.unique(column[~gap], return_inverse=True)
            known = np.asarray([of(v) for v in distinct.tolist()], np.int64)[inverse]
    except TypeError as error:
        raise TypeError(
            f"column {name!r} must hold categories that can be compared, got {error}"
        ) from error
    codes[~gap] = known
    return codes


def _bins(
    name: Hashable,
    values: Any,
    missing: Any,
    bins: int | None,
    edges_from: np.ndarray | slice,
) -> list[np.ndarray]:
    """Put the numbers of both tables into bins of equal width.

    Numbers outside the edges, which only `edges_from` allows, get a bin at either side.
    """
    pairs = [*zip(values, missing, strict=True)]
    origin = origin_of(*pairs[1]) or origin_of(*pairs[0])
    table, hard = (as_floats(name, column, gap, origin) for column, gap in pairs)
    known = np.concatenate([table[edges_from], hard])
    known = known[~np.isnan(known)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    check_range(name, low, high, finite=not np.isinf(table).any())
    if bins is None:
        bins = _choose_bins(known, low, high)
    return [digitise(column, low, high, bins) for column in (table, hard)]


def origin_of(column: np.ndarray, gap: np.ndarray) -> int:
    """Return an offset that makes whole numbers beyond 2^53 exact in float64, or 0.

    A multiple of 2^11, which float64 holds exactly.
    """
    known = column[~gap]
    if column.dtype.kind not in "iuO" or not known.size:
        return 0
    if column.dtype.kind == "O" and not all(isinstance(v, int) for v in known):
        return 0
    low, high = int(known.min()), int(known.max())
    return low >> _DIGITS << _DIGITS if max(-low, high) > _EXACT else 0


def as_floats(
    name: Hashable, column: np.ndarray, gap: np.ndarray, origin: int = 0
) -> np.ndarray:
    """Return a column of numbers, less an `origin_of`, as float64; NaN in a gap."""
    floats = np.full(len(column), np.nan)
    known = column[~gap]
    try:
        if origin and column.dtype.kind in "iu":
            # 64 - 11 bits are exact in float64; a difference in int64 could overflow.
            above = (known >> _DIGITS).astype(np.float64) - (origin >> _DIGITS)
            floats[~gap] = above * 2**_DIGITS + (known & (2**_DIGITS - 1))
        else:
            # Numbers of Python subtract exactly, floats next to the origin, too.
            floats[~gap] = (known - origin if origin else known).astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"column {name!r} must hold numbers, got {error}: list it in `categorical`"
        ) from error
    return floats


def check_range(name: Hashable, low: float, high: float, *, finite: bool) -> None:
    """Raise if a column has infinities, or a range that overflows float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        width = high - low
    if not (finite and np.isfinite(width)):
        raise ValueError(
            f"column {name!r} must hold finite numbers whose range fits float64"
        )


def _choose_bins(known: np.ndarray, low: float, high: float) -> int:
    # Some values rule most numbers of bins out: all fill at least as many.
    first = known[:500]
    for bins in BINS[:-1]:
        if all(
            len(np.unique(digitise(part, low, high, bins))) <= FILLED
            for part in (first, known)
        ):
            return bins
    return BINS[-1]


def digitise(values: np.ndarray, low: float, high: float, bins: int) -> np.ndarray:
    """Return bins from 0 on; -1 and `bins` outside the edges, `MISSING` for NaN.

    A number on an edge belongs to the bin above it, the highest edge to the last bin,
    as in `numpy.histogram`.
    """
    gap = np.isnan(values)
    code = np.zeros(len(values), np.int64)
    if high > low:
        edges = np.linspace(low, high, bins + 1)
        inside = np.clip(np.where(gap, low, values), low, high)
        code = ((inside - low) / (high - low) * bins).astype(np.int64)
        code = np.minimum(code, bins - 1)
        # Rounding may have put a number on the wrong side of an edge.
        code -= inside < edges[code]
        code += (inside >= edges[code + 1]) & (code < bins - 1)
    code[values < low], code[values > high], code[gap] = -1, bins, MISSING
    return code
