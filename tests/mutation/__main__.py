"""The command; see the docstring of the package."""

import argparse
import dataclasses
import json
import queue
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from . import report, sample
from .runner import Baseline, Result, Tree, digest

_T = TypeVar("_T")


def main(arguments: list[str] | None = None) -> int:
    """Try mutants; return 1 if one survived that nobody explained."""
    options = _parser().parse_args(arguments)
    root, out = options.root.resolve(), options.out.resolve()
    settings = sample.Settings.load(options.settings)
    rooms = options.rooms or list(settings.rooms)
    if unknown := set(rooms) - settings.rooms.keys():
        raise SystemExit(f"--rooms has {unknown}, but must be of {[*settings.rooms]}")
    mutants = plan(root, settings, rooms, options.mutants, options.seed)
    if options.list:
        for m in mutants:
            print(
                f"{m.file}:{m.line} {m.function} ({m.operator})\n-{m.old}\n+{m.new}\n"
            )
        return 0

    out.mkdir(parents=True, exist_ok=True)
    tests = {room: digest(root, settings.rooms[room].tests) for room in rooms}
    results = _known(out, options.settings, mutants, tests)
    tried = {result.mutant["id"] for result in results}
    if not options.explained:
        results += [
            Result.untried(m, tests[m.room])
            for m in mutants
            if m.id not in tried and settings.why.get(m.key)
        ]
    known = {result.mutant["id"] for result in results}
    todo = [m for m in mutants if m.id not in known]
    print(
        f"{len(mutants)} mutants, of which {len(tried)} were tried before and "
        f"{len(known) - len(tried)} are explained",
        flush=True,
    )
    if todo:
        with _trees(root, out, settings.package, options.workers) as each:
            baselines = _baselines(root, out, settings, {m.room for m in todo}, each)
            for result in each(
                lambda tree, m: tree.try_mutant(m, baselines[m.room], tests[m.room]),
                todo,
            ):
                results.append(result)
                with (out / "mutants.jsonl").open("a") as lines:
                    lines.write(json.dumps(dataclasses.asdict(result)) + "\n")
                _show(result, len(results), len(mutants))

    order = {m.id: i for i, m in enumerate(mutants)}
    results.sort(key=lambda r: (r.mutant["room"], order[r.mutant["id"]]))
    text = report.summary(results, settings)
    (out / "mutants.md").write_text(text)
    print(text)
    missing = len(report.unexplained(results, settings))
    if missing:
        print(f"survivors.toml does not explain {missing} of the survivors")
    return 1 if missing else 0


def plan(
    root: Path, settings: sample.Settings, rooms: list[str], count: int, seed: int
) -> list[sample.Mutant]:
    """Return the fixed mutants, then those drawn, rooms mixed.

    A room has the same ones whether it is tried alone or with all others.
    """
    sampled = [name for name, room in settings.rooms.items() if room.sampled]
    share = -(-count // len(sampled))
    drawn = [
        mutant
        for room in sampled
        if room in rooms
        for mutant in sample.draw(root, room, settings, share, seed)
    ]
    random.Random(seed).shuffle(drawn)
    both = sample.fixed(root, settings, rooms) + drawn
    return list({mutant.id: mutant for mutant in both}.values())


def _parser() -> argparse.ArgumentParser:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(prog="mutation")
    add = parser.add_argument
    add("--out", type=Path, default=Path("mutants"), help="folder for what is found")
    add("--rooms", nargs="+", help="only these")
    add("--mutants", type=int, default=180, help="how many to draw, of all rooms")
    add("--seed", type=int, default=0)
    add("--workers", type=int, default=2)
    add("--explained", action="store_true", help="try survivors that are explained")
    add("--list", action="store_true", help="show the mutants, and try none")
    add("--root", type=Path, default=here.parent.parent, help="the checkout")
    add("--settings", type=Path, default=here, help="folder of the three TOML files")
    return parser


def _known(
    out: Path, settings: Path, mutants: list[sample.Mutant], tests: dict[str, str]
) -> list[Result]:
    """Return what was found before: kills, and what survived these very tests."""
    path, wanted = out / "mutants.jsonl", {m.id: tests[m.room] for m in mutants}
    found: dict[str, Result] = {}
    text = path.read_text() if path.exists() else ""
    if text and not text.endswith("\n"):  # the run was killed as it wrote
        text = text[: text.rfind("\n") + 1]
        path.write_text(text)
    record = settings / "record.jsonl"
    recorded = record.read_text() if record.exists() else ""
    for line in (recorded + text).splitlines():
        result = Result(**json.loads(line))
        name = result.mutant["id"]
        if name in wanted and (result.killed or result.tests == wanted[name]):
            found[name] = result
    return list(found.values())


@contextmanager
def _trees(
    root: Path, out: Path, package: str, workers: int
) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a map of functions of (tree, item) over items; results as they come."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = [
            Tree(root, folder / str(i), package, out / "cache") for i in range(workers)
        ]
        free: queue.Queue[Tree] = queue.Queue()
        for tree in trees:
            free.put(tree)

        def on_one(function: Callable[[Tree, Any], _T], item: Any) -> _T:
            tree = free.get()
            try:
                return function(tree, item)
            finally:
                free.put(tree)

        def each(function: Callable[[Tree, Any], _T], items: list[Any]) -> Iterator[_T]:
            pool = ThreadPoolExecutor(workers)
            try:
                jobs = [pool.submit(on_one, function, item) for item in items]
                for job in as_completed(jobs):
                    yield job.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for tree in trees:
                    tree.stop()
                raise
            finally:
                pool.shutdown()

        yield each


def _baselines(
    root: Path,
    out: Path,
    settings: sample.Settings,
    rooms: set[str],
    each: Callable[..., Iterator[Any]],
) -> dict[str, Baseline]:
    """Return each room's baseline, taken where it is not known for these files."""
    records: dict[str, Any] = {}
    files: dict[str, Path] = {}
    for path in sorted({p for room in rooms for p in settings.rooms[room].tests}):
        state = digest(root, (settings.package, path))
        files[path] = out / f"baseline-{path.replace('/', '-')}-{state}.json"
        if files[path].exists():
            records[path] = json.loads(files[path].read_text())
    todo = [path for path in files if path not in records]
    for path, record in each(lambda tree, path: (path, tree.record(path)), todo):
        records[path] = record
        files[path].write_text(json.dumps(record))
        print(f"{len(record['seconds'])} tests of {path} were recorded", flush=True)
        for test in record["failed"]:
            print(f"left out, as it fails alone without a mutant: {test}", flush=True)
    return {
        room: Baseline.merge(records[p] for p in settings.rooms[room].tests)
        for room in rooms
    }


def _show(result: Result, done: int, planned: int) -> None:
    mutant = result.mutant
    place = f"{mutant['file']}:{mutant['line']}"
    print(
        f"{done}/{planned} {result.status} {place} {mutant['operator']} "
        f"({result.seconds:.0f} s)",
        flush=True,
    )


if __name__ == "__main__":
    # As after Ctrl-C: nothing that was started runs on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise SystemExit(main())
