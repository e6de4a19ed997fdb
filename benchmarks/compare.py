"""Two sets of recorded runs: `python -m benchmarks.compare A B`.

A and B are files, folders of records, or what records of `history/` begin with: a
revision (`39bfa7127eea`) or a date (`20261124`). Of each case the latest run counts.

A contender's change is how many times as long it takes in B as in A. Where both runs
timed the same peer, it is the change beside that peer, round by round: peers did not
change, and met the same machine. Intervals are 95 % of a bootstrap over the rounds, for
each peer, and the verdict needs all of them. Without a peer it is the change of plain
times, and its interval is widened by how far the peers of these two records moved, or
by a tenth at least: rounds of one run do not show how runs differ.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ._records import (
    HISTORY,
    Json,
    clock_of,
    limited,
    machine,
    machine_text,
    number,
    read,
    table,
    timed,
)

MIN_ROUNDS = 3
"""Two rounds of each are apart in one of three comparisons of the same code."""
_RESAMPLES = 2000
_BESIDE, _PLAIN = math.log(1.03), math.log(1.1)
"""Least widening of an interval, as a logarithm: with peers, and without."""


@dataclasses.dataclass(frozen=True)
class Change:
    """How a contender's time changed.

    Attributes:
        bench: The benchmark.
        case: Its case.
        contender: Who.
        ratio: Times as long in B as in A.
        low: The interval's lower end.
        high: Its upper end.
        verdict: "faster", "slower", "within noise" or "too few rounds".
        by: The reference that it was measured against.
    """

    bench: str
    case: str
    contender: str
    ratio: float
    low: float
    high: float
    verdict: str
    by: str


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Result of a comparison: changes, and notes on cases that cannot be compared."""

    changes: Sequence[Change]
    notes: Sequence[str]


Key = tuple[str, str]
Found = Mapping[Key, tuple[Json, Json]]


def compare(
    before: Sequence[Json], after: Sequence[Json], *, any_cores: bool = False
) -> Comparison:
    """Compare the cases that two sets of records have in common.

    Args:
        before: Records, of one device or several.
        after: The same.
        any_cores: Whether runs on other numbers of cores are compared, with a note.

    Returns:
        Changes in the order of A's cases, and notes on what was left out.

    Raises:
        ValueError: If nothing was measured on the same machine in both.
    """
    old, new = _devices(before, any_cores), _devices(after, any_cores)
    if not old.keys() & new.keys():
        raise ValueError(
            f"A was measured on {_names(before)}, and B on {_names(after)}: times of "
            "different machines say nothing about the code"
            + _hint(before, after, any_cores)
        )
    changes: list[Change] = []
    notes: list[str] = []
    for device in dict.fromkeys([*old, *new]):
        if device not in old or device not in new:
            side, lone = ("A", old) if device in old else ("B", new)
            record = next(iter(lone[device].values()))[0]
            notes.append(f"only {side}, on {_name(record)}: {_listed(lone[device])}")
            continue
        changed, remarks = _compare_device(old[device], new[device])
        changes += changed
        notes += remarks
    return Comparison(changes, notes)


def _devices(records: Sequence[Json], any_cores: bool) -> dict[tuple, dict]:
    """The latest run of each case, by device."""
    devices: dict[tuple, dict] = {}
    for record in sorted(records, key=lambda record: record["date"]):
        key = machine(record["device"])
        if not any_cores:
            key = (*key, record["device"]["cores"])
        for case in record["cases"]:
            if any(row["status"] != "skipped" for row in case["contenders"]):
                held = devices.setdefault(key, {})
                held[record["bench"], case["name"]] = (record, case)
    return devices


def _compare_device(old: Found, new: Found) -> tuple[list[Change], list[str]]:
    notes: list[str] = []
    for side, ours, theirs in (("A", old, new), ("B", new, old)):
        if lone := [key for key in ours if key not in theirs]:
            notes.append(f"only {side}: {_listed(lone)}")
    changes: list[Change] = []
    # Peers did not change: how far they moved is how far two runs differ.
    drifts = _drifts(old, new)
    for key in [key for key in old if key in new]:
        (a, case_a), (b, case_b) = old[key], new[key]
        name = " ".join(key)
        clock = clock_of(a, case_a)
        if clock != clock_of(b, case_b):
            notes.append(f"{name}: timed by other clocks, so not compared")
            continue
        if case_a["title"] != case_b["title"] or case_a["work"] != case_b["work"]:
            notes.append(f"{name}: another size, so not compared")
            continue
        if _unlike(a, case_a, b, case_b):
            notes.append(f"{name}: threads limited on one side only, so not compared")
            continue
        notes += [f"{key[0]}: {text}" for text in _differences(a, b)]
        rows_a, rows_b = _rows(case_a), _rows(case_b)
        drift = drifts.get((a["date"], b["date"]), [])
        for row in case_a["contenders"]:
            who = row["name"]
            if row["peer"]:
                continue
            if who not in rows_a or who not in rows_b:
                notes.append(f"{name}, {who}: not timed in both")
                continue
            change = _change(who, rows_a, rows_b, clock, drift)
            changes.append(Change(*key, who, *change))
        known = {row["name"] for row in case_a["contenders"]}
        notes += [
            f"{name}, {who}: not in A"
            for who, row in rows_b.items()
            if not row["peer"] and who not in known
        ]
    return changes, list(dict.fromkeys(notes))


def _unlike(a: Json, case_a: Json, b: Json, case_b: Json) -> bool:
    """Return whether as many cores had one thread for each contender in one run only.

    Other numbers of cores are compared on demand, with a note.
    """
    cores = a["device"]["cores"], b["device"]["cores"]
    return cores[0] == cores[1] and limited(a, case_a) != limited(b, case_b)


def _listed(keys: Iterable[Key]) -> str:
    """Cases by benchmark: "knn exact, hybrid; match small"."""
    benches: dict[str, list[str]] = {}
    for bench, case in keys:
        benches.setdefault(bench, []).append(case)
    return "; ".join(f"{name} {', '.join(cases)}" for name, cases in benches.items())


def _differences(a: Json, b: Json) -> list[str]:
    notes = []
    cores = a["device"]["cores"], b["device"]["cores"]
    if cores[0] != cores[1]:
        notes.append(f"{cores[0]} cores in A, {cores[1]} in B")
    return notes + [
        f"{name} {version} in A, {b['versions'][name]} in B"
        for name, version in a["versions"].items()
        if b["versions"].get(name, version) != version
    ]


def _rows(case: Json) -> dict[str, Json]:
    return {row["name"]: row for row in case["contenders"] if timed(row)}


def _drifts(old: Found, new: Found) -> dict[tuple[str, str], list[float]]:
    """The logarithms of the changes of all peers, for each pair of records."""
    drifts: dict[tuple[str, str], list[float]] = {}
    for key in [key for key in old if key in new]:
        (a, case_a), (b, case_b) = old[key], new[key]
        rows_a, rows_b = _rows(case_a), _rows(case_b)
        if _unlike(a, case_a, b, case_b):
            continue
        for who in _peers(rows_a, rows_b):
            clock = clock_of(a, case_a)
            moved = _logs(rows_b[who], clock), _logs(rows_a[who], clock)
            held = drifts.setdefault((a["date"], b["date"]), [])
            held.append(float(np.median(moved[0]) - np.median(moved[1])))
    return drifts


def _peers(a: Mapping[str, Json], b: Mapping[str, Json]) -> list[str]:
    """The peers that both timed, at the same share of the work."""
    return [
        who
        for who, row in a.items()
        if row["peer"] and who in b and b[who]["work"] == row["work"]
    ]


def _change(
    who: str,
    a: Mapping[str, Json],
    b: Mapping[str, Json],
    clock: str,
    drift: Sequence[float],
) -> tuple[float, float, float, str, str]:
    ours, peers = (_logs(a[who], clock), _logs(b[who], clock)), _peers(a, b)
    intervals = [
        _interval(ours[0] - _logs(a[peer], clock), ours[1] - _logs(b[peer], clock))
        for peer in peers
    ]
    extra, by = _BESIDE, "beside " + ", ".join(peers)
    if not peers:
        intervals = [_interval(*ours)]
        extra, by = max([_PLAIN, *map(abs, drift)]), "plain times"
    middle = float(np.mean([interval[1] for interval in intervals]))
    low = min(interval[0] for interval in intervals) - extra
    high = max(interval[2] for interval in intervals) + extra
    rounds = min(len(side) for side in ours)
    verdict = "within noise"
    if rounds < MIN_ROUNDS:
        verdict = "too few rounds"
    elif low > 0:
        verdict = "slower"
    elif high < 0:
        verdict = "faster"
    return math.exp(middle), math.exp(low), math.exp(high), verdict, by


def _logs(row: Json, clock: str) -> np.ndarray:
    return np.log(np.asarray(row[clock]) / row["work"])


def _interval(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """Bounds and the middle of the difference of medians, by bootstrap."""
    rng = np.random.default_rng(0)
    medians = [
        np.median(side[rng.integers(len(side), size=(_RESAMPLES, len(side)))], axis=1)
        for side in (a, b)
    ]
    low, high = np.quantile(medians[1] - medians[0], (0.025, 0.975))
    return float(low), float(np.median(b) - np.median(a)), float(high)


def _name(record: Json) -> str:
    cores = record["device"]["cores"]
    return f"{machine_text(record['device'])}, {cores} core{'s' if cores > 1 else ''}"


def _names(records: Sequence[Json]) -> str:
    return "; ".join(dict.fromkeys(map(_name, records)))


def _hint(before: Sequence[Json], after: Sequence[Json], any_cores: bool) -> str:
    known = {machine(record["device"]) for record in before}
    if not any_cores and any(machine(record["device"]) in known for record in after):
        return " (they differ in cores only: --any-cores compares them nonetheless)"
    return ""


# The command.


def load(what: str, history: Path = HISTORY, *, quick: bool = False) -> list[Json]:
    """Return the records that an argument of the command names.

    Args:
        what: A file, a folder, or the beginning of a revision or of a date.
        history: Where revisions and dates are looked up.
        quick: Whether quick runs are meant: they are never mixed with full ones.

    Raises:
        ValueError: If there are none.
    """
    path = Path(what)
    if path.exists():
        files = path.glob("*.json") if path.is_dir() else [path]
        records = read(files, quick=quick)
    else:
        records = [
            record
            for record in read(history.glob("*.json"), quick=quick)
            if record["date"].startswith(what)
            or len(what) >= 4
            and (record["revision"] or "").startswith(what)
        ]
    if not records:
        kind = "quick" if quick else "full"
        raise ValueError(
            f"{what}: expected a file or folder of {kind} runs (--quick says which), "
            f"or the revision or date of one in {history.name}/"
        )
    return records


def markdown(result: Comparison) -> str:
    """Return a comparison as a table, and the notes below it."""
    body = [
        [
            f"{change.bench} {change.case}",
            change.contender,
            number(change.ratio),
            f"{number(change.low)} to {number(change.high)}",
            change.verdict,
            change.by,
        ]
        for change in result.changes
    ]
    head = ["case", "contender", "B / A", "95 %", "verdict", "by"]
    return "\n".join([*table(head, body), "", *(f"- {note}" for note in result.notes)])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the changes between two sets of records.

    Returns:
        The exit status: 1 if a contender is slower by more than `--fail-above`.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare")
    add = parser.add_argument
    add("before", metavar="A", help="a file, a folder, a revision or a date")
    add("after", metavar="B", help="the same")
    add(
        "--fail-above",
        type=float,
        metavar="RATIO",
        help="exit with 1 if something takes more than so many times as long, "
        "noise left aside",
    )
    add("--quick", action="store_true", help="compare quick runs, not the full ones")
    add("--any-cores", action="store_true", help="though the number of cores differs")
    add("--history", type=Path, default=HISTORY, help="where revisions are looked up")
    args = parser.parse_args(argv)
    try:
        before, after = (
            load(what, args.history, quick=args.quick)
            for what in (args.before, args.after)
        )
        comparison = compare(before, after, any_cores=args.any_cores)
    except ValueError as error:
        parser.error(str(error))
    print(markdown(comparison))
    if args.fail_above is None:
        return 0
    # The interval's lower end: what is slower for sure.
    failed = [
        change
        for change in comparison.changes
        if change.verdict == "slower" and change.low > args.fail_above
    ]
    for change in failed:
        print(
            f"FAILED: {change.bench} {change.case}, {change.contender}: at least "
            f"{number(change.low)} times as long, at most {args.fail_above:g} allowed"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
