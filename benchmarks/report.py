"""The results as Markdown: `python -m benchmarks.report` writes RESULTS.md.

And RESULTS.svg, its chart, where matplotlib is installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import _limits, _summary
from ._case import Target
from ._records import HISTORY, Json, number, quartiles, read, round_ratios, table

_HERE = Path(__file__).parent
_BEGIN = """# Benchmark results

Written by `python -m benchmarks.report` from `history/`. README.md says what the
columns mean. First, of each case's latest run: our own contender, the fastest peer for
each unit of work, how many times as fast ours is, with the quartiles of the rounds, and
how much of what the machine can do ours reaches. CPU time on a CPU, wall elsewhere.
A revision that ends in + had changes that were not committed.
"""
_NOTHING = "–"


def judge(target: Target, case: Json, clock: str) -> dict[str, Any]:
    """Return what was measured for a target, and whether it is met; None if unknown."""
    measured = _measured(target, case, clock)
    met = None
    if measured is not None and target.bound == "at least":
        met = measured >= target.limit
    elif measured is not None:
        met = measured <= target.limit
    return {"measured": measured, "met": met}


def section(device: Json, records: Sequence[Json]) -> str:
    """Return the results of one device as Markdown: of each case, its latest run.

    Args:
        device: As in the records.
        records: All of that device, in any order.
    """
    latest = {}
    for record in sorted(records, key=lambda record: record["date"]):
        for case in record["cases"]:
            latest[record["bench"], case["name"]] = (record, case)
    shown = {record["date"]: record for record, _ in latest.values()}
    title = device["kind"]
    if device["platform"] == "cpu":
        title = f"{device['cpu']}, {device['cores']} cores"
    return "\n".join(
        [
            f"## {title}\n",
            *(_case(record, case) for record, case in latest.values()),
            *(_versions(record) for record in shown.values()),
        ]
    )


def document(records: Sequence[Json], chart: str | None = None) -> str:
    """Return all results as Markdown: a summary, and a section for each device.

    Args:
        records: Full runs, in any order.
        chart: The file of the summary's chart, as a link from the text; none if None.
    """
    devices: dict[str, list[Json]] = {}
    for record in records:
        device = record["device"]
        key = json.dumps([device[k] for k in ("platform", "kind", "cpu", "cores")])
        devices.setdefault(key, []).append(record)
    sections = [section(group[0]["device"], group) for group in devices.values()]
    top = [*_summary.summary(_summary.lines(records)), ""]
    if chart is not None:
        top += [f"![{_summary.ALT}]({chart})", ""]
    return "\n".join([_BEGIN, *top, *sections])


def _measured(target: Target, case: Json, clock: str) -> float | None:
    rows = {row["name"]: row for row in case["contenders"]}
    row = rows.get(target.contender)
    if row is None or row["status"] != "ok":
        return None
    if target.quantity == "ratio":
        ratios = round_ratios(row, rows.get(target.against or ""), clock)
        return statistics.median(ratios) if ratios else None
    if target.quantity == "rate":
        return row["work"] / statistics.median(row["wall_s"])
    if target.quantity == "cpu_s":
        return statistics.median(row["cpu_s"])
    if target.quantity == "peak_mb":
        peak = row["peak_bytes"]
        return None if peak is None else peak / 1e6
    return row["figures"].get(target.quantity)


def _case(record: Json, case: Json) -> str:
    lines = [f"### {case['title']}\n"]
    first = case["contenders"][0]
    if first["status"] == "skipped":
        lines.append(f"Not measured here: {first['reason']}.\n")
    else:
        lines += [*_contenders(case, record["clock"], record.get("limits")), ""]
        lines += [_provenance(record, case), ""]
    if case["targets"]:
        lines += [*_targets(case["targets"]), ""]
    return "\n".join(lines)


def _contenders(case: Json, clock: str, limits: Json | None) -> list[str]:
    rows, unit = case["contenders"], case["unit"]
    peers = [row for row in rows if row["peer"] and row["status"] == "ok"]
    time = "CPU" if clock == "cpu_s" else "wall"
    head = ["", f"{time} ns/{unit}", "IQR", "wall ms", "compile s", "peak MB"]
    head += [f"bytes/{unit}", *(f"× {peer['name']}" for peer in peers)]
    head += ["of the limit", "checked", ""]
    body = []
    for row in rows:
        if row["status"] == "ok":
            seconds = statistics.median(row[clock]) / row["work"]
            share = _limits.share(case, seconds, limits)
            body.append(_timed(row, peers, clock, share))
        else:
            empty = [_NOTHING] * (len(head) - 3)
            body.append([row["name"], row["status"], *empty, row["reason"]])
    return table(head, body)


def _timed(
    row: Json, peers: Sequence[Json], clock: str, share: float | None
) -> list[str]:
    scale = 1e9 / row["work"]
    low, middle, high = (number(t * scale) for t in quartiles(row[clock]))
    cells = [
        row["name"],
        middle,
        f"{low} to {high}",
        number(statistics.median(row["wall_s"]) * 1e3),
        number(row["compile_s"]),
        number(row["peak_bytes"], 1e6),
        number(row["peak_bytes"], row["work"]),
    ]
    for peer in peers:
        low, middle, high = map(number, quartiles(round_ratios(row, peer, clock)))
        cells.append(_NOTHING if peer is row else f"{middle} ({low} to {high})")
    cells.append(_NOTHING if share is None else f"{share:.0%}")
    cells.append(", ".join(f"{k} {number(v)}" for k, v in row["figures"].items()))
    cells.append(", ".join(filter(None, [row["note"], row.get("probe_error")])))
    return cells


def _targets(targets: Sequence[Json]) -> list[str]:
    words = {True: "met", False: "**not met**", None: "not measured"}
    body = [
        [row["level"], row["text"], number(row["measured"]), words[row["met"]]]
        for row in targets
    ]
    return table(["", "figure", "measured", ""], body)


def _provenance(record: Json, case: Json) -> str:
    rounds = max(len(row["wall_s"]) for row in case["contenders"])
    before, after = case["load_before"][0], case["load_after"][0]
    return (
        f"{record['date']}, revision {record['revision'] or 'unknown'}, "
        f"{rounds} rounds, load {before} before and {after} after"
        f"{_limit(record, case)}."
    )


def _limit(record: Json, case: Json) -> str:
    """Say what the machine can do, where that bounds the case."""
    limits = record.get("limits")
    if not limits or not (case.get("flops") or case.get("bytes")):
        return ""
    each = "CPU second" if record["clock"] == "cpu_s" else "second"
    return (
        f"; the machine does {number(limits['flops_per_s'], 1e9)} GFLOP and reads "
        f"{number(limits['bytes_per_s'], 1e9)} GB a {each}"
    )


def _versions(record: Json) -> str:
    found = (f"{name} {version}" for name, version in record["versions"].items())
    return f"{record['date']}: {', '.join(found)}.\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Write the tables and the chart of all recorded runs, quick ones left out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument("--history", type=Path, default=HISTORY)
    parser.add_argument("--out", type=Path, default=_HERE / "RESULTS.md")
    args = parser.parse_args(argv)
    records = read(args.history.glob("*.json"))
    path = args.out.with_suffix(".svg")
    chart = None
    try:
        _summary.chart(_summary.lines(records), path)
        chart = path.name
    except ImportError as error:
        print(f"no chart: {error}", file=sys.stderr)
    args.out.write_text(document(records, chart))


if __name__ == "__main__":
    main()
