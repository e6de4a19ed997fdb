"""The order of the house: who imports whom, what stays private, how long files are."""

import ast
import functools
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

ROOMS = (
    "report",
    "tables",
    "data",
    "models",
    "neighbors",
    "gradients",
    "value",
    "attribute",
    "match",
    "retrieve",
    "filter",
    "proxy",
    "market",
    "labels",
    "estimators",
    "tasks",
    "demo",
    "cli",
)
"""In order: each imports from those before it only. `cli` is `_cli` with its faces."""

INNER_ROOMS = {
    "proxy": ("training", "cost", "parties", "leakage", "search"),
    "market": ("datasets", "design", "private"),
}
"""In order: each imports from those before it, and from files beside them, only."""

PRIVATE_IMPORTS = 9
"""Statements that import what is private to another room: may fall, must not rise."""

PUBLIC_NAMES = 400
"""Names that the rooms and `mpc_bridge` export: may fall; new methods may raise it.

Counted are re-exports (`Name as Name`) of each `__init__.py`. Those of the top level
are not: all but four, which foundations define, are of rooms and would count twice.
"""

LONGEST, LONGEST_TASKS = 450, 4500

KERNEL_ROOMS = ("neighbors", "gradients", "value", "attribute", "match", "filter")
COMMENTED = 0.02
"""Share of the kernel rooms' lines that are comments: may rise, must not fall."""

MOST_PARAMETERS = 12

QUESTIONS = ("What", "Who", "Whose", "Where", "Which", "How", "Why", "When", "Whether")

VAGUE = re.compile(
    r"\b(what|whose|so many|those of|that of|besides|likewise|as it was)\b", re.I
)
VAGUE_NAMES = {"at", "each", "found", "given", "here", "left", "look", "looked", "made"}
VAGUE_NAMES |= {"mine", "one", "own", "said", "seen", "some", "there", "told"}
"""Words and names after which a reader asks which."""
VAGUE_LIMITS = {
    "jaxsel": (0, 20),
    "mpc_bridge": (0, 3),
    "benchmarks": (0, 0),
    "experiments": (0, 12),
}
"""Vague first paragraphs and bindings of vague names: may fall, must not rise."""


class Import(NamedTuple):
    """An imported name, such as `jaxsel.report.plot_values`, and where that is done."""

    file: Path
    line: int
    name: tuple[str, ...]

    def __str__(self):
        return f"{self.file.relative_to(ROOT)}:{self.line}: {'.'.join(self.name)}"


def files(package):
    return sorted((ROOT / package).rglob("*.py"))


@functools.cache
def nodes_of(file):
    return [*ast.walk(ast.parse(file.read_text()))]


def imports(package):
    """Return all imports of a package, those within functions and for types too."""
    return [i for file in files(package) for i in imports_of(file)]


@functools.cache
def imports_of(file):
    found, folder = [], file.parent.relative_to(ROOT).parts
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = folder[: len(folder) - node.level + 1] if node.level else ()
            start += tuple(node.module.split(".")) if node.module else ()
            names = [(*start, alias.name) for alias in node.names]
        else:
            continue
        found += [Import(file, node.lineno, name) for name in names]
    return found


def circles(uses):
    """Return each node from which arrows lead back to it, with its arrows."""

    def reach(start):
        passed, ahead = set(), [*uses[start]]
        while ahead:
            node = ahead.pop()
            if node not in passed:
                passed.add(node)
                ahead += uses.get(node, ())
        return passed

    return {node: sorted(uses[node]) for node in uses if node in reach(node)}


def room(name):
    """Return the room of a dotted name; a foundation such as `_results` is its own."""
    return room_under(*name[:2])


@functools.cache
def room_under(package, inner=None):
    if package != "jaxsel" or inner is None:
        return package
    folder = ROOT / "jaxsel" / inner
    if inner in ("_cli", "cli", "__main__"):
        return "cli"
    return inner if folder.is_dir() or folder.with_suffix(".py").is_file() else package


@functools.cache
def room_of(file):
    return room(file.relative_to(ROOT).with_suffix("").parts)


def is_private(name):
    """Whether a name is private to a room of jaxsel, or to another package."""
    inner = name[2:] if name[0] == "jaxsel" and room(name) in ROOMS else name[1:]
    if name[0] == "jaxsel" and room(name) not in ROOMS:
        return False  # foundations are there for all rooms
    return any(part.startswith("_") and not part.startswith("__") for part in inner)


def across(package):
    return [i for i in imports(package) if room(i.name) != room_of(i.file)]


def private(package):
    ours = ("jaxsel", "mpc_bridge", "experiments")
    found = [i for i in across(package) if i.name[0] in ours and is_private(i.name)]
    return {(i.file, i.line): str(i) for i in found}.values()


def test_private_imports_across_rooms_do_not_rise():
    found = [*private("jaxsel"), *private("mpc_bridge")]
    assert len(found) <= PRIVATE_IMPORTS, "\n".join(found)


@pytest.mark.parametrize("package", ["experiments", "examples"])
def test_what_uses_jaxsel_uses_its_public_names(package):
    assert not private(package)


def exported(init):
    """Return the names that an `__init__.py` re-exports, those for types only too."""
    return {
        alias.asname
        for node in nodes_of(init)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name and not alias.name.startswith("_")
    }


def test_public_names_do_not_rise():
    inits = sorted((ROOT / "jaxsel").glob("[a-z]*/__init__.py"))
    inits.append(ROOT / "mpc_bridge" / "__init__.py")
    names = {init.parent.name: len(exported(init)) for init in inits}
    assert sum(names.values()) <= PUBLIC_NAMES, names


def test_rooms_import_from_rooms_before_them():
    place = {name: i for i, name in enumerate(ROOMS)}
    wrong = [
        str(found)
        for found in across("jaxsel")
        if place.get(room(found.name), -1) > place.get(room_of(found.file), len(ROOMS))
    ]
    assert not wrong, "\n".join(wrong)


def test_inner_rooms_import_from_inner_rooms_before_them():
    for name, inner in INNER_ROOMS.items():
        folder = ROOT / "jaxsel" / name
        place = {f"_{part}": i for i, part in enumerate(inner)}
        folders = {init.parent.name for init in folder.glob("_*/__init__.py")}
        assert folders == {*place}
        wrong = [
            str(found)
            for file in files(folder)
            if file.name != "__init__.py"
            for found in imports_of(file)
            if found.name[:2] == ("jaxsel", name)
            and place.get(found.name[2], -1) > place.get(file.parent.name, -1)
        ]
        assert not wrong, "\n".join(wrong)


def test_floors_of_the_docs_are_those_of_the_imports():
    page = (ROOT / "docs" / "extending.md").read_text()
    table = page.partition("| floor | rooms |")[2].partition("\n\n")[0]
    floors = [
        re.findall(r"`(\w+)`", line.split("|")[2]) for line in table.splitlines()[2:]
    ]
    level = {name: i for i, rooms in enumerate(floors) for name in rooms}
    assert [name for name in level if name in ROOMS] == list(ROOMS)
    folders = {path.parent.name for path in (ROOT / "jaxsel").glob("*/__init__.py")}
    assert folders - {"_native", "_cli"} == {*sum(floors[:4], [])} - {"cli"}
    wrong = [
        str(found)
        for package in ("jaxsel", *floors[4], *floors[5])
        for found in across(package)
        if room_of(found.file) in level
        and level.get(room(found.name), 0) > level[room_of(found.file)]
    ]
    assert not wrong, "\n".join(wrong)


def test_foundations_stand_in_rooms():
    assert len(list((ROOT / "jaxsel").glob("*.py"))) <= 8


def test_no_import_is_circular():
    """Among rooms and foundations, imports within functions and for types included."""
    uses = defaultdict(set)
    for found in across("jaxsel"):
        if found.name[0] == "jaxsel":
            uses[room_of(found.file)].add(room(found.name))
    assert not circles(uses)


@pytest.mark.parametrize("package", ["jaxsel", "mpc_bridge", "experiments"])
def test_no_import_of_modules_is_circular(package):
    """Imports within functions and for types included.

    A picture takes arrays, or a `Protocol` of the result's parts that it shows.
    """
    modules = {}
    for file in files(package):
        parts = file.relative_to(ROOT).with_suffix("").parts
        modules[parts[:-1] if parts[-1] == "__init__" else parts] = file
    uses = defaultdict(set)
    for module, file in modules.items():
        for found in imports_of(file):
            starts = (found.name[:size] for size in range(len(found.name), 0, -1))
            target = next((start for start in starts if start in modules), module)
            if target != module:
                uses[".".join(module)].add(".".join(target))
    assert len(uses) > len(modules) / 2
    assert not circles(uses)


def test_jaxsel_uses_nothing_of_the_repository_beside_it():
    beside = ("experiments", "benchmarks", "examples", "tests")
    wrong = {
        str(found)
        for package in ("jaxsel", "mpc_bridge")
        for found in imports(package)
        if found.name[0] in beside
    }
    assert not wrong
    heavy = [i for i in imports("jaxsel") if i.name[0] in ("torch", "mpc_bridge")]
    assert not [*map(str, heavy)]


def test_what_is_installed_and_what_is_shipped():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    targets = build["build"]["targets"]
    assert targets["wheel"]["packages"] == ["jaxsel", "mpc_bridge"]
    assert {"experiments", "benchmarks", "tests"} <= {*targets["sdist"]["include"]}


def test_kernels_say_why():
    lines = [
        line.strip()
        for name in KERNEL_ROOMS
        for file in files(f"jaxsel/{name}")
        for line in file.read_text().splitlines()
    ]
    assert sum(line.startswith("#") for line in lines) >= COMMENTED * len(lines)


def test_tasks_keep_to_what_users_call():
    lines = sum(len(file.read_text().splitlines()) for file in files("jaxsel/tasks"))
    assert lines <= LONGEST_TASKS


def test_files_are_short():
    packages = ("jaxsel", "mpc_bridge", "experiments", "benchmarks", "examples")
    long = {
        file.relative_to(ROOT).as_posix(): lines
        for package in packages
        for file in files(package)
        if (lines := len(file.read_text().splitlines())) > LONGEST
    }
    assert not long


@pytest.mark.parametrize("package", ["jaxsel/labels", "jaxsel/market", "mpc_bridge"])
def test_inner_functions_take_few_parameters(package):
    """Options travel as one object; exported functions name theirs one by one."""
    exported = (ROOT / package / "__init__.py").read_text()
    wide = [
        f"{file.relative_to(ROOT)}: {node.name} takes {count}"
        for file in files(package)
        for node in nodes_of(file)
        if isinstance(node, ast.FunctionDef)
        and (count := len(node.args.args) + len(node.args.kwonlyargs)) > MOST_PARAMETERS
        and not re.search(rf"\b{node.name}\b", exported)
    ]
    assert not wide, "\n".join(wide)


def test_docstrings_open_with_an_imperative_or_a_noun():
    """As in "Return the mean": "What is the mean" and "Whether it is" say less."""
    asked = [
        f"{file.relative_to(ROOT)}: {text.splitlines()[0]}"
        for file in files("jaxsel")
        for text in docstrings(file)
        if text.split()[0] in QUESTIONS
    ]
    assert not asked, "\n".join(asked)


@pytest.mark.parametrize("package", VAGUE_LIMITS)
def test_vague_words_and_names_do_not_rise(package):
    texts, names = VAGUE_LIMITS[package]
    opened = [
        f"{file.relative_to(ROOT)}: {paragraph}"
        for file in files(package)
        for text in docstrings(file)
        if VAGUE.search(paragraph := " ".join(text.split("\n\n")[0].split()))
    ]
    bound = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.id}"
        for file in files(package)
        for node in nodes_of(file)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id in VAGUE_NAMES
    ]
    assert len(opened) <= texts, "\n".join(opened)
    assert len(bound) <= names, "\n".join(bound)


def docstrings(file):
    """Return the docstrings of a module, its classes and functions."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    nodes = [n for n in nodes_of(file) if isinstance(n, kinds)]
    return [text for text in map(ast.get_docstring, nodes) if text]
