"""Results of single seeds as files, so that a killed run resumes.

A file is valid for its settings, the versions of the packages that compute, and the
sources of jaxsel and of the experiments, except for modules that only show results.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import jaxsel
from jaxsel._files.staged import staged

_FACTS = "__jaxsel__"
# Python 3.11 may raise SystemError where threads parse headers of arrays at one time.
_READING = threading.Lock()
_COMPUTES = "flax", "jax", "jaxlib", "numpy", "optax", "scikit-learn", "scipy"
_SHOWS = {
    "__main__.py",
    "chapter.py",
    "claims.py",
    "command.py",
    "figures.py",
    "measured.py",
    "measured_elsewhere.py",
    "record.py",
    "tables.py",
}
_SHOWN_BY = "_cli", "report"  # rooms of jaxsel


def remembered(
    path: Path, settings: Mapping[str, Any], run: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """Read the results from a file; if it has none, run and write them atomically.

    Args:
        path: An `.npz` file. One that holds the results of other settings, versions or
            sources, or is damaged, is replaced.
        settings: Settings that identify the results, as JSON.
        run: Returns results by name: arrays, numbers, texts and tuples of texts.
    """
    facts = json.dumps({"settings": settings, **versions_here()}, sort_keys=True)
    results = _read(path, facts)
    if results is None:
        _write(path, facts, run())
        results = _read(path, facts)
    if results is None:
        raise OSError(f"{path} could not be read back")
    return results


@functools.cache
def versions_here() -> dict[str, Any]:
    """Return the versions of packages that compute, and a digest of the sources."""
    versions: dict[str, str | None] = {"jaxsel": jaxsel.__version__}
    for name in _COMPUTES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    roots = Path(jaxsel.__file__).parent, Path(__file__).parent
    return {"versions": versions, "sources": source_digest(*roots)}


def source_digest(*roots: Path) -> str:
    """Return a digest of folders' Python files, except code that only shows results."""
    digest = hashlib.sha256()
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root)
            if path.name in _SHOWS or inside.parts[0] in _SHOWN_BY:
                continue
            source = path.read_bytes()
            digest.update(f"{inside.as_posix()}:{len(source)}:".encode() + source)
    return digest.hexdigest()[:16]


def _read(path: Path, facts: str) -> dict[str, Any] | None:
    try:
        with (
            _READING,
            path.open("rb") as raw,
            np.load(raw, allow_pickle=False) as file,
        ):
            if str(file[_FACTS]) != facts:
                return None
            return {name: _plain(file[name]) for name in file.files if name != _FACTS}
    except (FileNotFoundError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(path: Path, facts: str, results: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: Any = {name: np.asarray(value) for name, value in results.items()}
    with staged([path]) as [part], part.open("wb") as file:
        np.savez(file, **{_FACTS: np.array(facts)}, **arrays)


def _plain(array: np.ndarray) -> Any:
    """Convert texts and integer scalars to Python types; return other arrays as is."""
    if array.dtype.kind == "U":
        return str(array) if array.ndim == 0 else tuple(array.tolist())
    return int(array) if array.ndim == 0 and array.dtype.kind == "i" else array
