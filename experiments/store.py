"""Results of single seeds as files, so that a killed run goes on where it was.

Settings and versions are not all that results depend on: a changed source or another
scikit-learn is not noticed. The folder is to be removed then.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsel import __version__
from jaxsel._staged import staged

_FACTS = "__jaxsel__"


def remembered(
    path: Path, settings: Mapping[str, Any], run: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the results in a file, or run, and write them to it in one step.

    Args:
        path: An `.npz` file. One that holds the results of other settings, or other
            versions of jaxsel or JAX, or is damaged, is replaced.
        settings: What results are told apart by, as JSON has it.
        run: Returns results by name: arrays, numbers, texts and tuples of texts.
    """
    versions = {"jaxsel": __version__, "jax": jax.__version__}
    facts = json.dumps({"settings": settings, "versions": versions}, sort_keys=True)
    found = _read(path, facts)
    if found is None:
        _write(path, facts, run())
        found = _read(path, facts)
    if found is None:
        raise OSError(f"{path} could not be read back")
    return found


def _read(path: Path, facts: str) -> dict[str, Any] | None:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
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
    """Return texts and whole numbers as Python has them, and other arrays as such."""
    if array.dtype.kind == "U":
        return str(array) if array.ndim == 0 else tuple(array.tolist())
    return int(array) if array.ndim == 0 and array.dtype.kind == "i" else array
