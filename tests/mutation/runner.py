"""Copies of the checkout, the tests that run in them, and what came of each mutant."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .sample import Mutant

# A mutant may hang, or ask for all memory there is.
_START_LIMIT = 300.0  # seconds, to import and collect
_SLOWER = 4.0  # than in the baseline, which coverage slows already
_TEST_LIMIT = 60.0  # seconds, more for tests that take long anyway
_MEMORY = 12 * 2**30  # bytes of private memory
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::\S+|\S+\.py)", re.MULTILINE)
_TIMED_OUT = re.compile(r"^Timeout \(", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of one mutant, as a line of `mutants.jsonl`.

    Attributes:
        mutant: Its `sample.Mutant`, without the source.
        status: "killed", "timeout" (killed, too), or "survived".
        test: The first test that noticed.
        ran: How many tests there were to notice.
        seconds: How long they took.
        tests: Digest of the tests.
    """

    mutant: dict[str, Any]
    status: str
    test: str
    ran: int
    seconds: float
    tests: str

    @property
    def killed(self) -> bool:
        return self.status != "survived"

    @classmethod
    def untried(cls, mutant: Mutant, tests: str) -> "Result":
        """Count a mutant that `survivors.toml` explains as a survivor."""
        described = dataclasses.asdict(mutant)
        del described["source"]
        return cls(described, "survived", "", 0, 0.0, tests)


@dataclasses.dataclass(frozen=True)
class Baseline:
    """What the tests do without a mutant.

    Attributes:
        seconds: How long each test takes, by node id; only of those that pass alone.
        failed: Those that do not: they can't tell a mutant.
        lines: For each file and line, the tests that run it.
    """

    seconds: dict[str, float]
    failed: set[str]
    lines: dict[str, dict[str, list[str]]]

    @classmethod
    def merge(cls, records: Iterable[dict[str, Any]]) -> "Baseline":
        seconds: dict[str, float] = {}
        failed: set[str] = set()
        lines: dict[str, dict[str, list[str]]] = {}
        for record in records:
            seconds |= record["seconds"]
            failed |= set(record["failed"])
            for file, found in record["lines"].items():
                known = lines.setdefault(file, {})
                for line, tests in found.items():
                    known[line] = sorted({*known.get(line, ()), *tests})
        for test in failed:
            del seconds[test]
        return cls(seconds, failed, lines)

    def choose(self, mutant: Mutant) -> list[str]:
        """Return the tests that may notice a mutant, those that most likely do first.

        These run its lines; all others that run a line of its file follow, for what the
        first do not see: a constant, a branch that is not taken; and tests that run no
        line of the package here, and may start a process that does. Quick ones first.
        """
        lines = self.lines.get(mutant.covers, {})
        places = range(mutant.line, mutant.line + mutant.old.count("\n") + 1)
        near = self._tests(t for line in places for t in lines.get(str(line), ()))
        if mutant.covers != mutant.file:
            near = set()
        far = self._tests(t for tests in lines.values() for t in tests) - near
        if not near | far:  # it runs on import only
            far = set(self.seconds)
        far |= self._elsewhere - near
        return [
            *sorted(near, key=self.seconds.__getitem__),
            *sorted(far, key=self.seconds.__getitem__),
        ]

    @functools.cached_property
    def _elsewhere(self) -> set[str]:
        found = (
            t for lines in self.lines.values() for ts in lines.values() for t in ts
        )
        return self.seconds.keys() - self._tests(found)

    def _tests(self, contexts: Iterable[str]) -> set[str]:
        """Expand files, which stand for all of their tests."""
        contexts = set(contexts)
        return {
            test
            for test in self.seconds
            if test in contexts or test.split("::")[0] in contexts
        }


def digest(root: Path, paths: Iterable[str]) -> str:
    """Return a digest of some files and folders, and of what lies beside all tests."""
    paths = tuple(paths)
    within = tuple(f"{path}/" for path in paths)
    whole = hashlib.sha256()
    for file in tracked(root):
        shared = file.startswith("tests/") and file.count("/") == 1
        if shared or file in paths or file.startswith(within):
            whole.update(file.encode() + b"\0" + (root / file).read_bytes() + b"\0")
    return whole.hexdigest()[:12]


def tracked(root: Path) -> list[str]:
    """Return all files of a checkout that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True)
    files = {name for name in listed.stdout.decode().split("\0") if name}
    return sorted(file for file in files if (root / file).is_file())


class Tree:
    """A private copy of the checkout, in which tests run."""

    def __init__(self, root: Path, folder: Path, package: str, cache: Path):
        self._root = folder
        self._process: subprocess.Popen[str] | None = None
        for file in [*tracked(root), *_libraries(root, package)]:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / file, folder / file)
        own = os.environ.get("PYTHONPATH")
        here = [str(folder), str(Path(__file__).parent)]
        self._environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(here + ([own] if own else [])),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Programs that a mutant leaves as they are have been compiled before.
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
            "MUTATION_PACKAGE": package,
        }

    def record(self, path: str) -> dict[str, Any]:
        """Run all tests of a folder or file that are not slow, with the recorder.

        Raises:
            RuntimeError: If they do not run, or most of them fail.
        """
        out = self._root / "record.json"
        status, output = self._pytest(
            ["-p", "recorder", path], 3600, MUTATION_RECORD=str(out)
        )
        if status not in (0, 1):
            raise RuntimeError(f"{path} does not run ({status}):\n{output[-4000:]}")
        record = json.loads(out.read_text())
        out.unlink()
        if 2 * len(record["failed"]) > len(record["seconds"]):
            raise RuntimeError(
                f"most tests of {path} fail without a mutant:\n{output[-4000:]}"
            )
        return record

    def try_mutant(self, mutant: Mutant, baseline: Baseline, tests: str) -> Result:
        """Mutate the copy, run the tests until one fails, and mend the copy.

        Raises:
            RuntimeError: If the mutant does not build.
        """
        chosen = baseline.choose(mutant)
        path = self._root / mutant.file
        original = path.read_bytes()
        began = time.monotonic()
        try:
            path.write_text(mutant.source)
            self._build(mutant)
            status, test = self._run(chosen, baseline)
        finally:
            path.write_bytes(original)
            if mutant.file.endswith((".cc", ".h")):
                self._build(mutant)
        return dataclasses.replace(
            Result.untried(mutant, tests),
            status=status,
            test=test,
            ran=len(chosen),
            seconds=round(time.monotonic() - began, 1),
        )

    def _build(self, mutant: Mutant) -> None:
        if not mutant.file.endswith((".cc", ".h")):
            return
        build = "import hatch_build, pathlib, sys; "
        build += "sys.exit(hatch_build.compile_native(pathlib.Path('.')) is None)"
        command = [sys.executable, "-c", build]
        if subprocess.run(command, cwd=self._root, check=False).returncode:
            raise RuntimeError(f"{mutant.file} does not build: {mutant.operator}")

    def _run(self, chosen: list[str], baseline: Baseline) -> tuple[str, str]:
        listing = self._root / "chosen.txt"
        listing.write_text("\n".join(chosen))
        expected = [baseline.seconds[test] for test in chosen]
        each = _TEST_LIMIT + _SLOWER * max(expected)
        limits = ["-x", "-o", f"faulthandler_timeout={each}"]
        limits += ["-o", "faulthandler_exit_on_timeout=true"]
        status, output = self._pytest(
            [*limits, f"@{listing}"], _START_LIMIT + _SLOWER * sum(expected)
        )
        if status == 0:
            return "survived", ""
        if status == 5:
            raise RuntimeError(
                f"pytest ran none of {len(chosen)} tests: {output[-2000:]}"
            )
        if status is None or _TIMED_OUT.search(output):
            return "timeout", ""
        found = _FAILED.search(output)
        return "killed", found[1] if found else f"exit status {status}"

    def _pytest(
        self, arguments: list[str], limit: float, **extra: str
    ) -> tuple[int | None, str]:
        """Return pytest's exit status, None after the time limit, and what it said."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        self._process = process = subprocess.Popen(
            [*command, "-m", "not slow", *arguments],
            cwd=self._root,
            env=self._environment | extra,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # tests start processes of their own
        )
        try:
            if hasattr(resource, "prlimit"):  # Linux only
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            self.stop()
            process.wait()
        return process.returncode, output

    def stop(self) -> None:
        """End what runs, and all that it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _libraries(root: Path, package: str) -> list[str]:
    """Return what was compiled in place, which git ignores."""
    return [p.relative_to(root).as_posix() for p in (root / package).rglob("*.so")]
