"""Cost of the second shuffle and of the commitments of a choice by "set".

`python -m benchmarks.shuffles --rounds 4` runs sessions of 42,000 × 384 that choose
8,400, on both engines, every role a process. One session repeats the second shuffle,
another the hashes of commitments, and both are compared with a plain session of the
same round: an extra shuffle or hash costs as much as the one that is there, and many
of them stand out from the noise of whole sessions. Bytes are those of the choice.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import runpy
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxsel import proxy

from . import _spu
from ._mpc_scoring import samples_for

N, KEEP, WIDTH = 42_000, 8_400, 384
ENGINES = "spu-aby3", "spu-cheetah"
SHUFFLES, HASHES = 10, 1000  # repetitions: hashes take far less than shuffles
_SCRIPT = """#!{python}
import sys
sys.path.insert(0, {root!r})
from benchmarks.shuffles import run_role
run_role(sys.argv[1:], {keep}, {shuffles}, {hashes})
"""


class Cost(NamedTuple):
    """Cost of a session.

    Attributes:
        cpu_s: CPU seconds of all roles.
        choosing_mb: Megabytes that choosing sends, one way.
        mb: Megabytes that the whole session sends, one way.
    """

    cpu_s: float
    choosing_mb: float
    mb: float


class Extra(NamedTuple):
    """Cost that one repetition adds to a session.

    Attributes:
        cpu_s: CPU seconds.
        error: Standard error of `cpu_s`.
        choosing_mb: Megabytes one way.
    """

    cpu_s: float
    error: float
    choosing_mb: float


def main(argv: Sequence[str] | None = None) -> int:
    """Print the cost of a session and the shares of shuffle and commitments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shuffles")
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--rounds", type=int, default=4, help="sessions of each kind")
    args = parser.parse_args(argv)
    if args.rounds < 2:
        parser.error(f"--rounds must be 2 or more, got {args.rounds}")
    for engine in args.engine or ENGINES:
        whole, shuffle, hashed = measure(engine, (N, KEEP, WIDTH), args.rounds)
        print(
            f"{engine}: {whole.cpu_s:.1f} CPU s, {whole.mb:.1f} MB, "
            f"{whole.choosing_mb:.2f} of them to choose"
        )
        for name, extra in (("second shuffle", shuffle), ("commitments", hashed)):
            print(
                f"  {name}: {extra.cpu_s:.3f} ± {extra.error:.3f} CPU s, "
                f"{extra.cpu_s / whole.cpu_s:.1%}; {extra.choosing_mb:.3f} MB, "
                f"{extra.choosing_mb / whole.mb:.1%}, of choosing "
                f"{extra.choosing_mb / whole.choosing_mb:.1%}",
                flush=True,
            )
    return 0


def measure(
    engine: str, shape: tuple[int, int, int], rounds: int
) -> tuple[Cost, Extra, Extra]:
    """Run sessions in turn; return the cost of a plain one, and of each repetition.

    Args:
        engine: Its name.
        shape: Samples, how many to choose, and width.
        rounds: Sessions of each kind.
    """
    n, keep, width = shape
    manifest = proxy.probe_manifest(width=width, n_classes=2)
    job = _spu.Session(engine, "set", n, keep)
    kinds = {"plain": (0, 0), "shuffle": (SHUFFLES, 0), "hash": (0, HASHES)}
    costs: dict[str, list[Cost]] = {kind: [] for kind in kinds}
    folder, _ = _spu._prepare(manifest, samples_for(manifest, n))
    try:
        for kind, repeated in kinds.items():
            _write_script(Path(folder) / kind, keep, *repeated)
        for _ in range(rounds):
            for kind in kinds:
                ran, figures = _spu.run(job, folder, python=Path(folder) / kind)
                choosing = figures["choosing MB one way"]
                scoring = figures["scoring MB one way"] + figures["inputs MB"]
                costs[kind].append(Cost(ran.cpu_s, choosing, scoring + choosing))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    whole = Cost(*np.mean(costs["plain"], axis=0))
    return (
        whole,
        _added(costs["plain"], costs["shuffle"], SHUFFLES),
        _added(costs["plain"], costs["hash"], HASHES),
    )


def _write_script(path: Path, keep: int, shuffles: int, hashes: int) -> None:
    """Write an interpreter of roles, see `run_role`."""
    root = os.fspath(Path(__file__).parents[1])
    options = {"keep": keep, "shuffles": shuffles, "hashes": hashes}
    path.write_text(_SCRIPT.format(python=sys.executable, root=root, **options))
    path.chmod(0o755)


def _added(plain: Sequence[Cost], repeated: Sequence[Cost], times: int) -> Extra:
    apart = (np.array(repeated) - np.array(plain)) / times
    cpu_s, choosing_mb, _ = apart.mean(0)
    error = apart[:, 0].std(ddof=1) / math.sqrt(len(apart))
    return Extra(float(cpu_s), float(error), float(choosing_mb))


def run_role(argv: Sequence[str], keep: int, shuffles: int, hashes: int) -> None:
    """Run a Python command line; a role of mpc_bridge repeats parts of its choice.

    Args:
        argv: Arguments of the interpreter.
        keep: How many rows the session chooses.
        shuffles: How often the chosen rows are shuffled, beside the one time.
        hashes: The same of the hashes of a commitment.
    """
    if "mpc_bridge" not in argv:
        os.execv(sys.executable, [sys.executable, *argv])
    _repeat_shuffles(keep, shuffles)
    _repeat_hashes(hashes)
    sys.argv = list(argv[argv.index("mpc_bridge") :])
    runpy.run_module("mpc_bridge", run_name="__main__", alter_sys=True)


def _repeat_shuffles(keep: int, times: int) -> None:
    from mpc_bridge import _choose, _programs

    highest, switched = _programs.Highest.steps, _choose._switched

    @functools.wraps(highest)
    def steps(self: Any, cat: Any, *operands: Any) -> Any:
        rows = yield from highest(self, cat, *operands)
        for _ in range(times):
            call = _programs.Call(self.place, self.name, "highest", (rows,), self.k)
            rows = yield call
        return rows

    @functools.wraps(switched)
    def switch(keys: Any, n: int, party: int, ledger: Any) -> Any:
        for _ in range(1 + times * (n == keep)):
            keys = switched(keys, n, party, ledger)
        return keys

    _programs.Highest.steps, _choose._switched = steps, switch  # pyright: ignore


def _repeat_hashes(times: int) -> None:
    from mpc_bridge.engines.spu._opening import Openings

    commit = Openings._commit

    @functools.wraps(commit)
    def again(self: Any, *args: Any) -> bytes:
        for _ in range(times):
            commit(self, *args)
        return commit(self, *args)

    Openings._commit = again  # pyright: ignore


if __name__ == "__main__":
    raise SystemExit(main())
