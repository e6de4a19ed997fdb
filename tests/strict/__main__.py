"""The command; see the docstring of the package."""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("errors.toml")
VERSIONS = ("pyright", "jax", "numpy")
# What strict mode has against other libraries' types, and against checking arguments
# at run time, which users who do not check types depend on.
OFF = (
    "reportMissingTypeStubs",
    "reportUnknownMemberType",
    "reportUnnecessaryContains",
    "reportUnnecessaryIsInstance",
)


def main(arguments: list[str] | None = None) -> int:
    """Count errors; return 1 if the table must change, or there are too many."""
    parser = argparse.ArgumentParser("python -m tests.strict")
    parser.add_argument("--update", action="store_true", help="write what has fallen")
    parser.add_argument("--show", metavar="ROOM", help="list the errors of a room")
    options = parser.parse_args(arguments)
    table = tomllib.loads(TABLE.read_text())
    rooms = list(table["errors"])
    if options.show and options.show not in rooms:
        parser.error(f"--show must be one of {', '.join(rooms)}, got {options.show}")
    errors = find_errors([options.show] if options.show else rooms)
    if options.show:
        print(*errors[options.show], sep="\n")
        return 0
    found = {room: len(errors[room]) for room in rooms}
    other = versions() != table["versions"]
    for room in rooms:
        print(f"{room:12} {found[room]:5}   recorded {table['errors'][room]:5}")
    verdict = compare(found, table["errors"])
    if options.update and (other or not verdict.more):
        write(found)
        return 0
    if other:
        print(f"counted with {versions()}, recorded with {table['versions']}")
        return 0
    print(*verdict.messages(), sep="\n")
    return int(bool(verdict.more or verdict.fewer))


class Verdict(collections.namedtuple("Verdict", ["more", "fewer"])):
    """The rooms with more errors than recorded, and those with fewer."""

    def messages(self) -> list[str]:
        """Say what to do."""
        found = [
            f"{room} has more errors than recorded: mend them (--show {room} lists all)"
            for room in self.more
        ]
        if self.fewer and not self.more:
            found.append(f"fewer errors in {', '.join(self.fewer)}: run --update")
        return found


def compare(found: dict[str, int], recorded: dict[str, int]) -> Verdict:
    """Compare numbers of errors by room."""
    return Verdict(
        [room for room, number in recorded.items() if found[room] > number],
        [room for room, number in recorded.items() if found[room] < number],
    )


def find_errors(rooms: list[str]) -> dict[str, list[str]]:
    """Return the errors of each room, one a line, as pyright finds them."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder).resolve() / "pyrightconfig.json"
        near = os.path.relpath(ROOT, config.parent)  # pyright takes no absolute paths
        settings = {
            "include": [f"{near}/jaxsel/{room}" for room in rooms],
            "executionEnvironments": [{"root": near}],
            "typeCheckingMode": "strict",
            "pythonVersion": "3.11",
            "reportMissingModuleSource": False,
            **dict.fromkeys(OFF, False),
        }
        config.write_text(json.dumps(settings))
        command = ["-m", "pyright", "-p", str(config), "--outputjson"]
        ran = subprocess.run(
            [sys.executable, *command, "--pythonpath", sys.executable],
            capture_output=True,
            text=True,
            check=False,
        )
    if ran.returncode not in (0, 1):
        raise SystemExit(f"pyright failed: {ran.stderr or ran.stdout}")
    errors: dict[str, list[str]] = {room: [] for room in rooms}
    for found in json.loads(ran.stdout)["generalDiagnostics"]:
        path = Path(found["file"]).relative_to(ROOT)
        line = found["range"]["start"]["line"] + 1
        message = found["message"].partition("\n")[0]
        errors[path.parts[1]].append(f"{path}:{line}: {message} ({found.get('rule')})")
    return errors


def versions() -> dict[str, str]:
    """Return the versions on which numbers depend."""
    return {name: metadata.version(name) for name in VERSIONS}


def write(errors: dict[str, int]) -> None:
    """Write the table."""
    lines = ["# Errors in strict mode: `python -m tests.strict --update` lowers them."]
    for title, entries in (("versions", versions()), ("errors", errors)):
        lines += ["", f"[{title}]"]
        lines += [f"{name} = {json.dumps(entry)}" for name, entry in entries.items()]
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
