"""Infer the kinds of the columns of a table, and convert them."""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from jaxsel._inputs.labels import warn_spelling
from jaxsel._inputs.texts import Reading, days, is_gap, read_texts
from jaxsel._inputs.usual_mistakes import doubt

_DISTINCT = 0.5  # of the rows: a column of more different texts has no categories
_GAPS = 0.05  # share of texts in a column of numbers that may become gaps
_FEW = 20  # distinct texts that are categories however few the rows are
_DECIMALS: Any = (float, np.floating, decimal.Decimal)


class Typed(NamedTuple):
    """A column of one kind.

    Attributes:
        kind: "number", "date" or "category".
        form: How its texts were written; see `Number`.
        values: Floats with NaN, or texts with None, `[n]`.
    """

    kind: str
    form: str
    values: np.ndarray


class _Unusable(Exception):
    """A column that cannot be encoded: a clause after its name, and its type."""

    def __init__(self, clause: str, kind: type[Exception]):
        super().__init__(clause)
        self.kind = kind


def typed(
    frame: Any, known: Mapping[str, tuple[str, str]] | None = None
) -> dict[str, Typed]:
    """Convert the columns of a table, and warn of guesses.

    Args:
        frame: A data frame of pandas.
        known: Kind and form of each column; inferred if None.

    Raises:
        TypeError: If columns hold other objects than numbers, dates and texts.
        ValueError: If columns are of another kind than they should be, hold infinity,
            or have too many different texts to be categories.
    """
    columns: dict[str, Typed] = {}
    wrong: dict[str, _Unusable] = {}
    for name in frame.columns:
        try:
            if known is None:
                column = _guess(name, frame[name])
            else:
                column = _convert(name, frame[name], *known[name])
            if column.kind != "category":
                _check_finite(frame[name], column.values)
            columns[name] = column
        except _Unusable as error:
            wrong[name] = error
    if wrong:
        clauses = [f"column {name!r} {error}" for name, error in wrong.items()]
        remedy = ""
        if known is None and any(e.kind is TypeError for e in wrong.values()):
            remedy = ": leave it out, or convert it"
        elif known is None and not all(" infinity" in str(e) for e in wrong.values()):
            remedy = ": leave it out, or encode the texts as embeddings"
        if len(wrong) > 1:
            remedy = remedy.replace(" it", " them")
        kinds = {error.kind for error in wrong.values()}
        raise (TypeError if kinds == {TypeError} else ValueError)(
            ", and ".join(clauses) + remedy
        )
    return columns


def _guess(name: str, column: Any) -> Typed:
    """Convert a column to the kind that it seems to be of."""
    import pandas as pd

    kind = _dtype_kind(column)
    if kind is not None:
        return _convert(name, column, kind, "")
    present = column.dropna()
    if not len(present):
        return _convert(name, column, "number", "")  # all gaps: nothing to learn
    if isinstance(column.dtype, pd.CategoricalDtype):
        return _convert(name, column, "category", "")
    kinds = {_object_kind(value) for value in present}
    if None in kinds:
        other = next(v for v in present if _object_kind(v) is None)
        raise _Unusable(
            f"must hold numbers, dates or texts, got {type(other).__name__}", TypeError
        )
    if len(kinds) == 1 and kinds <= {"number", "date", "duration"}:
        return _convert(name, column, "date" if kinds == {"date"} else "number", "")
    texts = _texts(column)
    reading = read_texts(texts)
    if isinstance(reading, Reading):
        codes = _are_codes(reading, texts)
        if not codes:
            _tell(name, reading, texts, column.index)
            return Typed(reading.kind, reading.form, reading.values)
        reading = (
            "holds numbers that are written as texts: convert it to numbers, or to a "
            "categorical to say that it is none"
        )
    distinct = len(set(texts) - {None})
    if distinct > _FEW and distinct > _DISTINCT * len(present):
        clause = "" if reading is None else f" ({reading})"
        raise _Unusable(
            f"has {distinct} different texts in {len(column)} rows{clause}, which are "
            "no categories",
            ValueError,
        )
    if reading is not None:
        doubt(f"column {name!r} {reading}; it counts as {distinct} categories")
    warn_spelling(f"column {name!r}", "categories", texts)
    return Typed("category", "", np.array(texts, object))


def _convert(name: str, column: Any, kind: str, form: str) -> Typed:
    """Convert a column to a kind that is known.

    Raises:
        _Unusable: If too many of its values are of another kind.
    """
    if kind == "category":
        return Typed(kind, form, np.array(_texts(column), object))
    values = _plain(column, kind)
    if values is None:
        texts = _texts(column)
        reading = read_texts(texts, kind=kind, form=form)
        present = sum(text is not None and not is_gap(text) for text in texts)
        if not isinstance(reading, Reading) or len(reading.unread) > 0.05 * present:
            places = (
                reading.unread if isinstance(reading, Reading) else range(len(texts))
            )
            bad = next(i for i in places if texts[i] is not None)
            raise _Unusable(
                f"must hold {kind}s, as in the table that was fitted, but has "
                f"{texts[bad]!r} in row {_label(column.index[bad])}",
                ValueError,
            )
        _tell(name, reading, texts, column.index)
        values = reading.values
        percent = any("%" in text for text in texts if text is not None)
    else:
        percent = False
    if ("percent" in form) != percent and not np.isnan(values).all():
        now, before = ("with", "without") if percent else ("without", "with")
        doubt(
            f"column {name!r} is written {now} %, and was {before} it in the table "
            "that was fitted: the numbers are taken as they are"
        )
    return Typed(kind, form, values)


def _dtype_kind(column: Any) -> str | None:
    """Tell a kind by the type of a column; None if its values must be looked at."""
    import pandas as pd

    types = pd.api.types
    if types.is_datetime64_any_dtype(column):
        return "date"
    if types.is_bool_dtype(column) or types.is_timedelta64_dtype(column):
        return "number"
    if types.is_numeric_dtype(column) and not types.is_complex_dtype(column):
        return "number"
    return None


def _object_kind(value: Any) -> str | None:
    """Tell the kind of one value: "number", "date", "duration", "text" or None."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, (numbers.Real, decimal.Decimal, np.bool_)):
        return "number"
    if isinstance(value, (datetime.date, np.datetime64)):
        return "date"
    if isinstance(value, (datetime.timedelta, np.timedelta64)):
        return "duration"
    return None


def _plain(column: Any, kind: str) -> np.ndarray | None:
    """Convert values that are no texts, `[n]`; None if some are texts."""
    import pandas as pd

    values, stored = column, _dtype_kind(column)
    if stored is None:
        kinds = {_object_kind(value) for value in column.dropna()}
        if len(kinds) > 1 or kinds & {"text", None}:
            return None
        stored = "date" if kinds == {"date"} else "number"
        if kinds == {"duration"}:
            values = cast(Any, pd).to_timedelta(column)
    if stored != kind and column.notna().any():
        return None
    if kind == "date":
        return days(values).to_numpy(np.float64)
    if pd.api.types.is_timedelta64_dtype(values):
        values = values / cast(Any, pd).Timedelta(days=1)
    if values.dtype == object:
        values = values.map(float, na_action="ignore")
    return values.astype("Float64").to_numpy(np.float64, na_value=np.nan)


def _texts(column: Any) -> list[str | None]:
    """Write values as texts, whole numbers without decimals; None is a gap."""
    gaps = column.isna().tolist()
    values = column.astype(object).tolist()
    return [
        None if gap else value if isinstance(value, str) else _text(value)
        for gap, value in zip(gaps, values, strict=True)
    ]


def _text(value: Any) -> str:
    if isinstance(value, _DECIMALS) and value % 1 == 0:
        return str(int(value))
    return str(value)


def _are_codes(reading: Reading, texts: list[str | None]) -> bool:
    """Tell whether numbers are plain, few and without gaps, as codes are."""
    plain = reading.kind == "number" and not reading.guess
    gaps = any(text is not None and is_gap(text) for text in texts)
    words = all(text is None or not text.strip().isalpha() for text in texts)
    return plain and words and not gaps and len(np.unique(reading.values)) <= _FEW


def _tell(name: str, reading: Reading, texts: list[str | None], index: Any) -> None:
    """Warn of guesses about a column of texts."""
    signs = sorted({t for t in texts if t is not None and t.strip() and is_gap(t)})
    clauses = [reading.guess] if reading.guess else []
    if signs:
        rows = sum(text in signs for text in texts)
        named = ", ".join(map(repr, signs[:3]))
        clauses.append(f"has gaps for {named} ({rows} of {len(texts)} rows)")
    if len(reading.unread):
        first = int(reading.unread[0])
        clauses.append(
            f"holds {reading.kind}s but for {len(reading.unread)} of {len(texts)} "
            f"rows, which become gaps: the first is {texts[first]!r} in row "
            f"{_label(index[first])}"
        )
    if clauses:
        doubt(f"column {name!r} {', and '.join(clauses)}")


def _check_finite(column: Any, values: np.ndarray) -> None:
    rows = np.flatnonzero(np.isinf(values))
    if rows.size:
        raise _Unusable(
            f"must not hold infinity, but does in row {_label(column.index[rows[0]])} "
            f"({rows.size} of {len(values)} rows)",
            ValueError,
        )


def _label(label: Any) -> str:
    return repr(label) if isinstance(label, str) else str(label)
