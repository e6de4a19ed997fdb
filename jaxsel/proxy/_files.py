"""A proxy on disk: a public manifest beside the model owner's secret weights."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxsel._files.staged import staged

from ._manifest import Manifest
from ._proxy import Proxy
from ._shapes import array_shapes

MANIFEST, WEIGHTS = "manifest.json", "weights.safetensors"


def save_proxy(proxy: Proxy, folder: str | os.PathLike[str]) -> Path:
    """Write a proxy's files; return their folder.

    `manifest.json` is public. `weights.safetensors` is the model owner's secret.
    Nothing is pickled. A write that fails leaves both as they were; weights that stand
    beside another manifest, after a run that was killed, are refused when read.

    Args:
        proxy: The proxy.
        folder: Made if it is not there; other files in it stay.

    Returns:
        The folder.
    """
    import safetensors.numpy

    folder = Path(folder)
    files = [folder / WEIGHTS, folder / MANIFEST]
    with staged(files, folder=folder) as (weights, manifest):
        # safetensors writes arrays as they lie in memory.
        arrays = {k: np.asarray(v, order="C") for k, v in proxy.arrays().items()}
        about = {"manifest": _digest(proxy.manifest), "arrays": digest_arrays(arrays)}
        safetensors.numpy.save_file(arrays, weights, about)
        manifest.write_text(proxy.manifest.to_json(), "utf-8")
    return folder


def load_proxy(folder: str | os.PathLike[str]) -> Proxy:
    """Return the proxy that `save_proxy` wrote.

    Args:
        folder: Where it wrote.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file does not fit: it is named.
    """
    manifest = read_manifest(folder)
    return Proxy.from_arrays(manifest, read_weights(folder, manifest))


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Return the manifest of a folder of `save_proxy`, or of a file.

    Args:
        path: The folder, or a file of JSON.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is not a manifest: the field is named.
    """
    path = Path(path)
    path = path / MANIFEST if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"there is no manifest at {path}")
    try:
        return Manifest.from_json(path.read_text("utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None


def read_weights(
    folder: str | os.PathLike[str], manifest: Manifest
) -> dict[str, np.ndarray]:
    """Return the arrays in a folder of `save_proxy`, from one read of their file.

    Args:
        folder: Where it wrote.
        manifest: The proxy's architecture: which arrays there must be.

    Raises:
        FileNotFoundError: If there are none.
        ValueError: If they were saved with another manifest, were changed since, a
            name, shape or type is not the manifest's, or a value not finite.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(
            f"there are no weights at {path}: the model owner's side needs them"
        )
    try:
        content = path.read_bytes()
        arrays = load(content)
        about = _metadata(content)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: no safetensors file ({error})") from None
    shapes = array_shapes(manifest)
    for name in sorted({*shapes, *arrays}):
        shape = arrays[name].shape if name in arrays else None
        if shape != shapes.get(name):
            raise ValueError(
                f"{path}: {name} must have shape {shapes.get(name)}, got {shape}"
            )
        if arrays[name].dtype.kind != "f" or not np.isfinite(arrays[name]).all():
            raise ValueError(f"{path}: {name} must be finite floating-point numbers")
    for name in ("manifest", "arrays"):
        if name not in about:
            raise ValueError(
                f"{path}: weights must carry a hash of their {name}, and have none: "
                "write them with save_proxy"
            )
    if about["manifest"] != _digest(manifest):
        raise ValueError(f"{path}: these weights were saved with another manifest")
    if about["arrays"] != digest_arrays(arrays):
        raise ValueError(
            f"{path}: weights must be those that were saved, and were changed since"
        )
    return arrays


def digest_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a hash of arrays: their names, types, shapes and every bit."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        about = json.dumps([name, array.dtype.str, array.shape])
        digest.update(f"{about}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _metadata(content: bytes) -> dict[str, str]:
    """Return the metadata in a safetensors file's header, a JSON object.

    The header's length stands in front, in 8 bytes.
    """
    length = int.from_bytes(content[:8], "little")
    return dict(json.loads(content[8 : 8 + length]).get("__metadata__", {}))


def _digest(manifest: Manifest) -> str:
    """Return a manifest's hash: a run may end between the renames of two files."""
    return hashlib.sha256(manifest.to_json().encode()).hexdigest()
