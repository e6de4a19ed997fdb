"""Read columns of texts that mean numbers or dates, however people write them."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

FORMS = (
    *("", "decimal comma", "percent", "decimal comma, percent"),
    *("day first", "month first"),
)
"""How a column's texts were written, where other columns may be written otherwise."""

_GAPS = frozenset(
    ["", "?", "-", "--", ".", "na", "n/a", "#n/a", "#na", "<na>", "nan", "nat"]
    + ["null", "none", "nil", "missing", "unknown", "#value!", "#div/0!", "0000-00-00"]
)
_NEARLY = 0.95  # share of the texts that must be read: the others become gaps
_MOSTLY = 0.8  # share from which on a message says that a column is nearly numeric
_FEW = 20  # distinct texts up to which a column may have codes rather than numbers

_SIGNS = str.maketrans(
    {"\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\N{NO-BREAK SPACE}": " "}
    | {"\N{NARROW NO-BREAK SPACE}": " ", "\N{THIN SPACE}": " "}
    | {"\N{RIGHT SINGLE QUOTATION MARK}": "'"}
)
_UNIT = r"(?:[$€£¥₹]|usd|eur|gbp|chf|jpy)"
_PARTS = re.compile(
    rf"([+-]?)\s*({_UNIT}?)\s*([+-]?[\d.,' ]*\d[\d.,' ]*(?:e[+-]?\d+)?)\s*(%|{_UNIT}|)",
    re.I,
)
_DIGITS = {
    "": r"(?:[1-9]\d{0,2}(?:,\d{2,3})*,\d{3}|[1-9]\d{0,2}(?:[' ]\d{3})+|\d+)"
    r"(?:\.\d*)?|\.\d+",
    "decimal comma": r"(?:[1-9]\d{0,2}(?:[.' ]\d{3})+|\d+)(?:,\d*)?|,\d+",
}
_NUMBER = {
    form: re.compile(rf"[+-]?(?:{digits})(?:e[+-]?\d+)?", re.I)
    for form, digits in _DIGITS.items()
}
_PLAIN = {
    "": re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?", re.I),
    "decimal comma": re.compile(r"[+-]?\d+"),
}
_CODE = re.compile(r"\s*0\d+\s*")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.I)
_TRUTH = {"true": 1.0, "false": 0.0}

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_NAMED = re.compile(rf"(?i)(?=.*\d{{4}})(?:[a-z]+,? )?[\d., -]*{_MONTH}\b[\d., :-]+.*")
_TIME = (
    r"(?:(?:T| |, ?)\s*(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?\s*(am|pm)?"
    r"\s*(z|utc|[+-]\d{2}:?\d{2})?)?"
)
_YEAR_FIRST = re.compile(rf"(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}}){_TIME}", re.I)
_YEAR_LAST = re.compile(
    rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}|\d{{2}}){_TIME}", re.I
)


@dataclasses.dataclass(frozen=True)
class Reading:
    """Texts that were read.

    Attributes:
        kind: "number" or "date".
        form: One of `FORMS`.
        values: Numbers, or dates as days since 1970; NaN where there is none, `[n]`.
        unread: Places of texts that are neither a value nor a usual sign of a gap.
        guess: The assumption made, as a clause after the column's name; or "".
    """

    kind: str
    form: str
    values: np.ndarray
    unread: np.ndarray
    guess: str


def is_gap(text: str) -> bool:
    """Tell whether a text is a usual sign of a missing number, such as "?" or "n/a"."""
    return text.strip().casefold() in _GAPS


def read_texts(
    texts: Sequence[str | None],
    *,
    kind: str | None = None,
    form: str = "",
    prefer: str = "",
) -> Reading | str | None:
    """Read texts as numbers or dates, if nearly all of them are.

    Args:
        texts: None is a gap.
        kind: "number" or "date", if it is known; then all texts that can be read are,
            by `form`.
        form: Notation of the texts, where `kind` is known.
        prefer: The form of numbers that may be read in two ways.

    Returns:
        The numbers; a clause that says why texts that look like numbers are none; or
        None for texts of any other kind.
    """
    counts = Counter(text for text in texts if text is not None and not is_gap(text))
    if kind is None and not counts:
        return None
    if kind != "date":
        numbers = _numbers(counts, form if kind else None, prefer)
        if isinstance(numbers, str):
            return numbers
        if numbers is not None:
            return _reading("number", texts, *numbers)
    dates = _dates(counts, form)
    return None if dates is None else _reading("date", texts, *dates)


_Table = dict[str, float]


def _reading(
    kind: str, texts: Sequence[str | None], table: _Table, form: str, guess: str
) -> Reading:
    """Return the values of all texts by the table of distinct ones."""
    values = np.array([table.get(t, math.nan) if t else math.nan for t in texts], float)
    unread = [
        i
        for i in np.flatnonzero(np.isnan(values)).tolist()
        if (text := texts[i]) is not None and not is_gap(text)
    ]
    return Reading(kind, form, values, np.array(unread, int), guess)


def _numbers(
    counts: Counter[str], form: str | None, prefer: str
) -> tuple[_Table, str, str] | str | None:
    """Read distinct texts as numbers; `form` None guesses their notation."""
    words = {text: text.strip().casefold() for text in counts}
    if counts and set(words.values()) <= set(_TRUTH):
        return {text: _TRUTH[word] for text, word in words.items()}, "", ""
    parts = {text: pair for text in counts if (pair := _parts(text)) is not None}
    if form is not None:
        return _table(parts, form.partition("percent")[0].rstrip(", ")), form, ""
    if sum(counts[text] for text in parts) < _MOSTLY * sum(counts.values()):
        return None
    tables = {name: _table(parts, name) for name in _NUMBER}
    read = {name: sum(counts[t] for t in table) for name, table in tables.items()}
    best = max(_NUMBER, key=lambda name: (read[name], name == prefer))
    table, total = tables[best], sum(counts.values())
    if read[best] < _MOSTLY * total or any(_CODE.fullmatch(text) for text in table):
        return None
    units = {parts[text][1]: text for text in table}
    money = [unit for unit in units if unit not in ("", "%")]
    if ("%" in units and len(units) > 1) or len(money) > 1:
        examples = ", ".join(map(repr, list(units.values())[:3]))
        return f"mixes units, such as {examples}"
    if read[best] < total:
        few = len(set(table.values())) <= _FEW
        if few or read[best] < _NEARLY * total:
            others = [repr(text) for text in counts if text not in table]
            rows = total - read[best]
            return f"is mostly numbers but for {', '.join(others[:3])} ({rows} rows)"
    plain = _PLAIN[best]
    odd = next((text for text in table if not plain.fullmatch(text.strip())), None)
    if odd is None:
        return table, best, ""
    guess = f"is read as numbers, {odd!r} as {table[odd]:g}"
    readings = [by_form.get(odd) for by_form in tables.values()]
    if None not in readings and len({*readings}) > 1 and len({*read.values()}) == 1:
        integral = table[odd] % 1 == 0
        guess += ", which is a guess: the mark might be " + (
            "the decimal one" if integral else "between thousands"
        )
    if "%" in units:
        best = f"{best}, percent".lstrip(", ")
    return table, best, guess


def _table(parts: dict[str, tuple[str, str]], form: str) -> _Table:
    read = {text: _number(digits, form) for text, (digits, _) in parts.items()}
    return {text: value for text, value in read.items() if value is not None}


def _parts(text: str) -> tuple[str, str] | None:
    """Split a number, sign first, from its unit."""
    text = text.translate(_SIGNS).strip()
    if _INFINITE.fullmatch(text):
        return text, ""
    negative = text.startswith("(") and text.endswith(")")
    match = _PARTS.fullmatch(text[1:-1].strip() if negative else text)
    if match is None or (match[2] and match[4]):
        return None
    if match[1] and match[3][0] in "+-":
        return None
    sign = "-" if negative else match[1]
    return sign + match[3].strip(), (match[2] or match[4]).casefold()


def _number(digits: str, form: str) -> float | None:
    if not _NUMBER[form].fullmatch(digits):
        return float(digits) if _INFINITE.fullmatch(digits) else None
    digits = digits.replace(" ", "").replace("'", "")
    if form:
        digits = digits.replace(".", "").replace(",", ".")
    return float(digits.replace(",", ""))


def _dates(counts: Counter[str], form: str) -> tuple[_Table, str, str] | None:
    """Read distinct texts as dates, in days since 1970."""
    import pandas as pd

    iso: dict[str, str] = {}
    last: dict[str, re.Match[str]] = {}
    other: list[str] = []
    for text in counts:
        plain = text.strip()
        if match := _YEAR_FIRST.fullmatch(plain):
            iso[text] = _iso(match[1], match[3], match[4], match.groups()[4:])
        elif match := _YEAR_LAST.fullmatch(plain):
            last[text] = match
        elif "-" in plain[1:] or _NAMED.fullmatch(plain):
            other.append(text)
    guess = ""
    if last:
        first = sum(counts[t] for t, m in last.items() if int(m[1]) > 12)
        second = sum(counts[t] for t, m in last.items() if int(m[3]) > 12)
        example = next(iter(last))
        if form not in ("day first", "month first"):
            dotted = last[example][2] == "." and not second
            form = "day first" if first > second or dotted else "month first"
            sure = bool(first) != bool(second)
            guess = f"is read as dates with the {form}, such as {example!r}"
            guess += "" if sure else ": which of the two comes first is a guess"
        for text, m in last.items():
            day, month = (m[1], m[3]) if form == "day first" else (m[3], m[1])
            year = m[4]
            if len(year) == 2:
                year = f"{19 + (int(year) < 69)}{year}"
            iso[text] = _iso(year, month, day, m.groups()[4:])
    dates = pd.Series(iso, dtype=object)
    tables = [_days(dates, format="ISO8601")] if iso else []
    if other:
        texts = pd.Series({text: text.strip() for text in other}, dtype=object)
        tables.append(_days(texts, format="ISO8601"))
        unread = texts[[text not in tables[-1] for text in other]]
        named = unread[[_NAMED.fullmatch(text) is not None for text in unread]]
        if len(named):
            tables.append(_days(named, format="mixed"))
    table = {text: day for part in tables for text, day in part.items()}
    read = sum(counts[text] for text in table)
    if not read or read < _NEARLY * sum(counts.values()):
        return None
    return table, form if last else "", guess


def _iso(year: str, month: str, day: str, time: Sequence[str | None]) -> str:
    hour, minute, second, half, zone = time
    date = f"{year}-{int(month):02}-{int(day):02}"
    if hour is None:
        return date
    hours = int(hour)
    if half:
        hours = hours % 12 + 12 * (half.casefold() == "pm")
    zone = "" if zone is None else zone.upper().replace("UTC", "Z")
    return f"{date}T{hours:02}:{minute}:{second or '00'}{zone}"


def _days(texts: Any, *, format: str) -> _Table:
    return {text: day for text, day in days(texts, format=format).items() if day == day}


def days(dates: Any, *, format: str = "ISO8601") -> Any:
    """Convert a series of dates, or of texts, to days since 1970, NaN for others."""
    import pandas as pd

    dates = pd.to_datetime(dates, format=format, errors="coerce", utc=True)
    since = dates.dt.tz_localize(None) - pd.Timestamp("1970-01-01")
    return since / pd.Timedelta(days=1)
