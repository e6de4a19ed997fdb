"""The results as Markdown: `python -m benchmarks.report` writes RESULTS.md.

And RESULTS.svg, its chart, where matplotlib is installed. The exit status is 1 if the
latest runs miss a must.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import _chart, _limits, _summary
from ._records import (
    HISTORY,
    Json,
    clock_of,
    limited,
    number,
    per_unit,
    quartiles,
    read,
    smaller,
    table,
    timed,
    uneven,
)
from ._summary import UNEVEN, duration
from ._targets import judged, missed_musts, rejudged

_HERE = Path(__file__).parent
_BEGIN = """# Benchmark results

Written by `python -m benchmarks.report` from `history/`. README.md says what the
columns mean.
"""
_SUMMARY = """## Summary

Of each case's latest run: our own contender, the peer that comes closest, how many
times as fast ours is, with the quartiles of the rounds, and how much of what the
machine can do ours reaches. On a CPU ratios are made of CPU time and of the clock, in
the same rounds: the smaller is printed, and says "wall" where it is the clock's.
Elsewhere it is the clock's. A revision that ends in + had changes that were not
committed.
"""
_NOTHING = "–"
_FEW = 4  # figures that a cell holds


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
        cores = device["cores"]
        title = f"{device['cpu']}, {cores} core{'s' if cores > 1 else ''}"
    return "\n".join(
        [
            f"## {title}\n",
            *(_case(record, case) for record, case in latest.values()),
            *(_versions(record) for record in shown.values()),
        ]
    )


def one_run(record: Json) -> str:
    """Return a run as Markdown, which opens with the musts that it misses."""
    return "\n".join([*missed_musts([record]), "", section(record["device"], [record])])


def document(records: Sequence[Json], chart: str | None = None) -> str:
    """Return all results as Markdown: missed musts, a summary, and each device.

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
    musts = missed_musts(records)
    top = [*musts, *([""] if musts else []), _SUMMARY]
    top += [*_summary.summary(records), ""]
    if chart is not None:
        top += [f"![{_chart.ALT}]({chart})", ""]
    return "\n".join([_BEGIN, *top, *sections])


def _case(record: Json, case: Json) -> str:
    lines = [f"### {case['title']}\n"]
    first = case["contenders"][0]
    if first["status"] == "skipped":
        lines.append(f"Not measured here: {first['reason']}.\n")
    else:
        lines += [*_contenders(record, case), ""]
        if figures := _figures(case):
            lines += [*figures, ""]
        lines += [_provenance(record, case), ""]
    if case["targets"]:
        lines += [*_targets(record, case), ""]
    return "\n".join(lines)


def _contenders(record: Json, case: Json) -> list[str]:
    rows, unit, clock = case["contenders"], case["unit"], clock_of(record, case)
    peers = [row for row in rows if row["peer"] and timed(row)]
    time = "CPU" if clock == "cpu_s" else "wall"
    head = ["", f"{time}/{unit}", "IQR", "wall/call", "compile s", "peak MB"]
    head += [f"bytes/{unit}", *(f"× {peer['name']}" for peer in peers)]
    head += ["of the limit", "checked", ""]
    body = []
    for row in rows:
        if timed(row):
            seconds = per_unit(row, clock)
            share = _limits.share(case, seconds, record.get("limits"))
            note = _note(record, case, row)
            body.append(_timed(row | {"note": note}, peers, clock, share, case))
        else:
            status = row["status"]
            empty = [_NOTHING] * (len(head) - 4)
            cells = [row["name"], "no time" if status == "ok" else status, *empty]
            why = row["note"] if status == "ok" else row["reason"]
            body.append([*cells, _checked(row, case), why])
    return table(head, body)


def _note(record: Json, case: Json, row: Json) -> str:
    """Return the note of a row; old rows named "hybrid" sorted on CPUs."""
    old = record["device"]["platform"] == "cpu" and "threads" not in case
    if (record["bench"], row["name"]) == ("knn", "hybrid") and old:
        return "exact values: that call sorts where operations are compiled"
    return row["note"]


def _timed(
    row: Json, peers: Sequence[Json], clock: str, share: float | None, case: Json
) -> list[str]:
    cells = [
        row["name"],
        duration(per_unit(row, clock)),
        spread([t / row["work"] for t in row[clock]], duration),
        duration(statistics.median(row["wall_s"])),
        number(row["compile_s"]),
        number(row["peak_bytes"], 1e6),
        number(row["peak_bytes"], row["work"]),
    ]
    for peer in peers:
        alone = peer["name"] == row["name"]
        cells.append(_NOTHING if alone else ratio_text(row, peer, clock))
    cells.append(_NOTHING if share is None else f"{share:.0%}")
    cells.append(_checked(row, case))
    cells.append(", ".join(filter(None, [row["note"], row.get("probe_error")])))
    return cells


def spread(values: Sequence[float], text: Callable[[float], str] = number) -> str:
    """Return the quartiles as text, or that there was one round."""
    if len(values) == 1:
        return "one round"
    low, _, high = map(text, quartiles(values))
    return f"{low} to {high}"


def ratio_text(row: Json, peer: Json, clock: str) -> str:
    """Return how many times as fast a row is, with quartiles, by the smaller ratio."""
    by, ratios = smaller(row, peer, clock)
    word = " wall" if by != clock else ""
    return f"{number(statistics.median(ratios))}{word} ({spread(ratios)})"


def _names(case: Json) -> list[str]:
    """Return the names of all figures, in order."""
    rows = case["contenders"]
    return list(dict.fromkeys(name for row in rows for name in row["figures"]))


def _checked(row: Json, case: Json) -> str:
    if not row["figures"]:
        return _NOTHING if row["status"] != "ok" else ""
    if len(_names(case)) > _FEW:
        return "below"
    return ", ".join(f"{k} {number(v)}" for k, v in row["figures"].items())


def _figures(case: Json) -> list[str]:
    """Return a table of a case's figures, if they are more than a cell holds."""
    names = _names(case)
    if len(names) <= _FEW:
        return []
    rows = [row for row in case["contenders"] if row["figures"]]
    body = [
        [name.replace("_", " "), *(number(row["figures"].get(name)) for row in rows)]
        for name in names
    ]
    return table(["figure", *(row["name"] for row in rows)], body)


def _targets(record: Json, case: Json) -> list[str]:
    words = {True: "met", False: "**not met**", None: "not measured"}
    body = [
        [target.level, target.text, number(verdict["measured"]), words[verdict["met"]]]
        for target, verdict in rejudged(record, case)
    ]
    return table(["", "figure", "measured", ""], body)


def _provenance(record: Json, case: Json) -> str:
    rounds = max(len(row["wall_s"]) for row in case["contenders"])
    before, after = case["load_before"][0], case["load_after"][0]
    return (
        f"{record['date']}, revision {record['revision'] or 'unknown'}, "
        f"{rounds} round{'s' if rounds != 1 else ''}, {_threads(record, case)}, load "
        f"{before} before and {after} after{_limit(record, case)}."
    )


def _threads(record: Json, case: Json) -> str:
    """Say how many threads contenders had, and whether they used the cores alike."""
    if case.get("threads") == 1:
        words = "one thread each"
    elif limited(record, case):
        words = "on one core"
    elif "threads" in case:
        words = "processes with as many threads as they want"
    else:
        words = "threads not limited"
    rows = [row for row in case["contenders"] if timed(row)]
    compared = any(row["peer"] for row in rows) and clock_of(record, case) == "cpu_s"
    if compared and (times := uneven(rows)) > UNEVEN:
        words += (
            f" (CPU seconds a second differ by a factor of {number(times)}: "
            "contenders did not use the cores alike)"
        )
    return words


def _limit(record: Json, case: Json) -> str:
    """Return the machine's peak rates in words, where they bound the case."""
    limits = record.get("limits")
    if not limits or not (case.get("flops") or case.get("bytes")):
        return ""
    unit = "CPU second" if record["clock"] == "cpu_s" else "second"
    return (
        f"; the machine does {number(limits['flops_per_s'], 1e9)} GFLOP and reads "
        f"{number(limits['bytes_per_s'], 1e9)} GB a {unit}"
    )


def _versions(record: Json) -> str:
    parts = (f"{name} {version}" for name, version in record["versions"].items())
    return f"{record['date']}: {', '.join(parts)}.\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tables and the chart of all recorded runs, quick ones left out.

    Returns:
        The exit status: 1 if a must is missed.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument("--history", type=Path, default=HISTORY)
    parser.add_argument("--out", type=Path, default=_HERE / "RESULTS.md")
    args = parser.parse_args(argv)
    records = read(args.history.glob("*.json"))
    path = args.out.with_suffix(".svg")
    chart = None
    try:
        _chart.chart(_summary.lines(records), path)
        chart = path.name
    except ImportError as error:
        print(f"no chart: {error}", file=sys.stderr)
    args.out.write_text(document(records, chart))
    print(*missed_musts(records), sep="\n", file=sys.stderr)
    musts = [must for must in judged(records) if must.target.level == "must"]
    return 1 if any(must.met is False for must in musts) else 0


if __name__ == "__main__":
    raise SystemExit(main())
