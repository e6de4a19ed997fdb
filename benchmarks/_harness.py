"""The loop that every benchmark shares: check, then time, then measure memory."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import gc
import json
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from . import _limits, _targets, _threads, report
from ._case import Case, Contender
from ._machine import describe, load_average, slug
from ._probe import block, probe
from ._records import HISTORY

SCHEMA = 1
QUICK_ROUNDS = 3
# Thread pools spin for a while after their work: not at the next contender's expense.
_PAUSE_S = 0.05


def main(
    module: str,
    cases: Callable[..., Sequence[Case]],
    argv: Sequence[str] | None = None,
    *,
    alike: Collection[str] = (),
) -> int:
    """Run a benchmark from the command line and write the result.

    Args:
        module: The benchmark's name for `import`: memory is measured in processes that
            import it.
        cases: Takes `quick`, returns the cases.
        argv: Arguments; the command line's if None.
        alike: Cases that run the code of others at other sizes: a quick run of all
            cases leaves them out.

    Returns:
        The exit status: 1 if a contender was wrong or failed.
    """
    bench = module.rsplit(".", 1)[-1].removeprefix("bench_")
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    add = parser.add_argument
    add("--quick", action="store_true", help="tiny sizes, not recorded")
    add("--only", action="append", metavar="NAME", help="only this case")
    add("--out", type=Path, metavar="FILE", help="where to write the result as JSON")
    args = parser.parse_args(argv)
    if args.out is not None and args.out.is_dir():
        parser.error(f"--out must name a file, but {args.out} is a folder")

    chosen = list(cases(quick=args.quick))
    if args.only:
        names = [case.name for case in chosen]
        unknown = sorted(set(args.only) - set(names))
        if unknown:
            parser.error(f"--only {unknown[0]}: expected one of {', '.join(names)}")
        chosen = [
            dataclasses.replace(case, platforms=()) if case.elsewhere else case
            for case in chosen
            if case.name in args.only
        ]
    elif args.quick:
        chosen = [case for case in chosen if case.name not in alike]

    # The processes that measure memory share the accelerator with this one.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    record = run(bench, module, chosen, quick=args.quick)
    out = args.out
    if out is None and not args.quick:
        device = slug(record["device"]["kind"])
        out = HISTORY / f"{bench}-{record['date']}-{device}.json"
    if out is not None:
        write(record, out)
    print(report.one_run(record))
    statuses = {c["status"] for case in record["cases"] for c in case["contenders"]}
    return 1 if statuses & {"wrong", "failed"} else 0


def run(
    bench: str, module: str, cases: Sequence[Case], *, quick: bool = False
) -> dict[str, Any]:
    """Run the cases, one after the other.

    Args:
        bench: The benchmark's name.
        module: Where `cases(quick=...)` is found.
        cases: Cases to run.
        quick: Whether these are the tiny cases.

    Returns:
        All that was measured, as JSON.
    """
    with _threads.limited():
        return _run(bench, module, cases, quick)


def _run(bench: str, module: str, cases: Sequence[Case], quick: bool) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC)
    record = {
        "schema": SCHEMA,
        "bench": bench,
        "quick": quick,
        "date": now.strftime("%Y%m%dT%H%M%SZ"),
        **describe(),
        "cases": [],
    }
    platform = record["device"]["platform"]
    # An accelerator's work takes no CPU time.
    record["clock"] = clock = "cpu_s" if platform == "cpu" else "wall_s"
    record["limits"] = _limits.measure(clock, quick=quick)
    for i, case in enumerate(cases):
        # A process for each takes seconds: in a quick run one shows that it works.
        probes = (1 if i == 0 else 0) if quick else len(case.contenders)
        if not case.probed:
            probes = 0
        record["cases"].append(_run_case(case, module, platform, quick, clock, probes))
    return record


def write(record: dict[str, Any], path: Path) -> None:
    """Write a record as JSON, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _run_case(
    case: Case, module: str, platform: str, quick: bool, clock: str, probes: int
) -> dict[str, Any]:
    _say(case.title)
    rows = [_row(contender, case) for contender in case.contenders]
    clock = case.clock or clock
    result = {
        "name": case.name,
        "title": case.title,
        "unit": case.unit,
        "work": case.work,
        "flops": case.flops,
        "bytes": case.bytes,
        "threads": _threads.limit() if case.threads else None,
        "clock": clock,
        "load_before": load_average(),
        "contenders": rows,
    }
    if case.platforms and platform not in case.platforms:
        for row in rows:
            row["status"], row["reason"] = "skipped", f"needs {case.platforms[0]}"
    else:
        with _threads.limited(case.threads):
            _measure(case, rows, module, quick, probes)
    result["load_after"] = load_average()
    result["targets"] = [
        {**dataclasses.asdict(target), **_targets.judge(target, result, clock)}
        for target in case.targets
        if not quick  # which are for the sizes of full runs
    ]
    return result


def _row(contender: Contender, case: Case) -> dict[str, Any]:
    return {
        "name": contender.name,
        "peer": contender.peer,
        "note": contender.note,
        "work": round(case.work * contender.share),
        "status": "ok",
        "reason": "",
        "figures": {},
        "wall_s": [],
        "cpu_s": [],
        "compile_s": None,
        "peak_bytes": None,
    }


def _measure(
    case: Case, rows: list[dict], module: str, quick: bool, probes: int
) -> None:
    try:
        inputs = case.inputs()
    except (ImportError, OSError) as error:  # data that were not prepared, or a package
        for row in rows:
            # Records are published: they name no folder of this machine.
            reason = f"inputs: {error}".replace(str(Path.home()), "~")
            row["status"], row["reason"] = "absent", reason.splitlines()[0]
        _say(f"  {rows[0]['reason']}")
        return
    calls = []
    for contender, row in zip(case.contenders, rows, strict=True):
        call = _checked(contender, inputs, row)
        _say(f"  {contender.name}: {row['status']} {row['reason']}")
        if call is not None:
            calls.append((contender, call, row))
    _threads.limit()  # what the last contender has loaded
    for _ in range(min(case.rounds, QUICK_ROUNDS) if quick else case.rounds):
        for contender, call, row in calls:
            _time(contender, call, row)
    for _, _, row in calls[:probes]:
        _say(f"  {row['name']}: memory and compilation")
        row |= probe(module, case.name, row["name"], quick=quick)


def _checked(contender: Contender, inputs: Any, row: dict) -> Callable | None:
    """Return the call if its result is right; else set the status in `row`.

    The call has then run once, which warms it up.
    """
    try:
        try:
            call = contender.make(inputs)
            _threads.limit()
        except ImportError as error:
            row["status"], row["reason"] = "absent", str(error)
            return None
        figures = contender.check(inputs, block(call()))
    except Exception as error:  # the others still run
        row["status"], row["reason"] = "failed", f"{type(error).__name__}: {error}"
        return None
    row["figures"] = {  # JSON knows no NaN
        name: float(value) if math.isfinite(value) else None
        for name, value in figures.items()
    }
    for name, limit in contender.limits.items():
        value = float(figures[name])
        if not value <= limit:
            row["status"] = "wrong"
            row["reason"] = f"{name} {value:.2g}, at most {limit:.2g} allowed"
            return None
    return call


def _time(contender: Contender, call: Callable[[], Any], row: dict) -> None:
    gc.collect()
    time.sleep(_PAUSE_S)
    wall, cpu = time.perf_counter(), time.process_time()
    result = block(call())
    taken = time.process_time() - cpu, time.perf_counter() - wall
    if contender.seconds is not None:
        taken = contender.seconds(result)
    for clock, seconds in zip(("cpu_s", "wall_s"), taken, strict=True):
        row[clock].append(seconds)
    del result  # freed outside of what is timed


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
