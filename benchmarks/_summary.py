"""The top of RESULTS.md: each case beside its best peer, and a chart of that."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import _limits
from ._records import (
    Json,
    machine,
    machine_text,
    number,
    quartiles,
    round_ratios,
    table,
)

ALT = (
    "How many times as fast as the best peer each case is, on a logarithmic scale: the "
    "figures of the table above"
)
# Of a palette that people with any colour vision tell apart, on white.
_COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#6b4fa0")
_INK, _FAINT = "#1f2328", "#d0d7de"
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
        machine: What it was measured on.
        ours: Our contender, with its time for each unit of work.
        peer: The best peer, likewise; None if none was timed.
        ratios: First quartile, median and third of how many times as fast ours is.
        limit: Share of the machine's limit that ours reached, or None.
    """

    bench: str
    case: str
    machine: str
    ours: str
    peer: str | None = None
    ratios: Sequence[float] = ()
    limit: float | None = None


def lines(records: Sequence[Json]) -> list[Line]:
    """Return the latest run of each case, by machine and benchmark.

    Ours is a case's first contender that was timed, except as `_OURS` says; the best
    peer is the one with the least time for each unit of work.
    """
    latest = {}
    for record in sorted(records, key=lambda record: record["date"]):
        for case in record["cases"]:
            key = (*machine(record["device"]), record["bench"], case["name"])
            if any(row["status"] == "ok" for row in case["contenders"]):
                latest[key] = (record, case)
    found = [_line(record, case) for record, case in latest.values()]
    return sorted((one for one in found if one), key=lambda x: (x.machine, x.bench))


def _line(record: Json, case: Json) -> Line | None:
    clock = record["clock"]
    timed = [row for row in case["contenders"] if row["status"] == "ok"]
    own = [row for row in timed if not row["peer"]]
    if not own:
        return None
    named = _OURS.get((record["bench"], case["name"]))
    ours = next((row for row in own if row["name"] == named), own[0])
    peers = [row for row in timed if row["peer"]]
    best = min(peers, key=lambda row: _each(row, clock), default=None)
    return Line(
        record["bench"],
        case["name"],
        machine_text(record["device"]),
        _shown(ours, case, clock),
        _shown(best, case, clock) if best else None,
        quartiles(round_ratios(ours, best, clock)) if best else (),
        _limits.share(case, _each(ours, clock), record.get("limits")),
    )


def _each(row: Json, clock: str) -> float:
    return statistics.median(row[clock]) / row["work"]


def _shown(row: Json, case: Json, clock: str) -> str:
    return f"{row['name']}, {_duration(_each(row, clock))}/{case['unit']}"


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds / 1e-9)} ns"


def summary(found: Sequence[Line]) -> list[str]:
    """Return the table as lines of Markdown, the cases with a peer first."""
    several = len({line.machine for line in found}) > 1
    head = ["case", "ours", "best peer", "× best peer", "of the limit"]
    if several:
        head.insert(1, "on")
    body = []
    for line in sorted(found, key=lambda line: line.peer is None):
        ratio = "–"
        if line.peer is not None:
            low, middle, high = map(number, line.ratios)
            ratio = f"**{middle}** ({low} to {high})"
        limit = "–" if line.limit is None else f"{line.limit:.0%}"
        case = f"{line.bench} {line.case}"
        cells = [case, line.ours, line.peer or "–", ratio, limit]
        if several:
            cells.insert(1, line.machine)
        body.append(cells)
    return table(head, body)


def chart(found: Sequence[Line], path: Path) -> None:
    """Write a chart of the ratios as SVG, dark on white for any background."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    shown = [line for line in found if line.peer is not None]
    groups = list(dict.fromkeys(line.machine for line in shown))
    height = 1.15 + 0.3 * (len(shown) + 1.2 * len(groups))
    # Letters as outlines look the same everywhere; a fixed salt, and no date, make the
    # same file of the same records.
    style: Any = {"svg.fonttype": "path", "svg.hashsalt": "jaxsel", "font.size": 10}
    with rc_context(style):
        figure = Figure(figsize=(8.5, height), facecolor="white", layout="constrained")
        FigureCanvasSVG(figure)
        _draw(figure.subplots(), shown, groups)
        figure.savefig(path, metadata={"Date": None})


def _draw(axes: Any, shown: Sequence[Line], groups: Sequence[str]) -> None:
    y, places, labels = 0.0, [], []
    most = max((line.ratios[2] for line in shown), default=1.0)
    least = min((line.ratios[0] for line in shown), default=1.0)
    for group, colour in zip(groups, _COLOURS * len(groups), strict=False):
        places.append(y)
        labels.append((group, colour, "bold"))
        for line in (line for line in shown if line.machine == group):
            y += 1
            low, middle, high = line.ratios
            axes.plot([1, middle], [y, y], color=colour, lw=6, alpha=0.3,
                      solid_capstyle="butt", zorder=1)  # fmt: skip
            axes.plot([low, high], [y, y], color=colour, lw=2, zorder=2)
            axes.plot(middle, y, "o", color=colour, ms=6, zorder=3)
            peer = (line.peer or "").rsplit(", ", 1)[0]
            axes.text(
                max(high, 1) * 1.12, y, f"{number(middle)} × {peer}", va="center",
                color=_INK, size=9,
            )  # fmt: skip
            places.append(y)
            labels.append((f"{line.bench}: {line.case}", _INK, "normal"))
        y += 1.2
    axes.set_xscale("log")
    axes.set_xlim(min(least, 1) / 1.3, max(most, 2) * 5)  # room for the last label
    axes.set_ylim(y - 0.4, -0.7)
    axes.axvline(1, color=_INK, lw=1)
    axes.set_yticks(places, [text for text, _, _ in labels])
    for tick, (_, colour, weight) in zip(axes.get_yticklabels(), labels, strict=True):
        tick.set(color=colour, weight=weight)
    axes.tick_params(which="both", length=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.grid(axis="x", color=_FAINT, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("times as fast as the best peer (line: quartiles of the rounds)")
    for side in axes.spines.values():
        side.set_visible(False)
