"""Secure scoring on CrypTen: counted rounds and bytes, seconds, and errors.

`python -m benchmarks.bench_mpc`. Two parties run as two processes on loopback; needs
the mpc extra and CrypTen. Bytes are payload in one direction, half of what CrypTen
counts, in units of 1000.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel import proxy
from jaxsel.proxy import Spec

from . import _harness, _mpc, _spu, _targets, _threads, report
from ._case import Case, Contender, at_most
from ._machine import load_average, slug
from ._mpc import Ran
from ._mpc_scoring import (
    BLOCK,
    EXACT,
    OURS,
    PAPER,
    TINY,
    Samples,
    Scoring,
    scoring_case,
    side_by_side,
)

# What was measured on whole blocks without masks, in batches of 8: rounds, and KB one
# way a sample, by heads and the width of the emulators.
MEASURED = {
    (EXACT, 1): (228, 14_895),
    (EXACT, 12): (228, 152_439),
    (PAPER, 1): (43, 2_932),
    (dataclasses.replace(PAPER, hidden=16), 12): (43, 14_072),
}

# The contenders of a quick run, where they are not all: each takes seconds to start.
QUICK = {
    "all rows": (),
    "CLS row": ("exact", "quadratic, hinge", "quadratic, polynomial"),
    "secure probe": ("spu-cheetah, rank", "spu-aby3, set"),
    "secure layer": (),
    "secure pool": (),
    "secure depth": (),
}


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    return [
        _comparison(100 if quick else 10_000),
        _reproduced("exact block", "the exact block", EXACT, 0.01, quick),
        _reproduced("paper's block", "the paper's block", PAPER, 0.05, quick),
        _quadratic(quick),
        _side_by_side("all rows", "mean", quick),
        _side_by_side("CLS row", "cls", quick),
        _probe(quick),
        _spu.probe_case(quick=quick),
        _spu.layer_case(quick=quick),
        _spu.pool_case(quick=quick),
        _spu.depth_case(quick=quick),
    ]


def _comparison(n: int) -> Case[int]:
    contenders = [
        Contender(
            name=f"{count:,}",
            make=lambda _, count=count: functools.partial(
                _mpc.run, _mpc.Compare(count)
            ),
            check=lambda _, ran, count=count: _compared(count, ran),
            limits={"wrong": 0, "miscounted": 0},
            share=count / n,
        )
        for count in (1, n)
    ]
    return Case(
        name="comparison",
        title=f"a comparison: 1, and {n:,} in one batch",
        inputs=lambda: n,
        tiny=lambda: 1,
        work=n,
        unit="comparison",
        contenders=contenders,
        targets=[
            target
            for contender in contenders
            for target in (
                at_most(contender.name, "rounds", 8, "rounds", "must"),
                at_most(contender.name, "bytes", 432, "bytes each, both ways", "must"),
            )
        ],
    )


def _compared(n: int, ran: Ran) -> dict[str, float]:
    rounds, size = ran.counts["comparison"]
    first, second = _mpc.pairs_of(n)
    return {
        "rounds": rounds,
        "bytes": size / n,
        "wrong": np.sum((first > second) != ran.result.astype(bool)),
        "miscounted": abs(rounds - 8) + abs(size - 432 * n),
    }


def _reproduced(
    name: str, what: str, spec: Spec, share: float, quick: bool
) -> Case[Samples]:
    """Return the case of blocks measured before: 1 head and 12, plan "plain"."""
    sizes = TINY if quick else BLOCK
    n, rows = 2 if quick else 8, {}
    for (measure, heads), measured in MEASURED.items():
        if measure.attention == spec.attention:
            shown = f", d = {measure.hidden}" if spec is PAPER else ""
            block = dataclasses.replace(measure, heads=heads)
            manifest = proxy.manifest(block, **sizes, masked=False, plan="plain")
            rows[f"{_heads(heads)}{shown}"] = Scoring(
                manifest, n, n, measured=None if quick else measured
            )
    targets = [
        at_most(
            k,
            "off",
            share,
            f"off {row.measured[0]} rounds, {row.measured[1]:,} KB one way a sample",
            "must",
        )
        for k, row in rows.items()
        if row.measured is not None
    ]
    return scoring_case(
        name,
        f"{what}, all rows, plan plain, no masks, {_shown(sizes)}, a batch of {n}",
        rows,
        targets=targets,
    )


def _quadratic(quick: bool) -> Case[Samples]:
    sizes = TINY if quick else BLOCK
    n, rows, targets = 2 if quick else 8, {}, []
    for heads, d in ((1, 2), (12, 16)):
        papers = dataclasses.replace(PAPER, heads=heads, hidden=d)
        ours = dataclasses.replace(OURS, heads=heads)
        name = _heads(heads)
        other = proxy.manifest(papers, **sizes, masked=False, plan="plain")
        manifest = proxy.manifest(ours, **sizes, masked=False)
        rows[name] = Scoring(manifest, n, n, against=other)
        less = f"of the bytes of the paper's block, d = {d}"
        if not quick:
            targets += [
                at_most(name, "rounds", 20, "rounds", "must"),
                at_most(name, "of the paper's bytes", 0.5, less, "must"),
            ]
    return scoring_case(
        "quadratic block",
        "quadratic attention, polynomial norm, all rows, plan folded, no masks, "
        f"{_shown(sizes)}, a batch of {n}",
        rows,
        targets=targets,
    )


def _side_by_side(name: str, read: str, quick: bool) -> Case[Samples]:
    sizes = TINY if quick else BLOCK
    n, manifests = 2, side_by_side(read, 12, sizes)
    return scoring_case(
        name,
        f"side by side: {name}, plan folded, masks, 12 heads, {_shown(sizes)}, a batch "
        f"of {n}",
        {k: Scoring(manifest, n, n) for k, manifest in manifests.items()},
        peer="exact",
    )


def _probe(quick: bool) -> Case[Samples]:
    n, k, batch = (200, 40, 64) if quick else (42_000, 8_400, 4_200)
    width = 8 if quick else 384
    rows = {
        name: Scoring(
            proxy.probe_manifest(width=width, n_classes=2, head=head), n, batch, k
        )
        for name, head in (("linear", 0), ("16 hidden", 16))
    }
    return scoring_case(
        "probe",
        f"probes: {n:,} samples × {width} in batches of {batch:,}, and the choice of "
        f"{k:,}",
        rows,
        targets=[
            at_most(name, "rounds", 40, "rounds a batch", "must") for name in rows
        ],
    )


def _shown(sizes: Mapping[str, Any]) -> str:
    return f"hidden {sizes['hidden']}, length {sizes['length']}"


def _heads(n: int) -> str:
    return f"{n} head{'s' if n > 1 else ''}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line, as the other benchmarks, and write the result.

    The work is done by two other processes: they take time and memory, CPU time is
    that of both, and the checked call is timed as well.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_mpc")
    add = parser.add_argument
    add("--quick", action="store_true", help="tiny sizes, not recorded")
    add("--only", action="append", metavar="NAME", help="only this case")
    add("--out", type=Path, metavar="FILE", help="where to write the result as JSON")
    args = parser.parse_args(argv)
    chosen = cases(quick=args.quick)
    if args.quick and not args.only:
        chosen = _quickest(chosen)
    names = [case.name for case in chosen]
    for name in args.only or ():
        if name not in names:
            parser.error(f"--only {name}: expected one of {', '.join(names)}")
    record = _harness.run("mpc", "benchmarks.bench_mpc", [], quick=args.quick)
    for case in chosen:
        if not args.only or case.name in args.only:
            with _threads.limited(case.threads):
                record["cases"].append(_run(case, record["clock"]))
    name = f"mpc-{record['date']}-{slug(record['device']['kind'])}.json"
    out = args.out or (None if args.quick else _harness.HISTORY / name)
    if out is not None:
        _harness.write(record, out)
    print(report.one_run(record))
    statuses = {row["status"] for case in record["cases"] for row in case["contenders"]}
    return 1 if statuses & {"wrong", "failed"} else 0


def _quickest(cases: Sequence[Case]) -> list[Case]:
    """Leave out contenders that repeat others at the cost of more processes."""
    result = []
    for case in cases:
        kept = QUICK.get(case.name, [c.name for c in case.contenders])
        if kept:
            result.append(
                dataclasses.replace(
                    case,
                    contenders=[c for c in case.contenders if c.name in kept],
                    rounds=min(case.rounds, _harness.QUICK_ROUNDS),
                )
            )
    return result


def _run(case: Case, clock: str) -> dict[str, Any]:
    """Check and time one case; the contenders take turns."""
    _say(case.title)
    result: dict[str, Any] = {
        "name": case.name,
        "title": case.title,
        "unit": case.unit,
        "work": case.work,
        "threads": case.threads,
        "clock": clock,
        "load_before": load_average(),
    }
    inputs, rows, calls = case.inputs(), [], []
    for contender in case.contenders:
        row = {
            "name": contender.name,
            "peer": contender.peer,
            "note": contender.note,
            "work": round(case.work * contender.share),
            **{"status": "ok", "reason": "", "figures": {}, "compile_s": None},
            **{"wall_s": [], "cpu_s": [], "peak_bytes": None},
        }
        rows.append(row)
        try:
            call = contender.make(inputs)
            outcome = call()
            row["figures"] = {
                k: float(v) if math.isfinite(v) else None
                for k, v in contender.check(inputs, outcome).items()
            }
        except ImportError as error:
            row["status"], row["reason"] = "absent", str(error)
        except Exception as error:  # the others still run
            row["status"], row["reason"] = "failed", f"{type(error).__name__}: {error}"
        else:
            _note(row, outcome)
            for name, limit in contender.limits.items():
                value = row["figures"][name]
                if value is None or value > limit:
                    row["status"] = "wrong"
                    row["reason"] = f"{name} {value}, at most {limit:.2g} allowed"
            if row["status"] == "ok":
                calls.append((call, row))
        _say(f"  {row['name']}: {row['status']} {row['reason']} {row['figures']}")
    for _ in range(case.rounds - 1):
        for call, row in calls:
            _note(row, call())
    result |= {"contenders": rows, "load_after": load_average()}
    result["targets"] = [
        {**dataclasses.asdict(target), **_targets.judge(target, result, clock)}
        for target in case.targets
    ]
    return result


def _note(row: dict[str, Any], result: Any) -> None:
    ran = result if isinstance(result, Ran) else result[0]
    row["wall_s"].append(ran.wall_s)
    row["cpu_s"].append(ran.cpu_s)
    if ran.peak_bytes is not None:
        row["peak_bytes"] = max(row["peak_bytes"] or 0, ran.peak_bytes)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
