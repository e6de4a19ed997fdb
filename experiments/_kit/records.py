"""Records of runs with quick settings, and the tables that pages show of them.

A page marks the places of its tables by comments, `<!-- from record: NAME -->` to
`<!-- end -->`, and has their headers; a record fills the rows in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments._kit.judge import UNTESTED

Record = Mapping[str, Any]
Row = Sequence[str]

PLACE = re.compile(
    r"(<!-- from record: (\w+) -->\n\n.*?\n\|[-|]+\|\n).*?(\n<!-- end -->)", re.DOTALL
)
WORDS = {
    r"\b0\.(?=\d)": ".",
    r"(?<=\d)%": " %",
    r"(?<!\w)-(?=[.\d])": "−",
    r"\| +\|": "| |",
}
"""Patterns of a report's figures, and how all pages write them."""


def quick_chapter(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first chapter of a `report.json`.

    Raises:
        ValueError: If the run was one with `--full`.
    """
    chapter, *_ = report["chapters"]
    if chapter["data"]["full"]:
        raise ValueError("the pages show quick settings, got a report of a --full run")
    return chapter


def tables_of(chapter: Mapping[str, Any], captions: Mapping[str, str]) -> Record:
    """Return the rows of some tables of a chapter, by name.

    Args:
        chapter: See `quick_chapter`.
        captions: Beginnings of the tables' captions, by name.
    """
    return {
        name: table["rows"]
        for name, caption in captions.items()
        for table in chapter["tables"]
        if table["caption"].startswith(caption)
    }


def judged(claims: Iterable[Mapping[str, Any]]) -> list[Record]:
    """Keep the fields of a chapter's claims that pages show."""
    shown = ("text", "where", "scale", "measured", "test", "p", "verdict")
    return [{key: claim[key] for key in shown} for claim in claims]


def claim_rows(claims: Iterable[Record]) -> Iterator[Row]:
    """Make a row of each claim that was tested; for the claims see `judged`."""
    for c in claims:
        if not c["verdict"].startswith(UNTESTED):
            p = c["p"]
            shown = "–" if p is None else "< .001" if p < 1e-3 else f"{p:.3f}"
            data = f"{c['where']}: {c['scale']}".removesuffix(": ")
            yield c["text"], data, c["measured"], c["test"], shown, c["verdict"]


def fill_page(
    page: str, rows: Mapping[str, Iterable[Row]], words: Mapping[str, str]
) -> str:
    """Fill the rows of a page's tables in, below their headers.

    Args:
        page: Markdown.
        rows: Cells of each table, by the name of its place. A first cell is left empty
            where the last row has it too.
        words: Patterns, and what replaces them in all rows, before those of `WORDS`.
    """

    def lines(name: str) -> str:
        text, last = "", ""
        for first, *cells in rows[name]:
            text += f"| {' | '.join(['' if first == last else first, *cells])} |\n"
            last = first
        for old, new in {**words, **WORDS}.items():
            text = re.sub(old, new, text)
        return text

    return PLACE.sub(lambda place: place[1] + lines(place[2]) + place[3], page)


def with_error(pair: Sequence[float], form: str) -> str:
    """Format a mean with its error; of per cent, the unit stands last."""
    return f"{pair[0]:{form}} ± {pair[1]:{form}}".replace("% ±", " ±")


def per_cent(pair: Sequence[float] | None) -> str:
    """Format a share with its error, without the unit; a dash for None."""
    return "–" if pair is None else with_error(pair, ".1%").removesuffix("%")


def write_record(
    record: Record,
    path: Path,
    pages: Iterable[Path],
    fill: Callable[[str, Record], str],
) -> None:
    """Write a record, one row a line, and fill the pages in."""
    text = json.dumps(record, ensure_ascii=False)
    path.write_text(re.sub(r"(?<=[\]}], )", "\n", text) + "\n", "utf-8")
    for page in pages:
        page.write_text(fill(page.read_text("utf-8"), record), "utf-8")
