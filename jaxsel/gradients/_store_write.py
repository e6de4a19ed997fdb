"""Writing a store of gradients: shard after shard, to go on after a kill."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._inputs.chunk import chunk_slices, first_row
from jaxsel._inputs.parameters import (
    Loss,
    Wrt,
    check_loss,
    split,
)
from jaxsel._runs.fingerprint import fingerprint
from jaxsel._runs.progress import track

from ._rows import check_chunk_size
from ._sketch import (
    draw,
    layers_of,
)
from ._store import GradientStore, open_store
from ._store_files import (
    DTYPES,
    MANIFEST,
    Manifest,
    is_shard,
    is_there,
    name_of,
    read_manifest,
    remove_leftovers,
    words_of,
    write_shard,
)
from ._store_rows import StoreRows, digest_of_loss, length_of, read, within

_SHARD_BYTES = 1 << 26


def write_store(
    folder: str | os.PathLike[str],
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    key: jax.Array,
    wrt: Wrt = None,
    dim: int = 64,
    rank: int | None = 1,
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16",
    shard_size: int | None = None,
    chunk_size: int | None = None,
    progress: bool = False,
) -> GradientStore:
    """Write every example's gradient to disk, projected layer by layer.

    A layer's gradient, the sum over positions of its inputs times the derivatives by
    its outputs, is a matrix `[in, out]`. Inputs and derivatives are projected to p and
    q numbers each, so that `[p, q]` remains, and of that the `rank` main pairs of
    singular vectors, `rank · (p + q)` numbers; with `rank=None` the product itself.
    A layer that is applied once a sample has a gradient of rank 1, which one pair holds
    without loss.

    Killed, or stopped by a full disk, the same call goes on after the last shard, and
    a finished store is opened. One process at a time writes to a folder.

    Args:
        folder: Folder of the store; made if it isn't there.
        loss: `loss(params, example) -> scalar`.
        params: Any pytree, as for `ghost`. Layers must be in evaluation mode.
        examples: A pytree of arrays `[n, ...]`, one entry a sample. Arrays that are
            mapped from files, and rows of `data.open_rows`, are read a chunk at a time:
            `(rows, rows.labels)`.
        key: A `jax.random.key`, from which the projections are drawn.
        wrt: The parameters that count, as for `ghost`.
        dim: Numbers to keep of each layer at most: p · q, or rank · (p + q). 64 in
            bfloat16 are 128 bytes.
        rank: Pairs of factors, or None to keep products.
        dtype: Type of the numbers on disk. The range of "float16" starts at 6e-8,
            which gradients of learnt samples do not reach.
        shard_size: Samples in a file; None for some 64 MB.
        chunk_size: Samples computed at once; it changes speed and memory only.
        progress: Whether to show a bar.

    Returns:
        The store, opened: see `open_store`.

    Costs a forward and a backward pass a sample, and for each layer `positions · (in p
    + out q + p q)` multiply-adds; with factors of several positions some 16 · rank · p
    · q more. Memory: a shard, and of one chunk each layer's inputs and derivatives,
    `positions · (in + out)` numbers.

    Raises:
        OSError: If a file can't be written, as on a full disk; it names the file.
            Finished shards stay, and nothing else.
        TypeError: If an argument is of another kind.
        ValueError: If the folder holds a store of other parameters, loss, data, key or
            form, or other files; if a gradient is not finite, by its row; if a number
            is out of range; as for `ghost`.

    References:
        S. K. Choe et al., What is your data worth to GPT? LLM-scale data valuation with
        influence functions, arXiv:2405.13954, section 3 (LoGra: two projections a
        layer); LoRIF, arXiv:2601.21929 (factors of the product). We deviate:
        projections are random subspaces, not matrices of independent entries, and no
        axis is projected to more numbers than it has.
    """
    path = name_of(folder)
    check_loss(loss)
    dim = check_count("dim", dim)
    if rank is not None and 2 * check_count("rank", rank) > dim:
        raise ValueError(
            f"rank must be at most half of dim = {dim}, one number for each factor, "
            f"got {rank}"
        )
    check_choice("dtype", dtype, tuple(DTYPES))
    size = check_chunk_size(chunk_size)
    words = _words(key)
    n = length_of(examples)
    parameters = split(params, wrt)
    example = first_row(read(examples, slice(0, 1)))
    layers = layers_of(loss, parameters, example, dim, rank)
    if shard_size is None:
        numbers = sum(layer.size for layer in layers)
        row_bytes = numbers * np.dtype(DTYPES[dtype]).itemsize
        shard_size = max(1, _SHARD_BYTES // row_bytes)
    manifest = Manifest(
        n=n,
        shard_size=min(n, check_count("shard_size", shard_size)),
        dtype=dtype,
        key_kind=str(jax.random.key_impl(key)),
        key=words,
        draw=words_of(key),
        params=fingerprint(parameters.selected, parameters.others),
        loss=digest_of_loss(loss, parameters, example),
        paths=parameters.form.paths,
        layers=layers,
    )
    compute = StoreRows(loss, layers, parameters, draw(layers, key), examples, dtype)
    with _folder(path):
        manifest = _continued(path, manifest)
        _write_missing(path, manifest, compute, size, progress)
    return open_store(path)


def _write_missing(
    path: Path, manifest: Manifest, compute: StoreRows, size: int | None, progress: bool
) -> None:
    numbers = range(manifest.n_shards)
    missing = [i for i in numbers if not _is_written(path, manifest, i, compute)]
    if not missing:
        return
    chunk = compute.chunk(manifest.shard_size, size)
    steps = [
        (number, within(rows, part))
        for number in missing
        for rows in [manifest.rows(number)]
        for part in chunk_slices(rows.stop - rows.start, chunk)
    ]
    parts: list[np.ndarray] = []
    for number, step in track(steps, progress=progress, label="Gradients"):
        parts.append(compute(step, chunk))
        rows = manifest.rows(number)
        if step.stop == rows.stop:
            digest = compute.digest(rows)
            whole = np.concatenate(parts)
            manifest = write_shard(path, manifest, number, whole, digest)
            parts.clear()


def _is_written(
    path: Path, manifest: Manifest, number: int, compute: StoreRows
) -> bool:
    """Return whether a shard is there, and refuse it if it is of other examples."""
    if number < len(manifest.shards):
        rows = manifest.rows(number)
        if compute.digest(rows) != manifest.shards[number].examples:
            raise ValueError(
                f"examples must be those that {path} was begun with, but some of rows "
                f"{rows.start} to {rows.stop - 1} differ: {_INSTEAD}"
            )
    return is_there(path, manifest, number)


_INSTEAD = "choose another folder, or delete this one"


def _continued(path: Path, manifest: Manifest) -> Manifest:
    """Return the manifest of a store that was begun, or the new one.

    Raises:
        ValueError: If the one that was begun is another, or the folder has other files.
    """
    remove_leftovers(path)
    if not (path / MANIFEST).exists():
        others = sorted(entry.name for entry in path.iterdir())
        others = [name for name in others if not is_shard(name)]
        if others:
            raise ValueError(
                f"folder must be empty, or hold a store, but {path} has {others[0]!r}: "
                "choose another folder"
            )
        return manifest
    begun = read_manifest(path)
    ours, theirs = (
        dataclasses.asdict(dataclasses.replace(store, shards=()))
        for store in (manifest, begun)
    )
    differ = [name for name in ours if ours[name] != theirs[name]]
    if differ:
        raise ValueError(
            f"{path} holds a store that differs in {', '.join(differ)}: {_INSTEAD}"
        )
    return begun


@contextlib.contextmanager
def _folder(path: Path) -> Generator[None, None, None]:
    """Make the folder, and remove it again if nothing was written to it."""
    is_new = not path.exists()
    # Gradients tell much of the samples, so others may not read them.
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()


def _words(key: Any) -> tuple[int, ...]:
    typed = isinstance(key, jax.Array) and jnp.issubdtype(
        key.dtype, jax.dtypes.prng_key
    )
    if not typed or key.shape:
        raise TypeError(f"key must be a key as of jax.random.key(0), got {key!r}")
    return tuple(map(int, np.asarray(jax.random.key_data(key))))
