"""Files and folders that hold rows, told apart by their kinds."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

_NPY, _PARQUET = (".npy",), (".parquet", ".pq")
_RECORDS = (".array_record", ".arrayrecord")
_NUMBERED = re.compile(r"(\D*)(\d*)")
ALLOWED = (
    "an .npy, .parquet or .array_record file, a list or folder of these, or a zarr "
    "array"
)


def listed(paths: list[Path]) -> tuple[str, list[Path]]:
    """Return the kind of files at some paths, and the files."""
    kinds: dict[str, list[Path]] = {}
    suffixes = {"npy": _NPY, "parquet": _PARQUET, "array_record": _RECORDS}
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there")
        if path.is_dir():
            if zarr_version(path):
                kinds.setdefault("zarr", []).append(path)
                continue
            inside = {kind: _files_of(path, ends) for kind, ends in suffixes.items()}
            if not any(inside.values()):
                raise ValueError(f"{path} has no file to read: it must be {ALLOWED}")
        else:
            end = path.suffix.lower()
            inside = {kind: [path] for kind, ends in suffixes.items() if end in ends}
            if not inside:
                raise ValueError(f"{path} must be {ALLOWED}")
        for kind, files in inside.items():
            if files:
                kinds.setdefault(kind, []).extend(files)
    if len(kinds) != 1:
        raise ValueError(
            f"source must hold files of one kind, got {', '.join(sorted(kinds))}"
        )
    ((kind, files),) = kinds.items()
    if kind == "zarr" and len(files) > 1:
        raise ValueError("source must be one zarr array, got several")
    return kind, files


def zarr_version(folder: Path) -> int:
    """Return the zarr format of a folder, 0 if it is neither array nor group."""
    if (folder / "zarr.json").is_file():
        return 3
    return 2 if any((folder / name).is_file() for name in (".zarray", ".zgroup")) else 0


def is_zarr_group(folder: Path) -> bool:
    """Return whether a zarr folder is a group of arrays."""
    if zarr_version(folder) == 3:
        meta = json.loads((folder / "zarr.json").read_text())
        return meta.get("node_type") == "group"
    return not (folder / ".zarray").is_file()


def _files_of(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the files of a folder that end in one of these, by name.

    Numbers in names count as numbers: part2 comes before part10.
    """
    files = (
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith((".", "_"))
    )
    return sorted(files, key=lambda path: (_by_number(path.name), path))


def _by_number(name: str) -> list[tuple[str, int]]:
    """Split a name into texts and the numbers behind them."""
    return [(text, int(digits or 0)) for text, digits in _NUMBERED.findall(name)]
