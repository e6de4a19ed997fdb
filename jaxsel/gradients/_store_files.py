"""Files of a store of gradients: a manifest, and shards that are mapped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import wrap_key_data
from jaxsel._files.codec import check_format, decode, encode, read_json, write_json
from jaxsel._files.npy import map_array
from jaxsel._files.staged import staged

from ._sketch import StoredLayer

MANIFEST = "store.json"
FORMAT, VERSION = "jaxsel.gradients", 1

# Types of numbers, and the type in the file, for NumPy's files have no bfloat16.
DTYPES = {"bfloat16": "<u2", "float16": "<f2", "float32": "<f4"}

_DIGEST = re.compile(r"[0-9a-f]{16,64}")
_SHARD = re.compile(r"shard-\d{6,}\.npy")
_LEFT = re.compile(rf"\.\d+\.(store\.json|{_SHARD.pattern})")
_MAX_BYTES = 1 << 27  # of a manifest


@dataclasses.dataclass(frozen=True)
class Shard:
    """A finished shard.

    Attributes:
        examples: Digest of its examples.
        sha256: Of its file.
    """

    examples: str
    sha256: str

    def __post_init__(self) -> None:
        _check_digests(examples=self.examples, sha256=self.sha256)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Description of a store, and of the shards that are finished.

    Attributes:
        n: Number of samples.
        shard_size: Samples in each shard but the last.
        dtype: One of `DTYPES`.
        key_kind: Implementation of the key of the projections.
        key: Its words.
        draw: Words drawn from the key: other ones mean other projections.
        params: Digest of all parameters.
        loss: Digest of the loss's code.
        paths: The parameters that count.
        layers: Their layers.
        shards: Those that are finished, the first ones.
    """

    n: int
    shard_size: int
    dtype: str
    key_kind: str
    key: tuple[int, ...]
    draw: tuple[int, ...]
    params: str
    loss: str
    paths: tuple[str, ...]
    layers: tuple[StoredLayer, ...] = dataclasses.field(
        metadata={"of": StoredLayer, "many": True}
    )
    shards: tuple[Shard, ...] = dataclasses.field(
        default=(), metadata={"of": Shard, "many": True}
    )

    def __post_init__(self) -> None:
        for name in ("key", "draw", "paths"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        counts = self.n, self.shard_size
        if not all(type(count) is int and count > 0 for count in counts):
            raise ValueError(f"n and shard_size must be at least 1, got {counts}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be {', '.join(DTYPES)}, got {self.dtype!r}")
        if not all(type(word) is int for word in (*self.key, *self.draw)):
            raise TypeError("key and draw must be whole numbers")
        if not all(isinstance(text, str) for text in (self.key_kind, *self.paths)):
            raise TypeError("key_kind and paths must be texts")
        _check_digests(params=self.params, loss=self.loss)
        if len({layer.rank > 0 for layer in self.layers}) != 1:
            raise ValueError("layers must be some, all with factors or all without")
        if len(self.shards) > self.n_shards:
            raise ValueError(
                f"shards must be at most {self.n_shards}, got {len(self.shards)}"
            )

    @property
    def numbers(self) -> int:
        """Numbers of a row."""
        return sum(layer.size for layer in self.layers)

    @property
    def n_shards(self) -> int:
        return -(-self.n // self.shard_size)

    @property
    def rank(self) -> int:
        return max(layer.rank for layer in self.layers)

    def rows(self, shard: int) -> slice[int, int]:
        """Return the rows of a shard."""
        start = shard * self.shard_size
        return slice(start, min(start + self.shard_size, self.n))

    def random_key(self) -> jax.Array:
        """Return the key of the projections.

        Raises:
            ValueError: If it draws other numbers than it did when this was written.
        """
        key = wrap_key_data(jnp.asarray(self.key, jnp.uint32), impl=self.key_kind)
        if words_of(key) != self.draw:
            raise ValueError(
                "the key of the store draws other projections than it did when the "
                "store was written: set jax_threefry_partitionable as it was then, or "
                "use the version of JAX of that time"
            )
        return key


def words_of(key: jax.Array) -> tuple[int, ...]:
    """Return four words drawn from a key, alike on all platforms."""
    return tuple(map(int, np.asarray(jax.random.bits(key, (4,), jnp.uint32))))


def shard_path(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:06d}.npy"


def is_shard(name: str) -> bool:
    """Return whether a file has the name of a shard."""
    return _SHARD.fullmatch(name) is not None


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a store, finished or not.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged, or of another version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: {folder} holds no store")
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes")
        document = read_json(path.read_text("utf-8"))
        digest = document.pop("sha256", None)
        if digest != _digest(document):
            raise ValueError("its sha256 differs: it is damaged, or was changed")
        check_format(document, FORMAT, VERSION)
        return decode(Manifest, document)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is refused: {error}") from error


def write_shard(
    folder: Path, manifest: Manifest, number: int, rows: np.ndarray, examples: str
) -> Manifest:
    """Write a shard, and then the manifest that names it.

    Args:
        folder: Of the store.
        manifest: Of the shards before.
        number: The next shard's, or that of one which is there no more.
        rows: `[b, numbers]` in the store's type.
        examples: Digest of the examples.

    Raises:
        OSError: If a file can't be written; it names the file, and leaves none.
    """
    path = shard_path(folder, number)
    with staged([path, folder / MANIFEST]) as [part, manifest_part]:
        with part.open("wb") as file:
            np.lib.format.write_array(
                file, rows.view(DTYPES[manifest.dtype]), allow_pickle=False
            )
        shards = [*manifest.shards]
        shards[number : number + 1] = [Shard(examples, _sha256_of_file(part))]
        manifest = dataclasses.replace(manifest, shards=tuple(shards))
        document = {"format": FORMAT, "version": VERSION, **encode(manifest)}
        document["sha256"] = _digest(document)
        manifest_part.write_text(write_json(document), "utf-8")
    return manifest


def map_shard(folder: Path, manifest: Manifest, shard: int) -> np.ndarray:
    """Map a shard's rows, `[b, numbers]`, once its hash was compared.

    Raises:
        OSError: If it can't be read.
        ValueError: If it is damaged, or was changed.
    """
    path, rows = shard_path(folder, shard), manifest.rows(shard)
    expected = (rows.stop - rows.start, manifest.numbers)
    if _sha256_of_file(path) != manifest.shards[shard].sha256:
        raise ValueError(
            f"{path} is refused: its sha256 differs from that of {MANIFEST}. It is "
            "damaged, or was changed: delete it, and write the store again, which "
            "computes missing shards only"
        )
    mapped = map_array(path)
    if mapped.shape != expected or mapped.dtype.str != DTYPES[manifest.dtype]:
        raise ValueError(
            f"{path} is refused: it must hold {expected} numbers of "
            f"{manifest.dtype}, got {mapped.shape} of {mapped.dtype}"
        )
    return mapped.view(np.dtype(getattr(jnp, manifest.dtype)))


def is_there(folder: Path, manifest: Manifest, number: int) -> bool:
    """Return whether a shard is finished, and there in full length."""
    if number >= len(manifest.shards):
        return False
    path, rows = shard_path(folder, number), manifest.rows(number)
    numbers = (rows.stop - rows.start) * manifest.numbers
    least = numbers * np.dtype(DTYPES[manifest.dtype]).itemsize
    return path.is_file() and path.stat().st_size > least


def remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files of a process that was killed."""
    for path in folder.iterdir():
        if _LEFT.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _digest(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _sha256_of_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_digests(**digests: Any) -> None:
    for name, digest in digests.items():
        if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
            raise ValueError(f"{name} must be hexadecimal digits, got {digest!r}")


def name_of(folder: str | os.PathLike[str]) -> Path:
    """Return a folder's path.

    Raises:
        TypeError: If it is none.
    """
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder must be a path, got {folder!r}")
    return Path(folder)
