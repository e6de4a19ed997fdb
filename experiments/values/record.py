"""The record of a run's claims and tables, and the tables of docs/study.md.

    python -m experiments.values.record repro-values/report.json

records a run with quick settings, and fills the page's tables in. Those on pretrained
features are of a run with EfficientNet-Lite0, and are written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments._kit.judge import OPEN, UNTESTED
from experiments._kit.records import (
    Record,
    Row,
    claim_rows,
    fill_page,
    judged,
    per_cent,
    quick_chapter,
    tables_of,
    with_error,
    write_record,
)

from .networks import ATTRIBUTED

RECORD = Path(__file__).with_name("record.json")
PAGE = Path(__file__).parents[2] / "docs" / "study.md"
TABLES = {
    "ours": "Methods that the study lacks",
    "nearest": "A tenth of wrong labels among 1,000 points",
    "sizes": "Accuracy on digits of a model",
    "networks": "Rank correlation of summed scores",
    "embeddings": "AUC of finding 10 % wrong labels",
    "order": "Pairs of points by whether",
    "bounds": "Theorem 4",
}
"""Beginnings of the captions of the report's tables."""
VALIDATED = (25, 100, 200, 800)
"""Rows of KNN-LOO's curve that the page shows, by their validation points."""

_WORDS = {
    r"(?<=\| )ten classes(?= \|)": "ten",
    r"\bclipped(?= \|)": "clipped sum",
    "Images: ": "images: ",
    "Texts: ": "reviews: ",
    r"CNN, (?=other classes|MNIST \|)": "CNN trained on ",
    r"\bceiling(?= \|)": "ceiling, by the runs' own noise",
}
"""Words of the report, as patterns, and the page's words."""


def recorded(report: Mapping[str, Any]) -> Record:
    """Return the claims and tables of a `report.json` that the page shows.

    Returns:
        `claims`; `tables`, the rows of each of `TABLES`; and the mean `accuracy` of the
        networks, by column of their table.

    Raises:
        ValueError: If the run was one with `--full`, of other sizes.
    """
    chapter = quick_chapter(report)
    accuracy = np.array(chapter["data"]["networks"]["accuracy"], float).mean(0)
    return {
        "claims": judged(chapter["data"]["claims"]),
        "tables": tables_of(chapter, TABLES),
        "accuracy": [float(mean) for mean in accuracy if not np.isnan(mean)],
    }


def fill(page: str, record: Record) -> str:
    """Fill the rows of the page's tables in; for the record see `recorded`."""
    tables, because = record["tables"], f"{UNTESTED}, because "
    claims = [c for c in record["claims"] if " features" not in c["text"]]
    rows = {
        "claims": claim_rows(claims),
        "untested": [
            (c["text"], c["where"], c["measured"], c["verdict"].removeprefix(because))
            for c in claims
            if c["verdict"].startswith(UNTESTED)
        ],
        "ours": [_ours(*row) for row in tables["ours"]],
        "nearest": [
            (classes, str(points), _area(knn), _area(loo))
            + tuple(f"{mean:.0%}" for mean, _ in (tenth, three, zero))
            for classes, points, knn, loo, tenth, _, three, _, zero in tables["nearest"]
            if points in VALIDATED
        ],
        "sizes": [
            (f"{points:,}", *map(per_cent, pairs))
            for points, *pairs, _ in tables["sizes"]
        ],
        "networks": _networks(tables["networks"], record["accuracy"]),
        "embeddings": [
            (name, *map(_area, areas[:2])) for name, *areas in tables["embeddings"]
        ],
        "order": [
            (values, data.replace("one", "1").split()[0], *map(str, counts))
            for values, data, *counts in tables["order"]
        ],
        "bounds": [
            (learner, str(n), *(f"{number:.4f}" for number in numbers))
            for learner, n, *numbers in tables["bounds"]
        ],
    }
    return fill_page(page, rows, _WORDS)


def _ours(data: str, *leads: str) -> Row:
    name = re.sub(r" \(MiniLM\)|(, naive Bayes)?, \d+ %$", "", data)
    name = re.sub("^[A-Z](?=[a-z])", lambda first: first[0].lower(), name)
    cells = [lead.replace(" points", "").replace(OPEN, "–") for lead in leads]
    return name.replace("noisy", "wrong"), *cells


def _networks(table: Any, accuracy: list[float]) -> Iterator[Row]:
    for name, *scores in table:
        shown = f"`{name}`" if name in ATTRIBUTED else name
        yield shown, *(with_error(score, ".2f") for score in scores)
    yield "accuracy of the networks", *(f"{mean:.0%}" for mean in accuracy)


def _area(pair: Any) -> str:
    return with_error(pair, ".3f")


def main(report: str) -> None:
    """Record a report, and fill the page in."""
    record = recorded(json.loads(Path(report).read_text("utf-8")))
    write_record(record, RECORD, [PAGE], fill)


if __name__ == "__main__":
    main(sys.argv[1])
