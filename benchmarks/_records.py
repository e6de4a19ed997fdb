"""Recorded runs: reading them, and the figures of one case."""

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
    records = [json.loads(path.read_text()) for path in sorted(paths)]
    return [record for record in records if record["quick"] == quick]


def machine(device: Json) -> tuple[str, ...]:
    """Return the key of a machine: times compare between devices of an equal one."""
    return device["platform"], device["kind"], device["cpu"]


def machine_text(device: Json) -> str:
    """Return the machine's name for a reader, without the number of cores."""
    return device["cpu"] if device["platform"] == "cpu" else device["kind"]


def latest(records: Iterable[Json]) -> dict[tuple[str, ...], tuple[Json, Json]]:
    """Return record and case of each case's latest run in which a contender worked.

    Keys are the machine, the benchmark and the case's name, in order of appearance.
    """
    runs = {}
    for record in sorted(records, key=lambda record: record["date"]):
        for case in record["cases"]:
            if any(row["status"] == "ok" for row in case["contenders"]):
                key = (*machine(record["device"]), record["bench"], case["name"])
                runs[key] = (record, case)
    return runs


def clock_of(record: Json, case: Json) -> str:
    """Return the clock of a case: "cpu_s" or "wall_s"."""
    return case.get("clock") or record["clock"]


def limited(record: Json, case: Json) -> bool:
    """Return whether all contenders had one thread, or one core."""
    return record["device"]["cores"] == 1 or case.get("threads") == 1


def busy(record: Json, case: Json) -> float | None:
    """Return the load during a case where it was above two for each core, or None."""
    load = max(case["load_before"][0], case["load_after"][0])
    return load if load > 2 * record["device"]["cores"] else None


def timed(row: Json) -> bool:
    """Return whether a row is right, and times the contender it names, and only it.

    Old records time the second call of a contender that kept its result: by its own
    figures in seconds the first took longer. Others include the time of peers and
    references, as their notes say.
    """
    if row["status"] != "ok" or not row["wall_s"] or "time is in it" in row["note"]:
        return False
    named = [v for k, v in row["figures"].items() if k.endswith("_s") and v is not None]
    return statistics.median(row["wall_s"]) >= 0.1 * max(named, default=0.0)


def per_unit(row: Json, clock: str) -> float:
    """Return the median seconds of a unit of work."""
    return statistics.median(row[clock]) / row["work"]


def round_ratios(row: Json, peer: Json | None, clock: str) -> list[float]:
    """How many times as fast as the peer, in each round: both met the same load."""
    if peer is None or not timed(peer) or not timed(row):
        return []
    return [
        (theirs / peer["work"]) / (ours / row["work"])
        for ours, theirs in zip(row[clock], peer[clock], strict=True)
    ]


def smaller(row: Json, peer: Json | None, clock: str) -> tuple[str, list[float]]:
    """Return the ratios of the rounds by CPU time or by the clock: the smaller ones.

    CPU time alone charges a peer for threads that spin, and the clock alone charges
    one for cores that it was not given.

    Args:
        row: Our contender.
        peer: The other.
        clock: The case's: "wall_s" leaves no choice.

    Returns:
        The clock with the smaller median, and its ratios; none without times.
    """
    clocks = ["cpu_s", "wall_s"] if clock == "cpu_s" else [clock]
    ratios = {name: round_ratios(row, peer, name) for name in clocks}
    if not ratios[clock]:
        return clock, []
    name = min(ratios, key=lambda name: statistics.median(ratios[name]))
    return name, ratios[name]


def uneven(rows: Iterable[Json]) -> float:
    """Return the most CPU seconds a second of a row over the least."""
    shares = [
        statistics.median(map(float.__truediv__, row["cpu_s"], row["wall_s"]))
        for row in rows
    ]
    return max(shares) / max(min(shares), 1e-9) if shares else 1.0


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
