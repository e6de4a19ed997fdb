"""Results as files: arrays, and static fields as JSON, in one `.npz` without pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ._staged import staged

_KIND = "__jaxsel__"
_VERSION = 1


def save(result: Any, path: str | os.PathLike[str]) -> Path:
    """Write a result's arrays, and its static fields as JSON."""
    path = Path(path)
    if path.suffix != ".npz":
        path = path.with_name(path.name + ".npz")
    arrays, static = {}, {}
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        if field.metadata.get("static"):
            static[field.name] = value
        elif value is not None:
            arrays[field.name] = np.asarray(value)
    header = {"kind": type(result).__name__, "version": _VERSION, "static": static}
    try:
        text = json.dumps(header)
    except TypeError as error:
        raise ValueError(
            f"the index has labels that a file cannot hold ({error}): save "
            "dataclasses.replace(values, index=None), and the index apart"
        ) from error
    with staged([path]) as [part], part.open("wb") as file:
        np.savez(file, **{_KIND: np.array(text)}, **arrays)
    return path


def load(cls: type[Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of a result of a class, as `save` wrote them."""
    name = repr(os.fspath(path))
    try:
        # Opened here: np.load leaves a file open that it cannot read.
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            header = json.loads(str(file[_KIND]))
            fields = {field.name for field in dataclasses.fields(cls)}
            arrays = {k: jnp.asarray(file[k]) for k in file.files if k in fields}
    except (
        EOFError,
        KeyError,
        TypeError,
        ValueError,
        zipfile.BadZipFile,
    ) as error:
        raise ValueError(f"{name} was not written by jaxsel") from error
    if header["kind"] != cls.__name__ or header["version"] != _VERSION:
        raise ValueError(
            f"{name} holds {header['kind']} of version {header['version']}, expected "
            f"{cls.__name__} of version {_VERSION}"
        )
    return arrays | header["static"]
