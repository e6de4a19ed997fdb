"""Do first calls compile more than they did? Operations are counted, not seconds.

`python -m benchmarks.programs` runs the twenty calls of `benchmarks.calls`, each in a
process of its own, counts the programs that it compiles and their StableHLO
operations, and compares with `programs.toml`. To compile takes most of a first call,
and counts do not depend on the load of the machine. The exit status is 1 if a call
compiles a fifth more, or a fifth less, so that the record is stale; `--update` writes
it. Counts depend on the version of JAX: with another than recorded the exit status is
2.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ._fresh import in_new_process
from .calls import Table, calls

RECORDED = Path(__file__).parent / "programs.toml"
LIMIT = 1.2
HEAD = """\
# What first calls compile: `python -m benchmarks.programs --update`. Programs, and
# their StableHLO operations in all; the check allows a fifth more or less of these.
"""

Counts = Mapping[str, tuple[int, int]]
"""Programs and operations by call."""


def measure(names: Sequence[str] | None = None) -> dict[str, tuple[int, int]]:
    """Return programs and operations of each call, or of some."""
    counted = {}
    for name in calls() if names is None else names:
        programs, operations = in_new_process("benchmarks.programs", "--call", name)
        counted[name] = programs, operations
    return counted


def recorded() -> tuple[str, dict[str, tuple[int, int]]]:
    """Return the version of JAX and the counts of `programs.toml`."""
    record = tomllib.loads(RECORDED.read_text())
    return record["jax"], {name: tuple(c) for name, c in record["calls"].items()}


def changes(counts: Counts, before: Counts) -> list[str]:
    """Return a sentence for each call that compiles a fifth more or less."""
    lines = []
    for name, (programs, operations) in counts.items():
        usual = before.get(name, (0, 0))[1]
        if operations > LIMIT * usual or usual > LIMIT * operations:
            which = "more than" if operations > usual else "fewer than the stale"
            lines.append(
                f"{name}: {operations} operations in {programs} programs, {which} "
                f"{usual} recorded"
            )
    return lines + [f"{name}: no such call" for name in before if name not in calls()]


def main(argv: Sequence[str] | None = None) -> int:
    """Count, and compare or record."""
    import jax

    parser = argparse.ArgumentParser(prog="python -m benchmarks.programs")
    parser.add_argument("--call", metavar="NAME", help="count this call here")
    parser.add_argument("--update", action="store_true", help="record what is counted")
    args = parser.parse_args(argv)
    if args.call:
        print(json.dumps(_count(args.call)))
        return 0
    if not args.update and jax.__version__ != recorded()[0]:
        print(f"recorded with JAX {recorded()[0]}, and this is {jax.__version__}")
        return 2
    counts = measure()
    if args.update:
        lines = [f"{name} = [{p}, {o}]\n" for name, (p, o) in counts.items()]
        text = f'{HEAD}\njax = "{jax.__version__}"\n\n[calls]\n{"".join(lines)}'
        RECORDED.write_text(text)
    _, before = recorded()
    for name, (programs, operations) in counts.items():
        usual = before.get(name, (0, 0))[1]
        print(
            f"{name}: {programs} programs, {operations} operations ({usual} recorded)"
        )
    failed = changes(counts, before)
    for line in failed:
        print(f"FAILED: {line}")
    return 1 if failed else 0


def _count(name: str) -> tuple[int, int]:
    """Count programs that a call compiles in this process, and their operations."""
    import jax

    rows, call = calls()[name]
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_dump_ir_to", folder)
        jax.config.update("jax_dump_ir_modes", "stablehlo")
        jax.block_until_ready(call(Table.of(rows)))
        texts = [file.read_text() for file in Path(folder).iterdir()]
    lines = (line.strip() for text in texts for line in text.splitlines())
    return len(texts), sum(line.startswith("%") for line in lines)


if __name__ == "__main__":
    raise SystemExit(main())
