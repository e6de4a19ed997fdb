"""Check the statements of docs/comparison.md about other packages by their wheels.

Fetch the wheels first, without what they depend on, then run this over the folder:

    pip download --no-deps --dest WHEELS pydvl==0.10.0 shapiq==1.8.0 ...
    python -m benchmarks.statements WHEELS

The statements and their evidence are in `statements.toml`. It prints each statement
that a wheel does not bear out, and returns 1 if there is one. `--tables` prints the
page's tables. Evidence is text in a source file: it shows that something is there under
that name, not that it is right.
"""

from __future__ import annotations

import argparse
import re
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

STATEMENTS = Path(__file__).parent / "statements.toml"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the statements that wheels do not bear out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.statements")
    parser.add_argument("wheels", nargs="?", type=Path, help="folder of wheels")
    parser.add_argument("--tables", action="store_true", help="print the page's tables")
    args = parser.parse_args(argv)
    if args.tables:
        print(as_tables())
        return 0
    if args.wheels is None:
        parser.error("name the folder of wheels, or take --tables")
    count, wrong = 0, 0
    for name, package in packages().items():
        if "version" not in package:  # jaxsel itself, see the tests
            continue
        wheel = _wheel(args.wheels, name, package)
        if wheel is None:
            print(f"{name} {package['version']}: no wheel in {args.wheels}")
            wrong += 1
            continue
        sources = read_sources(wheel, package["root"])
        for feature, (_, *evidence) in package["cells"].items():
            count += 1
            for text in unsupported(evidence, sources):
                wrong += 1
                print(f"{name} {package['version']}, {feature}: {text}")
    print(f"{count} statements checked, {wrong} failures")
    return int(wrong > 0)


def packages() -> dict[str, Any]:
    """Return version and cells of each package."""
    kept = tomllib.loads(STATEMENTS.read_text())
    return {name: kept[name] for name in kept if name != "tables"}


def as_tables() -> str:
    """Return the tables of docs/comparison.md, a heading above each."""
    kept = tomllib.loads(STATEMENTS.read_text())
    lines: list[str] = []
    for title, names in kept["tables"].items():
        columns = [kept[name]["cells"] for name in names]
        lines += [f"### {title}", "", f"| | {' | '.join(names)} |"]
        lines.append("|---" * (len(names) + 1) + "|")
        for feature in columns[0]:
            if all(feature in cells for cells in columns):
                row = [feature, *(cells[feature][0] for cells in columns)]
                lines.append(f"| {' | '.join(row)} |")
        lines.append("")
    return "\n".join(lines)


def _wheel(folder: Path, name: str, package: Mapping[str, Any]) -> Path | None:
    start = f"{package.get('wheel', name)}-{package['version']}-".lower()
    wheels = (path for path in folder.glob("*.whl"))
    return next((path for path in wheels if path.name.lower().startswith(start)), None)


def read_sources(wheel: Path, root: str) -> dict[str, str]:
    """Return the Python files of a wheel below `root`, and its METADATA.

    Tests and example scripts are left out. For a package with several top-level
    modules, those that begin with `root` count, too.
    """
    with zipfile.ZipFile(wheel) as archive:
        return {
            path: archive.read(path).decode(errors="replace")
            for path in archive.namelist()
            if path.endswith("METADATA")
            or (path.startswith(root) and path.endswith(".py") and "/test" not in path)
        }


def unsupported(evidence: Sequence[str], sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the pieces of evidence that sources do not show.

    Args:
        evidence: "NAME: REGEX" for text in a file with a path that ends in NAME,
            "!REGEX" for text that is in no Python file, in any case of letters.
        sources: The text of each file, by path.
    """
    code = {path: text for path, text in sources.items() if path.endswith(".py")}
    for piece in evidence:
        if piece.startswith("!"):
            for path, text in code.items():
                if match := re.search(piece[1:], text, re.IGNORECASE):
                    yield f"{path} has {match[0]!r}, matched by {piece}"
                    break
            continue
        name, pattern = piece.split(": ", 1)
        texts = [
            text for path, text in sources.items() if f"/{path}".endswith(f"/{name}")
        ]
        if not any(re.search(pattern, text) for text in texts):
            yield f"no file {name} with {pattern!r}"


if __name__ == "__main__":
    raise SystemExit(main())
