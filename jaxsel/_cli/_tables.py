"""Tables in files, as data frames: CSV with any separator, and parquet."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._messages import check_file
from ._parser import did_you_mean

if TYPE_CHECKING:
    import pandas

SEPARATED = (".csv", ".tsv")
TABLES = (*SEPARATED, ".parquet")
OTHER_TABLES = (
    *(".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".gz", ".zip"),
)
"""What people have tables in, too: refused, with the remedy."""

_ID = re.compile(
    r"unnamed: \d+|__index_level_0__|(.*[_ ])?(id|index|idx|uuid|row)", re.I
)
_FEW = 20  # rows that may all differ by chance
_EXACT = 2**53  # whole numbers up to this are told apart as floats


def read_frame(path: str) -> pandas.DataFrame:
    """Read a table; its columns' names are texts.

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
        frame = _read_text(path) if is_text else pd.read_parquet(path)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not in UTF-8: save it so, or convert it (iconv -f latin1 -t "
            f"utf-8 {path})"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    frame.columns = [str(name) for name in frame.columns]
    if not len(frame):
        raise ValueError(
            f"{path} has no rows, only the columns {listing(frame.columns)}: is it the "
            "right file?"
        )
    return frame


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
        path: What errors call the table.
        frame: The table.
        apart: Columns that are labels or ids, or None.
        columns: The features; None takes all others, less `drop`.
        drop: Columns to leave out. Not used where `columns` are given.

    Raises:
        ValueError: If one is not there.
    """
    named = [name for name in apart if name is not None]
    if columns is None:
        features = [c for c in frame.columns if c not in (*named, *drop)]
    else:
        features, drop = list(columns), ()
    missing = [c for c in (*named, *drop, *features) if c not in frame.columns]
    if missing:
        guess = did_you_mean(missing[0], frame.columns) if len(missing) == 1 else ""
        raise ValueError(
            f"{path} has no column {', '.join(map(repr, missing))}; it has "
            f"{listing(frame.columns)}{guess}"
        )
    return features


def numbers(path: str, frame: Any) -> np.ndarray:
    """Return columns of numbers as they are, `[n, d]`.

    Raises:
        TypeError: If one is not numeric.
    """
    import pandas as pd

    wrong = [c for c in frame if not pd.api.types.is_numeric_dtype(frame[c])]
    if wrong:
        raise TypeError(
            f"{path} must have numeric features, but {listing(map(repr, wrong))} "
            "hold others: encode such columns first, or leave them out with --drop"
        )
    return frame.to_numpy(np.float64, na_value=np.nan)


def check_columns(path: str, frame: Any, remedy: str) -> list[str]:
    """Return what is allowed of columns of features, but hardly ever meant.

    Args:
        path: What they call the table.
        frame: The features.
        remedy: Options that leave a column out.
    """
    import pandas as pd

    checks: list[str] = []
    for name in frame.columns:
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column) or len(column) < 2:
            continue
        values = column.to_numpy(np.float64, na_value=np.nan)
        if pd.api.types.is_integer_dtype(column) and _counts(name, column):
            checks.append(
                f"column {name!r} of {path} numbers the rows, and counts as a feature: "
                f"leave it out with {remedy}"
            )
        elif (
            np.nanmax(np.abs(values), initial=0) > _EXACT
            and (values[np.isfinite(values)] % 1 == 0).all()
        ):
            checks.append(
                f"column {name!r} of {path} has whole numbers beyond 2^53, which "
                "features cannot tell apart: if it is an id, leave it out with "
                f"{remedy}"
            )
    return checks


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


def _read_text(path: str) -> pandas.DataFrame:
    import pandas as pd

    with open(path, encoding="utf-8-sig", newline="") as file:
        header = file.readline()
    separator = ","
    try:
        separator = csv.Sniffer().sniff(header, ",;\t|").delimiter
    except csv.Error:  # one column
        if path.lower().endswith(".tsv"):
            separator = "\t"
    decimal = "."
    if separator == ";":  # as in countries whose decimal point is a comma
        first = pd.read_csv(path, sep=separator, dtype=str, nrows=1000)
        pattern = r"[+-]?\d+,\d+"
        if any(first[c].str.fullmatch(pattern, na=False).any() for c in first):
            decimal = ","
    return pd.read_csv(path, sep=separator, decimal=decimal, low_memory=False)
