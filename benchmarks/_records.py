"""Recorded runs: reading them, and what one case of them says."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Json = Mapping[str, Any]

HISTORY = Path(__file__).parent / "history"


def read(paths: Iterable[Path], *, quick: bool = False) -> list[Json]:
    """Return the records in files, by name: the full runs, or the quick ones."""
    found = [json.loads(path.read_text()) for path in sorted(paths)]
    return [record for record in found if record["quick"] == quick]


def machine(device: Json) -> tuple[str, ...]:
    """Return what two devices must share for their times to say the same."""
    return device["platform"], device["kind"], device["cpu"]


def machine_text(device: Json) -> str:
    """Return the machine's name for a reader, without the number of cores."""
    return device["cpu"] if device["platform"] == "cpu" else device["kind"]


def round_ratios(row: Json, peer: Json | None, clock: str) -> list[float]:
    """How many times as fast as the peer, in each round: both met the same load."""
    if peer is None or peer["status"] != "ok":
        return []
    return [
        (theirs / peer["work"]) / (ours / row["work"])
        for ours, theirs in zip(row[clock], peer[clock], strict=True)
    ]


def quartiles(values: Sequence[float]) -> list[float]:
    """Return the first quartile, the median and the third."""
    if len(values) == 1:  # what takes minutes is run once
        return [values[0]] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def number(value: float | None, divisor: float = 1.0) -> str:
    """Three significant digits, without an exponent where that is readable."""
    if value is None:
        return "–"
    value /= divisor
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}" if value else "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    rows = [head, ["---"] * len(head), *body]
    return [f"| {' | '.join(row)} |" for row in rows]
