"""Results as files: arrays, and static fields as JSON, in one `.npz` without pickle.

A sha256 of all members lies among them. It is compared before any of them is parsed, so
that damaged or changed files are refused before they reach a parser.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from jaxsel._files.staged import staged

_KIND = "__jaxsel__"
_VERSION = 2
_DIGEST = "__sha256__.npy"
_T = TypeVar("_T")


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
    with staged([path]) as [part]:
        write_arrays(part, {_KIND: np.array(text), **arrays})
    return path


def load(
    cls: type[_T],
    path: str | os.PathLike[str],
    restore: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> _T:
    """Return a result of a class, as `save` wrote it.

    Args:
        cls: The class.
        path: The file.
        restore: Converts static fields from JSON to the types of the class.

    Raises:
        OSError: If the file can't be opened.
        ValueError: If it holds anything else, or was changed.
    """
    name = repr(os.fspath(path))
    arrays = read_arrays(path)
    try:
        header = json.loads(str(arrays.pop(_KIND)))
        kind, version, static = (header[key] for key in ("kind", "version", "static"))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} was not written by jaxsel: no header") from error
    if kind != cls.__name__ or version != _VERSION:
        raise ValueError(
            f"{name} holds {kind} of version {version}, expected {cls.__name__} of "
            f"version {_VERSION}"
        )
    try:
        return cls(**{k: jnp.asarray(a) for k, a in arrays.items()}, **restore(static))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} was not written by jaxsel: {error}") from error


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an uncompressed `.npz` of arrays and the sha256 of them.

    Args:
        path: The file, which ends in any way.
        arrays: The arrays by name.
    """
    with path.open("wb") as file:
        np.savez(file, **arrays)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo(_DIGEST), _digest(archive))


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the arrays that `write_arrays` wrote.

    Reads no more than the size of the file, and parses nothing that was changed. Takes
    about twice the file's size in memory.

    Raises:
        OSError: If the file can't be opened.
        ValueError: If `write_arrays` did not write it, or it was changed since.
    """
    content = Path(path).read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {info.filename: info for info in archive.infolist()}
            size = sum(info.file_size for info in members.values())
            packed = {info.compress_type for info in members.values()}
            if len(members) < len(archive.infolist()) or size > len(content):
                raise ValueError("members are listed twice, or have impossible sizes")
            if packed - {zipfile.ZIP_STORED}:
                raise ValueError("it is compressed, which no file of jaxsel's is")
            if _DIGEST not in members:
                raise ValueError("it has no sha256, as those of earlier versions")
            if archive.read(_DIGEST) != _digest(archive):
                raise ValueError("its sha256 differs")
            return {
                name.removesuffix(".npy"): np.lib.format.read_array(
                    io.BytesIO(archive.read(name)), allow_pickle=False
                )
                for name in members
                if name != _DIGEST
            }
    # A damaged archive makes zipfile raise nearly anything, as OSError 22,
    # NotImplementedError and struct.error.
    except Exception as error:
        raise ValueError(
            f"{os.fspath(path)!r} was not written by jaxsel, or was changed since: "
            f"{str(error)[:200] or type(error).__name__}"
        ) from error


def _digest(archive: zipfile.ZipFile) -> bytes:
    """Hash the names and contents of all members but the hash; as bytes of `.npy`."""
    digest = hashlib.sha256()
    for name in sorted(set(archive.namelist()) - {_DIGEST}):
        content = archive.read(name)
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    buffer = io.BytesIO()
    np.save(buffer, np.array(digest.hexdigest()))
    return buffer.getvalue()
