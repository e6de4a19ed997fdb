"""The record of a run's claims and tables, and the tables of the guide's pages.

    python -m experiments.filter.record repro-filter/report.json

records a run with quick settings, and fills the pages' tables in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments._kit.judge import OPEN
from experiments._kit.records import (
    Record,
    Row,
    fill_page,
    quick_chapter,
    tables_of,
    with_error,
    write_record,
)
from experiments._kit.scenes.thresholds import TRAINED

from .claims import CLAIMS, OURS
from .clients import AVERAGING

RECORD = Path(__file__).with_name("record.json")
DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "filtering.md", DOCS / "filtering-figures.md"
TABLES = {
    "kept": "What is removed and kept",
    "accuracy": "Accuracy on test samples",
    "links": "Time of messages",
    "rounds": "Rounds until a share",
    "best": "λ* and the thresholds",
    "clients": "Accuracy after the last round",
    "writers": "Benchmark sets of equal size",
}
"""Beginnings of the captions of the report's tables."""

_WORDS = {
    "at least": "≥",
    "not known: [^|]*": "not known ",
    "Adam at the server": "Adam",
    "the cross-fitted threshold": "cross-fitted",
    r"the paper's rule|threshold(?= \|)": "the paper's",
    r"\| quantile": "| 95 % quantile",
    "best held-out": "best by",
    "all writers": "all 20 clusters",
    "2 of 20 writers": "two clusters",
}
"""Words of the report, as patterns, and the pages' words."""


def recorded(report: Mapping[str, Any]) -> Record:
    """Return the claims and tables of a `report.json` that the pages show.

    Returns:
        `claims`, the paper's and ours, and `tables`, the rows of each of `TABLES`.

    Raises:
        ValueError: If the run was one with `--full`, of other targets and rounds.
    """
    chapter = quick_chapter(report)
    claims = chapter["data"]["claims"] + chapter["data"]["own_claims"]
    shown = ("text", "where", "measured", "p", "verdict")
    tables = tables_of(chapter, TABLES)
    return {"claims": [{k: c[k] for k in shown} for c in claims], "tables": tables}


def fill(page: str, record: Record) -> str:
    """Fill the rows of a page's tables in, below their headers.

    Args:
        page: Markdown with places such as `<!-- from record: kept -->`.
        record: See `recorded`.
    """
    tables, gains = record["tables"], ("all data", "benchmark", "ideal")
    links = zip(tables["links"][::2], tables["links"][1::2], strict=True)
    rows = {
        "gains": _judged(record, [CLAIMS[key].text for key in gains]),
        "rules": _judged(record, [OURS[k].text for k in ("cross-fitted", "quantile")]),
        "kept": _kept(tables["kept"], tables["accuracy"]),
        "links": [(*small[:1], *small[2:4], *large[2:4]) for small, large in links],
        "rounds": [row for row in tables["rounds"] if row[1] != "60%"],
        "best": [
            (noise, name.partition(",")[0], with_error(value, ".2f"), *_shares(share))
            + (with_error(loss, ".3f"), *_shares(right))
            for noise, name, value, share, *_, loss, right in tables["best"]
        ],
        "clients": [
            (f"{deal.lower()}, {n:.0f} each", way, *_shares(*lines))
            for deal, (n, _), way, *lines in tables["clients"]
        ],
        "writers": [(*row[:2], *_shares(*row[2:])) for row in tables["writers"]],
    }
    return fill_page(page, rows, _WORDS)


def _judged(record: Record, texts: Iterable[str]) -> Iterator[Row]:
    by_text = [[c for c in record["claims"] if c["text"] == text] for text in texts]
    for claims in zip(*by_text, strict=True):
        where = claims[0]["where"].removeprefix("MNIST, ").replace("0.5 : 1", "1 : 2")
        gains = [c["measured"].split(": ")[1].removesuffix(" points") for c in claims]
        verdicts = [c["verdict"].replace(OPEN, "?") for c in claims]
        yield where.replace(" noise", ""), *map("{} {}".format, gains, verdicts)


def _kept(kept: Iterable[Any], accuracy: Iterable[Any]) -> Iterator[Row]:
    shares = {(noise, name): _shares(*pairs) for noise, name, *pairs in kept}
    reached = {tuple(row[:3]): row[3] for row in accuracy}
    for noise in dict.fromkeys(noise for noise, _ in shares if "3 : 1" in noise):
        for name in TRAINED:
            ways = _shares(*(reached[noise, way, name] for way in AVERAGING))
            yield noise, name, *shares.get((noise, name), ("–", "–")), *ways


def _shares(*pairs: Any) -> list[str]:
    return [p if isinstance(p, str) else with_error(p, ".1%") for p in pairs]


def main(report: str) -> None:
    """Record a report, and fill the pages in."""
    record = recorded(json.loads(Path(report).read_text("utf-8")))
    write_record(record, RECORD, PAGES, fill)


if __name__ == "__main__":
    main(sys.argv[1])
