"""The record of a run's claims and tables, and the tables of docs/mycroft.md.

    python -m experiments.mycroft.record repro-mycroft/report.json

records a run with quick settings, and fills the page's tables in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments._kit.records import (
    Record,
    claim_rows,
    fill_page,
    judged,
    per_cent,
    quick_chapter,
    tables_of,
    with_error,
    write_record,
)
from experiments._kit.words import spread

from .measured import title
from .tabular.paths import OTHERS

RECORD = Path(__file__).with_name("record.json")
PAGE = Path(__file__).parents[2] / "docs" / "mycroft.md"
TABLES = {
    "untested": "Claims of the paper on which nothing here bears",
    "variants": "Other ways to match",
    "requests": "Accuracy with 32 samples, by the number of hard",
    "answers": "Accuracy with 32 samples that FuncFeat",
    "distances": "With 5 samples. F1",
    "classifiers": "Mean F1 with everything",
}
"""Beginnings of the captions of the report's tables."""
TREES = {"depth 4": "paths", "leaves of five": "grown_paths"}
"""Keys of results on decision paths, by the owners' trees."""

_WORDS = {
    r"by EfficientNet-Lite0(?= \|)": "by EfficientNet-Lite0, as "
    "[below](#by-a-pretrained-encoder)",
    r"(?<=\| )FuncFeat as published": "Mycroft",
    r"min_samples_leaf (\d+), max_features 1, ": r"leaves of \1, all columns, ",
    "balanced 1": "classes weigh the same",
}
"""Words of the report, as patterns, and the page's words."""


def recorded(report: Mapping[str, Any]) -> Record:
    """Return the claims and tables of a `report.json` that the page shows.

    Returns:
        `counts`, in how many settings `claims` and `ours` hold, in words; these claims;
        `tables`, of `TABLES` and decision `paths`; `budgets`, accuracy by data and
        budget; `combined`, F1 of half-and-half choices, mean and standard deviation.

    Raises:
        ValueError: If the run was one with `--full`, of other budgets.
    """
    images, table = quick_chapter(report), report["chapters"][1]
    data = images["data"]
    counted = [t["caption"] for t in images["tables"] if "Settings (" in t["caption"]]
    tables = {**tables_of(images, TABLES), **tables_of(table, TABLES)}
    paths = [t["rows"] for t in table["tables"] if "decision path" in t["caption"]]
    runs = {f"{title(name)}, starved": run for name, run in data["starved"].items()}
    runs["MNIST, digits of another source"] = data["foreign"]
    runs["Fashion-MNIST before stripes"] = data["spurious"]
    return {
        "counts": [text.rpartition("; ")[2].removesuffix(".") for text in counted],
        "claims": judged(data["claims"]),
        "ours": judged(data["own_claims"]),
        "tables": tables | {"paths": [a + b[1:] for a, b in zip(*paths, strict=True)]},
        "budgets": [row for name, run in runs.items() for row in _reached(name, run)],
        "combined": [
            [trees, other, *_pairs(f1)]
            for trees, key in TREES.items()
            for i, other in enumerate(OTHERS)
            for f1 in [np.array(table["data"][key]["f1_combined"])[:, i]]
        ],
    }


def _reached(name: str, run: Mapping[str, Any]) -> Iterator[list[Any]]:
    published, accuracy = (np.array(run[key]) for key in ("published", "accuracy"))
    ends = [np.array(run[key])[:, :1] for key in ("nothing", "everything")]
    for b, budget in enumerate(run["budgets"]):
        columns = published[:, b, :1], accuracy[:, :, b, 0], *ends
        yield [name, str(budget), *_pairs(np.concatenate(columns, 1))]


def _pairs(values: np.ndarray) -> list[Any]:
    return [spread(column) for column in values.T]


def fill(page: str, record: Record) -> str:
    """Fill the rows of the page's tables in; for the record see `recorded`."""
    tables = record["tables"]
    by_name = {name: _f1(f1) for name, f1, *_ in tables["distances"]}
    least = [name for name in by_name if f"{name}, covering" in by_name]
    accuracies = ("variants", "requests", "answers")
    rows = {
        "claims": claim_rows(record["claims"]),
        "untested": tables["untested"],
        "ours": claim_rows(record["ours"]),
        "distances": [(n, by_name[n], by_name[f"{n}, covering"]) for n in least],
        "classifiers": [
            (*row[:2], *map(_f1, row[2:])) for row in tables["classifiers"]
        ],
        "budgets": [(*row[:2], *map(per_cent, row[2:])) for row in record["budgets"]],
        **{n: [(a, *map(per_cent, b)) for a, *b in tables[n]] for n in accuracies},
        "paths": [
            (way, _f1(f1), f"{kind[0]:.0%}", _f1(grown), f"{grown_kind[0]:.0%}")
            for way, f1, kind, grown, grown_kind in tables["paths"]
        ],
        "combined": [(*row[:2], *map(_f1, row[2:])) for row in record["combined"]],
    }
    return fill_page(page, rows, _WORDS)


def _f1(pair: Any) -> str:
    return with_error(pair, ".3f")


def main(report: str) -> None:
    """Record a report, and fill the page in."""
    record = recorded(json.loads(Path(report).read_text("utf-8")))
    write_record(record, RECORD, [PAGE], fill)


if __name__ == "__main__":
    main(sys.argv[1])
