"""Run on an accelerator all cases that RESULTS has no figures of from one.

`python -m benchmarks.accelerator` runs the most wanted cases first, each in a process
of its own, which may fail alone, and writes a record when the case ends. Run it again
after a kill, or when its minutes are spent: it leaves out cases with a record of this
revision and device.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from ._machine import ROOT, describe, slug
from ._records import HISTORY, Json, machine, read


class Cell(NamedTuple):
    """A case of a benchmark: `python -m benchmarks.bench_ROOM --only CASE` runs it."""

    room: str
    case: str


CELLS = tuple(
    Cell(room, case)
    for room, cases in (
        ("knn", ("gpu", "smallest 100", "smallest 1000", "weighted")),
        ("match", ("factored", "food", "many")),
        ("retrieve", ("million",)),
        ("retrain", ("mlp", "tmc large", "loo digits")),
        ("proxy", ("emulators",)),
        ("match", ("million", "jvp MLP", "jvp CNN", "small")),
        ("retrieve", ("retrieval", "streamed")),
        ("filter", ("loop", "million")),
        ("retrain", ("g-shapley", "loo", "tmc small")),
        ("attribute", ("cnn", "ekfac")),
        ("knn", ("exact", "sort-free", "million")),
    )
    for case in cases
)
"""Cases in the order in which they run."""

_LEAST = 20.0
"""Seconds in which a case may end: with fewer left, none is begun."""


def todo(records: Sequence[Json], here: Json) -> list[Cell]:
    """Return the cases without a record of this revision on this device, in order.

    Args:
        records: Records of earlier runs, quick ones left out.
        here: What `describe` returned.
    """
    done = {
        Cell(record["bench"], case["name"])
        for record in records
        if record["revision"] == here["revision"]
        and machine(record["device"]) == machine(here["device"])
        for case in record["cases"]
    }
    return [cell for cell in CELLS if cell not in done]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases that are left, and return the exit status.

    It is 1 if a contender was wrong or failed, or a case was killed; 2 where there is
    no accelerator; 3 if time was up before all cases had run.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accelerator")
    add = parser.add_argument
    add("--minutes", type=float, default=8.0, help="begin no case after (default: 8)")
    add("--out", type=Path, default=HISTORY, metavar="FOLDER", help="of the records")
    add("--list", action="store_true", help="print the cases that are left, and end")
    add("--quick", action="store_true", help="tiny sizes, on a CPU as well: a trial")
    args = parser.parse_args(argv)
    machine = describe()
    if machine["device"]["platform"] == "cpu" and not (args.quick or args.list):
        print(
            "JAX has no accelerator here, only the CPU: install jax[cuda13] or "
            "jax[tpu], and see that jax.devices() lists the device",
            file=sys.stderr,
        )
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    pending = todo(read(args.out.glob("*.json"), quick=args.quick), machine)
    if args.list:
        print("\n".join(f"{cell.room}: {cell.case}" for cell in pending))
        return 0
    end = time.monotonic() + 60 * args.minutes
    return _run(pending, machine, args.out, end, quick=args.quick)


def _run(
    cells: Collection[Cell], here: Json, out: Path, end: float, *, quick: bool
) -> int:
    bad: list[str] = []
    for i, cell in enumerate(cells):
        remaining = end - time.monotonic()
        if remaining < _LEAST:
            print(f"Time is up: {len(cells) - i} cases are left. Run this again.")
            return 3
        kind = slug(here["device"]["kind"])
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        path = out / f"{cell.room}-{stamp}-{slug(cell.case)}-{kind}.json"
        command = [sys.executable, "-m", f"benchmarks.bench_{cell.room}"]
        command += ["--only", cell.case, "--out", str(path.resolve())]
        print(f"{cell.room}: {cell.case} ({remaining:.0f} s remain)", flush=True)
        try:
            status = subprocess.run(
                command + ["--quick"] * quick,
                cwd=ROOT,
                env=os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
                stdout=subprocess.DEVNULL,
                timeout=remaining,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = -9
        if status:
            how = "was killed as time was up" if status == -9 else "failed"
            bad.append(f"{cell.room}: {cell.case} {how}")
    print("\n".join(bad or [f"{len(cells)} cases have run."]))
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
