"""The top of RESULTS.md: each case beside the peer that comes closest."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from . import _limits
from ._records import (
    Json,
    busy,
    clock_of,
    latest,
    limited,
    machine_text,
    number,
    per_unit,
    quartiles,
    smaller,
    table,
    timed,
    uneven,
)

UNEVEN = 1.2
"""CPU seconds a second of two contenders, one by the other: more of it is marked."""
_FREE, _APART, _BUSY = "†", "‡", "§"
_NOTES = {
    _FREE: "threads were not limited in that run: peers on several cores, whose idle "
    "threads spin, and XLA's own two. Newer runs give every contender one thread",
    _APART: "CPU seconds a second of the two differ by a factor of more than "
    f"{UNEVEN}: one of them had more threads, or more of a busy machine",
    _BUSY: "the machine was busy, at a load above two for each core: times are longer "
    "than on a quiet one, most of all those of the clock",
}
# Where a case's first contender is another's method, or all are ours and differ in
# what they find.
_OURS = {
    ("mpc", "all rows"): "quadratic, polynomial",
    ("mpc", "CLS row"): "quadratic, polynomial",
    ("mpc", "comparison"): "10,000",
    ("proxy", "attention"): "quadratic + both",
}


@dataclasses.dataclass(frozen=True)
class Line:
    """One case on one machine.

    Attributes:
        bench: The benchmark.
        case: Its case.
        machine: Device of the measurement.
        ours: Name and text of our contender: its time for each unit of work.
        peer: The closest peer, likewise; None if none was timed.
        ratios: First quartile, median and third of how many times as fast ours is.
        limit: Share of the machine's limit that ours reached, or None.
        by: The clock of times and ratios: "cpu_s" or "wall_s".
        wall: Whether ratios are the clock's, as the smaller of two.
        rounds: How many there were.
        marks: Footnotes that hold for it.
    """

    bench: str
    case: str
    machine: str
    ours: str
    peer: str | None = None
    ratios: Sequence[float] = ()
    limit: float | None = None
    by: str = "cpu_s"
    wall: bool = False
    rounds: int = 0
    marks: str = ""


def lines(records: Sequence[Json]) -> list[Line]:
    """Return the latest run of each case that has a time, by machine and benchmark.

    Ours is a case's first contender that was timed, except as `_OURS` says; the peer
    is the one beside which ours has the smallest ratio.
    """
    result = [_line(record, case) for record, case in latest(records).values()]
    return sorted((line for line in result if line), key=lambda x: (x.machine, x.bench))


def _line(record: Json, case: Json) -> Line | None:
    clock = clock_of(record, case)
    rows = [row for row in case["contenders"] if timed(row)]
    our_rows = [row for row in rows if not row["peer"]]
    if not our_rows:
        return None
    named = _OURS.get((record["bench"], case["name"]))
    ours = next((row for row in our_rows if row["name"] == named), our_rows[0])
    peers = [row for row in rows if row["peer"]]
    line = Line(
        record["bench"],
        case["name"],
        machine_text(record["device"]),
        _shown(ours, case, clock),
        limit=_limits.share(case, per_unit(ours, clock), record.get("limits")),
        by=clock,
        rounds=len(ours[clock]),
        marks=_BUSY if busy(record, case) else "",
    )
    if not peers:
        return line

    def ratio(peer: Json) -> float:
        return statistics.median(smaller(ours, peer, clock)[1])

    best = min(peers, key=ratio)
    by, ratios = smaller(ours, best, clock)
    marks = ("" if limited(record, case) else _FREE) + line.marks
    if clock == "cpu_s" and uneven([ours, best]) > UNEVEN:
        marks += _APART
    return dataclasses.replace(
        line,
        ours=_shown(ours, case, by),
        peer=_shown(best, case, by),
        ratios=quartiles(ratios),
        by=by,
        wall=by != clock,
        marks=marks,
    )


def _shown(row: Json, case: Json, clock: str) -> str:
    return f"{row['name']}, {duration(per_unit(row, clock))}/{case['unit']}"


def duration(seconds: float) -> str:
    """Return seconds as text in the unit that suits them."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds / 1e-9)} ns"


def summary(records: Sequence[Json]) -> list[str]:
    """Return the table as lines of Markdown, the cases with a peer first."""
    shown = lines(records)
    several = len({line.machine for line in shown}) > 1
    head = ["case", "ours", "closest peer", "× closest peer", "of the limit"]
    if several:
        head.insert(1, "on")
    body = []
    for line in sorted(shown, key=lambda line: line.peer is None):
        limit = "–" if line.limit is None else f"{line.limit:.0%}"
        case = f"{line.bench} {line.case}{line.marks}"
        cells = [case, line.ours, line.peer or "–", _ratio(line), limit]
        if several:
            cells.insert(1, line.machine)
        body.append(cells)
    text = table(head, body)
    for note in footnotes(shown):
        text += ["", note]
    if untimed := _untimed(records):
        text += ["", f"Without a time, as their figures are the result: {untimed}."]
    return text


def footnotes(shown: Sequence[Line]) -> list[str]:
    """Return the notes that marks of lines refer to."""
    marks = "".join(line.marks for line in shown)
    return [f"{mark} {note}." for mark, note in _NOTES.items() if mark in marks]


def _ratio(line: Line) -> str:
    if line.peer is None:
        return "–"
    low, middle, high = map(number, line.ratios)
    quarters = "one round" if line.rounds == 1 else f"{low} to {high}"
    return f"**{middle}**{' wall' if line.wall else ''} ({quarters})"


def _untimed(records: Sequence[Json]) -> str:
    """Name the cases without a usable time of any contender."""
    return ", ".join(
        f"{record['bench']} {case['name']}"
        for record, case in latest(records).values()
        if not any(timed(row) for row in case["contenders"])
    )
