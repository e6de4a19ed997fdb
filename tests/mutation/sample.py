"""Which mutants are tried: a seeded sample of every room, and a fixed list."""

import ast
import dataclasses
import difflib
import hashlib
import itertools
import random
import tomllib
from pathlib import Path

from . import operators


@dataclasses.dataclass(frozen=True, kw_only=True)
class Room:
    """A part of the package, and the tests that are to notice its mutants.

    Attributes:
        sources: Folders or files, relative to the root.
        tests: What pytest is given.
        heavy: Files with kernels or protocols: sampled twice as densely.
        sampled: Whether mutants are drawn, or only those of the fixed list tried.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    heavy: tuple[str, ...] = ()
    sampled: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change to one file.

    Attributes:
        id: A digest of the file as mutated: the same while the file is.
        room: Whose tests are to notice it.
        file: Relative to the root.
        line: Where it begins.
        function: The function around it, or "".
        operator: What made it, or "fixed: " and the reason why it is in the list.
        old: The lines that it replaces, without what surrounds them.
        new: What they are replaced by.
        covers: The file whose lines tell the tests that run it.
        source: The whole file, mutated.
    """

    id: str
    room: str
    file: str
    line: int
    function: str
    operator: str
    old: str
    new: str
    covers: str
    source: str = dataclasses.field(repr=False)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What an explanation names it by, wherever in the file it moves."""
        return self.file, self.function, self.old, self.new


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `rooms.toml`, `fixed.toml` and `survivors.toml` in one folder say.

    Attributes:
        package: The package's name.
        rooms: By name.
        fixed: Tables of `room`, `file`, `old`, `new`, `why`, and perhaps `covers`.
        why: Explanations of survivors, by `Mutant.key`.
    """

    package: str
    rooms: dict[str, Room]
    fixed: list[dict[str, str]]
    why: dict[tuple[str, ...], str]

    @classmethod
    def load(cls, folder: Path) -> "Settings":
        tables = tomllib.loads((folder / "rooms.toml").read_text())
        rooms = {
            name: Room(
                sources=tuple(room["sources"]),
                tests=tuple(room["tests"]),
                heavy=tuple(room.get("heavy", ())),
                sampled=room.get("sampled", True),
            )
            for name, room in tables["rooms"].items()
        }
        fixed = tomllib.loads((folder / "fixed.toml").read_text()).get("mutant", [])
        explained = tomllib.loads((folder / "survivors.toml").read_text())
        why = {
            (one["file"], one["function"], one["old"], one["new"]): one["why"]
            for one in explained.get("survivor", [])
        }
        return cls(tables["package"], rooms, fixed, why)


def fixed(root: Path, settings: Settings, rooms: list[str]) -> list[Mutant]:
    """Return the mutants of the list.

    Raises:
        ValueError: If the old text of one is not in its file exactly once.
    """
    found, stale = [], []
    for entry in settings.fixed:
        if entry["room"] not in rooms:
            continue
        path = root / entry["file"]
        source = path.read_text() if path.exists() else ""
        times = source.count(entry["old"])
        if times != 1:
            stale.append(f"{entry['file']}: {times} times: {entry['old']!r}")
            continue
        mutated = source.replace(entry["old"], entry["new"])
        found.append(
            _mutant(
                entry["room"],
                entry["file"],
                source,
                mutated,
                f"fixed: {entry['why']}",
                entry.get("covers"),
            )
        )
    if stale:
        raise ValueError(
            "fixed.toml: the old text must be in its file exactly once; bring it up to "
            "date with what the file says now:\n" + "\n".join(stale)
        )
    return found


def draw(
    root: Path, room: str, settings: Settings, count: int, seed: int
) -> list[Mutant]:
    """Return `count` mutants of one room, one on a line at most.

    Lines are drawn systematically, in the order of the files: each file gets its share
    within one mutant, whatever the seed. Then an operator is drawn of those that apply
    to the line, and a place of the operator's.
    """
    if not count:
        return []
    lines: list[tuple[str, list[operators.Site]]] = []
    weights: list[float] = []
    sources: dict[str, str] = {}
    for file in _files(root, settings.rooms[room]):
        sources[file] = (root / file).read_text()
        heavy = file in settings.rooms[room].heavy
        sites = operators.sites(sources[file])
        for _, group in itertools.groupby(sites, key=lambda site: site.line):
            lines.append((file, list(group)))
            weights.append(2.0 if heavy else 1.0)
    ends = list(itertools.accumulate(weights))
    if not ends:
        raise ValueError(f"rooms.toml: nothing to mutate in {room!r}")
    rng = random.Random(f"{seed} {room}")
    step = ends[-1] / count
    chosen, at = [], rng.random() * step
    for (file, sites), end in zip(lines, ends, strict=True):
        # Stays due until a line has a mutant: some places have none that compiles.
        if at >= end:
            continue
        mutant = _any_of(rng, room, file, sources[file], sites)
        if mutant is not None:
            chosen.append(mutant)
            at = max(at + step, end)
    return chosen


def _any_of(
    rng: random.Random, room: str, file: str, source: str, sites: list[operators.Site]
) -> Mutant | None:
    names = sorted({site.operator for site in sites})
    rng.shuffle(names)
    for name in names:
        site = rng.choice([site for site in sites if site.operator == name])
        mutated = operators.mutate(source, site)
        if mutated is not None:
            return _mutant(room, file, source, mutated, name, None)
    return None


def _files(root: Path, room: Room) -> list[str]:
    paths = [root / source for source in room.sources]
    files = {f for p in paths for f in (p.rglob("*.py") if p.is_dir() else [p])}
    return sorted(f.relative_to(root).as_posix() for f in files)


def _mutant(
    room: str, file: str, source: str, mutated: str, operator: str, covers: str | None
) -> Mutant:
    before, after = source.splitlines(), mutated.splitlines()
    blocks = [
        op
        for op in difflib.SequenceMatcher(None, before, after, False).get_opcodes()
        if op[0] != "equal"
    ]
    first, last = blocks[0][1], blocks[-1][2]
    new_first, new_last = blocks[0][3], blocks[-1][4]
    return Mutant(
        id=hashlib.sha256(f"{file}\0{mutated}".encode()).hexdigest()[:12],
        room=room,
        file=file,
        line=first + 1,
        function=_function(source, first + 1) if file.endswith(".py") else "",
        operator=operator,
        old=_join(before[first:last]),
        new=_join(after[new_first:new_last]),
        covers=covers or file,
        source=mutated,
    )


def _join(lines: list[str]) -> str:
    return "\n".join(line.strip() for line in lines)


def _function(source: str, line: int) -> str:
    """Return the dotted name of what is defined around a line."""
    names, body = [], ast.parse(source).body
    while True:
        around = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
        if not around:
            return ".".join(names)
        names.append(around[0].name)
        body = around[0].body
