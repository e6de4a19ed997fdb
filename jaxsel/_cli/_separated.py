"""Read CSV files of any usual layout; refuse ambiguous ones."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from jaxsel._inputs.usual_mistakes import doubt

if TYPE_CHECKING:
    import pandas

# What counts as a gap, except in columns of labels and texts: as in pandas.
_PADDED = r"\s*0\d"
_GAPS = [
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
    *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
]
_KINDS = {
    b"PK\x03\x04": "a zip file or a workbook: export it as CSV",
    b"\xd0\xcf\x11\xe0": "a workbook of Excel: export it as CSV",
    b"\x1f\x8b": "compressed by gzip: unpack it",
    b"PAR1": "a parquet file: give it a name that ends in .parquet",
    b"\x93NUMPY": "an array: give it a name that ends in .npy",
    b"<!DOCTYPE": "a web page: download the file itself",
    b"<html": "a web page: download the file itself",
}
_SEPARATORS = ",;\t|"
_HEAD = 100  # rows that tell the separator
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_THOUSANDS = r"[1-9]\d{0,2}(\.\d{3})?"
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")


def clean_names(path: str, names: Sequence[str]) -> list[str]:
    """Strip spaces and invisible characters around names.

    Raises:
        ValueError: If a name stands twice.
    """
    clean = [name.strip(f"{_INVISIBLE} \t\r\n\xa0\u202f\u2007") for name in names]
    odd = [name for name, plain in zip(names, clean, strict=True) if name != plain]
    if odd:
        doubt(
            f"names of columns of {path} are taken without the spaces or invisible "
            f"characters around them: {_few(odd)}"
        )
    twice = [name for i, name in enumerate(clean) if name and name in clean[:i]]
    if twice:
        raise ValueError(
            f"it must name each column once, but has {twice[0]!r} twice: rename one, "
            "or leave it out"
        )
    return clean


def read_separated(path: str, texts: Collection[str]) -> pandas.DataFrame:
    """Read a CSV file; warn of guesses and of omitted rows.

    Args:
        path: The file.
        texts: Names of columns in which only an empty entry is a gap, not "NA", and
            numbers with leading zeros are texts.

    Raises:
        UnicodeDecodeError: If it is not in UTF-8, nor in UTF-16.
        ValueError: If it is no text, entries have no column, or a column has two.
    """
    import pandas as pd

    encoding = _encoding(path)
    layout = _layout(path, encoding)
    names, separator = layout.names, layout.separator
    folded = {text.strip().casefold() for text in texts}
    kept = [name for name in names if name.casefold() in folded]
    options: dict[str, Any] = {
        "sep": separator,
        "header": None,
        "names": names,
        "usecols": range(len(names)),  # further entries are empty
        "index_col": False,
        "keep_default_na": False,
        "na_values": {name: [""] if name in kept else _GAPS for name in names},
        "skip_blank_lines": len(names) > 1,
        "skipinitialspace": layout.spaced,
        "low_memory": False,
    }

    def read(**more: Any) -> pandas.DataFrame:
        with _records(path, encoding, layout) as (file, _):
            try:
                return pd.read_csv(file, **{**options, **more})
            except pd.errors.ParserError as error:
                if match := re.search(
                    r"inside string starting at row (\d+)", str(error)
                ):
                    raise ValueError(
                        f"quotes do not come in pairs: one in row {match[1]} is open"
                    ) from error
                raise

    frame = read()
    if layout.decimal_comma or (separator == ";" and _has_decimal_commas(frame)):
        frame = _with_decimal_commas(path, read(decimal=","), kept)
    if len(frame) != layout.rows:
        raise ValueError(
            f"{path} has {layout.rows} rows, of which {len(frame)} can be read: see "
            "that quotes come in pairs"
        )
    for name in kept:
        if pd.api.types.is_numeric_dtype(frame[name]):
            written = read(usecols=[names.index(name)], dtype=str)[name]
            # Codes: "01" is not "1", and must be written again as it was.
            if written.str.match(_PADDED).any():
                frame = frame.assign(**{name: written})
    doubtful = _maybe_thousands(frame)
    texts_of = (
        read(usecols=[*map(names.index, doubtful)], dtype=str) if doubtful else {}
    )
    for name in doubtful:
        written = texts_of[name].dropna().str.strip()
        zeros = written[written.str.match(r".*\.\d\d0$")]
        if written.str.fullmatch(_THOUSANDS).all() and len(zeros):
            doubt(
                f"column {name!r} of {path} is read as numbers, {zeros.iloc[0]!r} as "
                f"{float(zeros.iloc[0]):g}, but others have no mark: if it is between "
                "thousands, write the numbers without"
            )
    return frame.iloc[: layout.rows - layout.empty]


@dataclasses.dataclass
class _Layout:
    """Layout of a file.

    Attributes:
        separator: Separator of entries.
        skip: Lines before the header.
        names: Names of the columns.
        spaced: Whether spaces that follow separators belong to them.
        decimal_comma: Whether the only column holds numbers with decimal commas.
        rows: Number of rows below the header.
        empty: Number of these, at the end, without any entry.
    """

    separator: str
    skip: int
    names: list[str]
    spaced: bool
    decimal_comma: bool
    rows: int = 0
    empty: int = 0


def _encoding(path: str) -> str:
    with open(path, "rb") as file:
        head = file.read(4096)
    for magic, kind in _KINDS.items():
        if head.lstrip().lower().startswith(magic.lower()):
            raise ValueError(f"it is {kind}")
    if not head.strip():
        raise ValueError("it is empty")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) and _is_utf16(head):
        return "utf-16"
    if b"\0" in head:
        for encoding, place in ("utf-16-le", 1), ("utf-16-be", 0):
            if head[place::2].count(0) > len(head) / 4:
                return encoding
        raise ValueError("it has NUL bytes: it is no text, or is damaged")
    return "utf-8-sig"


def _is_utf16(head: bytes) -> bool:
    return len(head) > 3 and b"\0" in head


@contextlib.contextmanager
def _records(
    path: str, encoding: str, layout: _Layout
) -> Iterator[tuple[TextIO, Iterator[list[str]]]]:
    """Open a file below its header, as text and as records."""
    with open(path, encoding=encoding, newline="") as file:
        for _ in range(layout.skip):
            file.readline()
        lines = iter(file.readline, "")
        reader = csv.reader(
            lines, delimiter=layout.separator, skipinitialspace=layout.spaced
        )
        next(reader)
        yield file, reader


def _layout(path: str, encoding: str) -> _Layout:
    limit = csv.field_size_limit(2**31 - 1)
    try:
        layout = _head(path, encoding)
        with _records(path, encoding, layout) as (_, reader):
            _scan(path, layout, reader)
    except csv.Error as error:
        raise ValueError(str(error)) from error
    finally:
        csv.field_size_limit(limit)
    return layout


def _head(path: str, encoding: str) -> _Layout:
    """Find separator and header from the first rows."""
    with open(path, encoding=encoding, newline="") as file:
        lines = list(itertools.islice(file, _HEAD))
    skip, separator = 0, ""
    while skip < len(lines) and not lines[skip].strip():
        skip += 1
    if skip < len(lines) and re.fullmatch(r"sep=.\s*", lines[skip]):
        separator = lines[skip][4]
        skip += 1
    comments = 0
    while lines[skip + comments :] and lines[skip + comments].lstrip().startswith("#"):
        comments += 1
    named = False
    if comments:
        # The last may name the columns, as numpy.savetxt writes them.
        table_lines = lines[skip + comments - 1 :]
        guess = separator or _separator(path, table_lines)
        first, *others = csv.reader(table_lines, delimiter=guess)
        named = bool(others) and len(first) == len(others[0]) and _has_number(others[0])
        skip += comments - named
        doubt(
            f"{path} begins with comments (#), which are skipped"
            + (", but for the last line, which names the columns" if named else "")
        )
    lines = lines[skip:]
    if not lines:
        raise ValueError("it has nothing but comments")
    separator = separator or _separator(path, lines)
    header = next(csv.reader(lines, delimiter=separator))
    if named:
        header[0] = header[0].lstrip().removeprefix("#")
    spaced = all(name.startswith(" ") for name in header[1:])
    header = next(csv.reader(lines, delimiter=separator, skipinitialspace=spaced))
    if named:
        header[0] = header[0].lstrip().removeprefix("#").lstrip()
    body = [line for line in lines[1:] if line.strip()]
    decimal = (len(header), separator) == (1, ",") and any("," in s for s in body)
    decimal = decimal and all(re.fullmatch(r"\s*[+-]?\d+(,\d+)?\s*", s) for s in body)
    if decimal:
        separator = ";"
        doubt(f"{path} has one column, read with decimal commas")
    return _Layout(
        separator=separator,
        skip=skip,
        names=clean_names(path, header),
        spaced=spaced,
        decimal_comma=decimal,
    )


def _separator(path: str, lines: Sequence[str]) -> str:
    """Choose the separator that splits header and rows alike, into most columns."""
    default = "\t" if path.lower().endswith(".tsv") else ","
    best, most = default, (0.0, 1)
    for separator in dict.fromkeys(default + _SEPARATORS):
        widths = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        if not widths or widths[0] < 2:
            continue
        # Rows may end in a separator that the header lacks, or lack one.
        near = [
            w == widths[0] or 0.9 * (w > 1 and abs(w - widths[0]) == 1) for w in widths
        ]
        alike = round(sum(near) / len(widths), 1)
        if (alike, widths[0]) > most:
            best, most = separator, (alike, widths[0])
    return best


def _has_number(row: Iterable[str]) -> bool:
    return any(re.fullmatch(r"\s*[+-]?[\d.]+(e[+-]?\d+)?\s*", s, re.I) for s in row)


def _scan(path: str, layout: _Layout, reader: Any) -> None:
    """Count rows, and see that each entry has a column.

    Raises:
        ValueError: If one has none, or a row is the header again.
    """
    names = layout.names
    named = max((i + 1 for i, name in enumerate(names) if name), default=1)
    width, blank, short, first_short, used = len(names), 0, 0, 0, named
    line = reader.line_num
    for row in reader:
        start, line = line + 1, reader.line_num
        text = "".join(row)
        if "\0" in text:
            raise ValueError(f"line {start} has NUL bytes: it is damaged")
        if not text or text.isspace():
            if len(row) > 1 or named == 1:
                layout.rows += 1
                blank += 1
            continue
        layout.rows += 1
        blank = 0
        if named > 1 and [entry.strip() for entry in row] == names:
            raise ValueError(
                f"line {layout.skip + start} repeats the header, as where files were "
                "joined: take it out"
            )
        if len(row) > used:
            last = max(i for i, entry in enumerate(row) if entry.strip()) + 1
            if last > width:
                raise ValueError(
                    f"line {layout.skip + start} has {last} entries, but the header "
                    f"names {named} columns: name each column, those of row names too, "
                    f"and quote entries that contain {layout.separator!r}"
                )
            used = max(used, last)
        elif len(row) < named:
            short += 1
            first_short = first_short or layout.skip + start
        if line > start and named > 1:
            _check_quotes(layout, row, start)
    layout.empty = blank
    layout.names = [name or f"Unnamed: {i}" for i, name in enumerate(names[:used])]
    if short:
        doubt(
            f"{short} of {layout.rows} rows of {path} have fewer entries than the "
            f"header names columns, the first in line {first_short}: the last columns "
            "are empty there"
        )
    if blank and named > 1:
        doubt(f"{blank} rows at the end of {path} are empty, and left out")


def _check_quotes(layout: _Layout, row: Sequence[str], line: int) -> None:
    """Refuse an entry that seems to have swallowed other rows.

    Raises:
        ValueError: If one has.
    """
    for entry in row:
        inner = entry.split("\n")[1:-1]
        separators = len(layout.names) - 1
        if any(part.count(layout.separator) == separators for part in inner):
            raise ValueError(
                f"an entry that begins in line {layout.skip + line} holds whole lines: "
                "see that quotes come in pairs"
            )


def _has_decimal_commas(frame: pandas.DataFrame) -> bool:
    import pandas as pd

    return any(
        _DECIMAL_COMMA.fullmatch(text) is not None
        for name in frame
        if not pd.api.types.is_numeric_dtype(frame[name])
        for text in frame[name].head(1000).dropna().astype(str)
    )


def _with_decimal_commas(
    path: str, frame: pandas.DataFrame, kept: Collection[str]
) -> pandas.DataFrame:
    """Read other numbers of a file with decimal commas: 1.234,5 and 1.5."""
    import pandas as pd

    from jaxsel._inputs.texts import Reading, read_texts

    for name in frame.columns:
        column = frame[name]
        if name in kept or pd.api.types.is_numeric_dtype(column):
            continue
        texts = column.astype(object).where(column.notna(), None).tolist()
        if not all(text is None or isinstance(text, str) for text in texts):
            continue
        reading = read_texts(texts, prefer="decimal comma")
        if not isinstance(reading, Reading) or reading.kind != "number":
            continue
        numbers = pd.Series(reading.values, column.index)
        if reading.unread.size or (numbers.isna() != column.isna()).any():
            continue
        if reading.form in ("", "decimal comma"):
            frame[name] = numbers
            if reading.guess:
                doubt(f"column {name!r} of {path} {reading.guess}")
    return frame


def _maybe_thousands(frame: pandas.DataFrame) -> list[str]:
    """Return columns of numbers from 1 to 1,000, some of them whole."""
    import numpy as np

    names = []
    for name in frame.select_dtypes("float").columns:
        values = frame[name].dropna().to_numpy(float)
        if not np.all((values >= 1) & (values < 1000)):
            continue
        whole = values % 1 == 0
        rest = values[~whole] * 1000
        three = np.allclose(rest, rest.round(), rtol=0, atol=1e-6)
        if three and 0 < whole.sum() < len(values):
            names.append(name)
    return names


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if names[5:] else ""
    return ", ".join(map(repr, names[:5])) + more
