"""Figures to reach: whether a run met them, and which musts the latest runs miss."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from ._case import Target
from ._records import Json, busy, clock_of, latest, machine_text, number, smaller, timed

_FIELDS = [field.name for field in dataclasses.fields(Target)]


@dataclasses.dataclass(frozen=True)
class Judged:
    """A target of a case's latest run.

    Attributes:
        bench: The benchmark.
        case: Its case.
        machine: Device of the measurement.
        target: The figure to reach.
        measured: The measured figure, or None.
        met: Whether it is reached; None if unknown.
        load: That of a busy machine, or None.
    """

    bench: str
    case: str
    machine: str
    target: Target
    measured: float | None
    met: bool | None
    load: float | None


def judge(target: Target, case: Json, clock: str) -> dict[str, Any]:
    """Return a target's measured figure, and whether it is met; None if unknown."""
    measured = _measured(target, case, clock)
    met = None
    if measured is not None and target.bound == "at least":
        met = measured >= target.limit
    elif measured is not None:
        met = measured <= target.limit
    return {"measured": measured, "met": met}


def rejudged(record: Json, case: Json) -> list[tuple[Target, dict[str, Any]]]:
    """Judge a recorded case's targets anew: how that is done may have changed since."""
    targets = [Target(**{k: t[k] for k in _FIELDS}) for t in case["targets"]]
    return [(target, judge(target, case, clock_of(record, case))) for target in targets]


def judged(records: Sequence[Json]) -> list[Judged]:
    """Return all targets of the latest run of each case."""
    return [
        Judged(
            record["bench"],
            case["name"],
            machine_text(record["device"]),
            target,
            verdict["measured"],
            verdict["met"],
            busy(record, case),
        )
        for record, case in latest(records).values()
        for target, verdict in rejudged(record, case)
    ]


def missed_musts(records: Sequence[Json]) -> list[str]:
    """Return lines of Markdown: every must that the latest runs miss, if any."""
    musts = [must for must in judged(records) if must.target.level == "must"]
    missed = [must for must in musts if must.met is False]
    unknown = sum(must.met is None for must in musts)
    lines = [
        f"- **{must.bench} {must.case}**, {must.target.text}: {number(must.measured)} "
        f"({must.machine}{_at(must.load)})"
        for must in missed
    ]
    if not musts:
        return []
    head = f"**{len(missed)} of {len(musts)} musts are missed.**"
    if not missed:
        head = f"No must is missed, of {len(musts)}."
    if unknown:
        head += f" {unknown} could not be measured."
    return [head, *([""] if lines else []), *lines]


def _at(load: float | None) -> str:
    return "" if load is None else f", at a load of {load:.0f}"


def _measured(target: Target, case: Json, clock: str) -> float | None:
    rows = {row["name"]: row for row in case["contenders"]}
    row = rows.get(target.contender)
    if row is None or row["status"] != "ok":
        return None
    if target.quantity == "ratio":
        _, ratios = smaller(row, rows.get(target.against or ""), clock)
        return statistics.median(ratios) if ratios else None
    if target.quantity == "peak_mb":
        peak = row["peak_bytes"]
        return None if peak is None else peak / 1e6
    if target.quantity not in ("rate", "cpu_s"):
        return row["figures"].get(target.quantity)
    if not timed(row):
        return None
    if target.quantity == "rate":
        return row["work"] / statistics.median(row["wall_s"])
    return statistics.median(row["cpu_s"])
