"""Tables in files, as data frames: CSV with any separator, and parquet."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._inputs.frames import is_index, spread_lists
from jaxsel._inputs.usual_mistakes import doubt

from ._messages import check_file
from ._parser import did_you_mean
from ._separated import clean_names, read_separated

if TYPE_CHECKING:
    import pandas

SEPARATED = (".csv", ".tsv")
TABLES = (*SEPARATED, ".parquet")
OTHER_TABLES = (
    *(".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".gz", ".zip"),
)
"""Suffixes of other table formats: refused, with the remedy."""

_ID = re.compile(
    r"unnamed: \d+|__index_level_0__|(.*[_ ])?(id|index|idx|uuid|row)", re.I
)
_FEW = 20  # rows that may all differ by chance
_EXACT = 2**53  # whole numbers up to this are told apart as floats


def check_numbers(path: str, column: Any, remedy: str = "") -> None:
    """Raise unless a column has numbers.

    Args:
        path: The file.
        column: The column.
        remedy: What the error ends with.

    Raises:
        ValueError: If it has texts; names the first.
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        return
    others = np.flatnonzero(pd.isna(pd.to_numeric(column, errors="coerce")))
    row = int(others[0]) if others.size else 0
    raise ValueError(
        f"{path} must have numbers in column {column.name!r}, but row {row} has "
        f"{column.iloc[row]!r}{remedy}"
    )


def read_frame(path: str, texts: Collection[str] = ()) -> pandas.DataFrame:
    """Read a table; its columns' names are texts, its index counts the rows.

    Warnings name guesses and omitted rows.

    Args:
        path: The file.
        texts: Columns in which, of a CSV file, only an empty entry is a gap, and
            numbers with leading zeros are texts: labels and ids, which may be called
            "NA" or "007".

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or has no rows.
        ImportError: If pandas or pyarrow is missing.
    """
    is_text = path.lower().endswith(SEPARATED)
    try:
        import pandas as pd

        if not is_text:
            import pyarrow  # noqa: F401
    except ImportError as error:
        needs = "pandas" if is_text else "pandas and pyarrow"
        raise ImportError(
            f"reading {path} needs {needs}: pip install 'jaxsel[data]'"
        ) from error
    check_file(path)
    try:
        if is_text:
            frame = read_separated(path, texts)
        else:
            frame = _with_index(path, pd.read_parquet(path))
            frame.columns = clean_names(path, [str(name) for name in frame.columns])
            frame = spread_lists(frame, path)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not in UTF-8: save it so, or convert it (iconv -f cp1252 -t "
            f"utf-8 {path} > new.csv)"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not len(frame):
        raise ValueError(
            f"{path} has no rows, only the columns {listing(frame.columns)}: is it the "
            "right file?"
        )
    return frame


def named_as_asked(
    path: str, frame: pandas.DataFrame, asked: Iterable[str | None]
) -> pandas.DataFrame:
    """Rename columns to the names asked for where these differ in case only."""
    known: dict[str, list[str]] = {}
    for name in frame.columns:
        known.setdefault(name.casefold(), []).append(name)
    names: dict[str, str] = {}
    for name in asked:
        if name is None or name in frame.columns:
            continue
        alike = known.get(name.strip().casefold(), [])
        if len(alike) == 1:
            names[alike[0]] = name
            doubt(f"column {alike[0]!r} of {path} is taken for {name!r}")
    return frame.rename(columns=names) if names else frame


def choose_columns(
    path: str,
    frame: pandas.DataFrame,
    *,
    apart: Sequence[str | None],
    columns: Sequence[str] | None,
    drop: Sequence[str],
) -> list[str]:
    """Return the columns that are features.

    Args:
        path: The table's name in errors.
        frame: The table.
        apart: Columns that are labels or ids, or None.
        columns: The features; None takes all others, less `drop` and the names of
            rows that pandas or R wrote.
        drop: Columns to leave out. Not used where `columns` are given.

    Raises:
        ValueError: If one is not there.
    """
    named = [name for name in apart if name is not None]
    if columns is None:
        features = [c for c in frame.columns if c not in (*named, *drop)]
        rows = frame.attrs.get("rows", ["Unnamed: 0"])
        for name in [c for c in features if c in rows]:
            features.remove(name)
            doubt(
                f"column {name!r} of {path} is an index, which names the rows, and is "
                "left out: rename it if it is a feature"
            )
        for name in [c for c in features if re.fullmatch(r"Unnamed: \d+", c)]:
            doubt(f"{name!r} of {path} has no name in the header, and is a feature")
    else:
        features, drop = list(columns), ()
    missing = [c for c in (*named, *drop, *features) if c not in frame.columns]
    if missing:
        guess = did_you_mean(missing[0], frame.columns) if len(missing) == 1 else ""
        raise ValueError(
            f"{path} has no column {', '.join(map(repr, missing))}; it has "
            f"{listing(map(repr, frame.columns))}{guess}"
        )
    return features


def numbers(path: str, frame: Any) -> np.ndarray:
    """Return columns of numbers as they are, `[n, d]`.

    Raises:
        TypeError: If one is not numeric.
        ValueError: If one holds infinity.
    """
    import pandas as pd

    wrong = [c for c in frame if not pd.api.types.is_numeric_dtype(frame[c])]
    if wrong:
        raise TypeError(
            f"{path} must have numeric features, but {listing(map(repr, wrong))} "
            "hold others: encode such columns first, or leave them out with --drop"
        )
    values: np.ndarray = frame.to_numpy(np.float64, na_value=np.nan)
    rows, columns = np.nonzero(np.isinf(values))
    if rows.size:
        raise ValueError(
            f"{path} must hold finite numbers, but column "
            f"{frame.columns[columns[0]]!r} has infinity in row "
            f"{frame.index[rows[0]]} ({len(np.unique(rows))} of {len(frame)} rows do): "
            "correct it, or leave the row out"
        )
    return values


def check_columns(path: str, frame: Any, remedy: str) -> None:
    """Warn of columns that are legal features, but usually a mistake.

    Args:
        path: The table's name in warnings.
        frame: The features.
        remedy: Options that leave a column out.
    """
    import pandas as pd

    for name in frame.columns:
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column) or len(column) < 2:
            continue
        values = column.to_numpy(np.float64, na_value=np.nan)
        if pd.api.types.is_integer_dtype(column) and _counts(name, column):
            doubt(
                f"column {name!r} of {path} numbers the rows, and counts as a feature: "
                f"leave it out with {remedy}"
            )
        elif (
            np.nanmax(np.abs(values), initial=0) > _EXACT
            and (values[np.isfinite(values)] % 1 == 0).all()
        ):
            doubt(
                f"column {name!r} of {path} has whole numbers beyond 2^53, which "
                "features cannot tell apart: if it is an id, leave it out with "
                f"{remedy}"
            )


def listing(names: Any, most: int = 20) -> str:
    """Return names with commas, the first few of many."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _counts(name: str, column: Any) -> bool:
    """Return whether whole numbers all differ, and are an id by name or in order."""
    if len(column) < _FEW or column.nunique() < len(column):
        return False
    return _ID.fullmatch(name) is not None or bool((column.diff()[1:] == 1).all())


def _with_index(path: str, frame: pandas.DataFrame) -> pandas.DataFrame:
    """Make columns of the index that pandas kept in a parquet file, if it has names."""
    names = [name for name in frame.index.names if name is not None]
    names = [name for name in names if not is_index(name)]
    if not names:
        return frame.reset_index(drop=True)
    taken = [str(name) for name in names if name in frame.columns]
    if taken:
        raise ValueError(f"its index and a column are both called {taken[0]!r}")
    is_unique = frame.index.is_unique
    frame = frame.reset_index()
    frame = frame.drop(columns=[c for c in frame if str(c).startswith("level_")])
    if is_unique:
        frame.attrs["rows"] = [str(name) for name in names]
    else:
        doubt(
            f"the index of {path}, {listing(map(repr, names))}, names several rows "
            "alike, and is taken for a column"
        )
    return frame
