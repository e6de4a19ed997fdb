"""Find prepared data sets on disk, without importing TFDS."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

PathLike = str | os.PathLike[str]

# What `tfds.data_source` can read without TensorFlow.
READABLE = ("array_record", "parquet")

# While TFDS is being imported, it replaces `__import__` for all threads. One that
# imports it just then gets a stand-in, and both wait for each other for ever.
TFDS_IMPORT = threading.Lock()

_NAME = re.compile(r"(\w+)(?:/([\w.-]+))?(?::(\d+\.\d+\.\d+))?")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def resolve_data_dir(data_dir: PathLike | None) -> Path:
    """Return the folder of prepared sets: TFDS's own unless one is given."""
    if data_dir is None:
        data_dir = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return Path(data_dir).expanduser().absolute()


def find(name: str, data_dir: Path) -> tuple[Path | None, str]:
    """Look for a prepared data set without importing TFDS.

    Args:
        name: As TFDS writes it: `name`, `name/config` or `name/config:1.0.0`.
        data_dir: Where to look.

    Returns:
        The folder of its newest readable version, or None and the reason why not.

    Raises:
        ValueError: If the name isn't one.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(
            f"name must look like 'mnist', 'name/config' or 'name/config:1.0.0', "
            f"got {name!r}"
        )
    dataset, config, version = match.groups()
    base = data_dir / dataset
    if config is None and not _versions(base):
        configs = [d.name for d in _folders(base) if _versions(d)]
        if len(configs) > 1:
            options = ", ".join(f"{dataset}/{c}" for c in configs)
            return None, f"it has several configurations: choose one of {options}"
        config = configs[0] if configs else None
    if config is not None:
        base = base / config
    formats = []
    for folder in _versions(base):
        if version is None or folder.name == version:
            file_format = _file_format(folder)
            if file_format in READABLE:
                return folder, ""
            formats.append(file_format)
    if formats:
        return None, f"it is there as {formats[0]!r}, which needs TensorFlow to read"
    return None, ""


def folder_size(folder: Path) -> int:
    """Return the bytes that a folder takes on disk."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _folders(base: Path) -> list[Path]:
    return sorted(d for d in base.iterdir() if d.is_dir()) if base.is_dir() else []


def _versions(base: Path) -> list[Path]:
    """Return the prepared versions in a folder, newest first."""
    prepared = [
        d
        for d in _folders(base)
        if _VERSION.fullmatch(d.name) and (d / "dataset_info.json").is_file()
    ]
    return sorted(prepared, key=lambda d: [-int(part) for part in d.name.split(".")])


def _file_format(folder: Path) -> str:
    info = json.loads((folder / "dataset_info.json").read_text())
    formats = [
        info.get("fileFormat", "tfrecord"),
        *info.get("alternativeFileFormats", []),
    ]
    return next((f for f in formats if f in READABLE), formats[0])
