"""Do the compiled row operations execute more than they did? Counted, not timed.

`python -m benchmarks.instructions` compiles `counts.cc`, counts with valgrind, divides
by the count of the textbook form, and compares with `regression.toml`. The load of the
machine does not matter. The exit status is 1 if something executes a fifth more, or a
fifth less, so that the record is stale (`--update`), and 2 where there is no compiler
or no valgrind.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ._machine import ROOT
from ._records import number

NATIVE = ROOT / "jaxsel" / "_native"
RECORDED = Path(__file__).parent / "regression.toml"
LIMIT = 1.2
# Each operation, and what computes the same.
OPERATIONS = {
    "sort": "std::stable_sort",
    "sort few": "std::stable_sort few",
    "sort short": "std::stable_sort short",
    "sort ties": "std::stable_sort few",
    "nearest": "std::partial_sort",
}


def measure(native: Path = NATIVE) -> dict[str, float]:
    """Return the instructions of each operation, for each one of its textbook form.

    Args:
        native: The folder of the operations' sources.

    Raises:
        FileNotFoundError: If there is no C++ compiler, or no valgrind.
        RuntimeError: If the sources do not compile, or an operation and its textbook
            form differ in their result.
    """
    compiler, valgrind = (
        shutil.which(name) for name in (os.environ.get("CXX", "c++"), "valgrind")
    )
    jaxlib = importlib.util.find_spec("jaxlib")
    if compiler is None or valgrind is None or jaxlib is None or jaxlib.origin is None:
        raise FileNotFoundError("counting needs a C++ compiler, jaxlib and valgrind")
    include = Path(jaxlib.origin).parent / "include"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "counts"
        # As hatch_build.py compiles them.
        command = [compiler, "-O3", "-std=c++17", "-w", f"-I{include}", f"-I{native}"]
        source = Path(__file__).parent / "counts.cc"
        _run([*command, "-o", str(program), str(source)])
        names = dict.fromkeys([*OPERATIONS, *OPERATIONS.values()])
        counts = {name: _count(valgrind, program, name) for name in names}
    for name, textbook in OPERATIONS.items():
        if counts[name][1] != counts[textbook][1]:
            raise RuntimeError(f"{name}: not what {textbook} finds")
    return {
        name: counts[name][0] / counts[textbook][0]
        for name, textbook in OPERATIONS.items()
    }


def _count(valgrind: str, program: Path, name: str) -> tuple[int, str]:
    """Return the instructions within `measured`, and the result."""
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = _run([*command, "--toggle-collect=measured", str(program), name])
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if collected is None or not int(collected[1]):
        raise RuntimeError(f"{name}: valgrind counted nothing: {done.stderr[-500:]}")
    return int(collected[1]), done.stdout


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")
    return done


def recorded() -> dict[str, float]:
    """Return each operation's recorded instructions, from `regression.toml`."""
    return tomllib.loads(RECORDED.read_text())["instructions"]


def regressions(counts: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """Return a sentence for each operation that executes a fifth more or less."""
    return [
        f"{name}: {number(share)} of its textbook form's instructions, "
        f"{number(before[name])} recorded, {number(before[name] / LIMIT)} to "
        f"{number(before[name] * LIMIT)} allowed"
        for name, share in counts.items()
        if not before[name] / LIMIT <= share <= LIMIT * before[name]
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Count, and compare or record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions")
    parser.add_argument("--update", action="store_true", help="record what is counted")
    args = parser.parse_args(argv)
    try:
        ratios = measure()
    except FileNotFoundError as error:
        print(error)
        return 2
    if args.update:
        head = RECORDED.read_text().split("[instructions]\n")[0]
        counts = "".join(f'"{name}" = {share:.4f}\n' for name, share in ratios.items())
        RECORDED.write_text(f"{head}[instructions]\n{counts}")
    before = recorded()
    for name, share in ratios.items():
        print(f"{name}: {number(share)}, recorded {number(before[name])}")
    failed = regressions(ratios, before)
    for line in failed:
        print(f"FAILED: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
