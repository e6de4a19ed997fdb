"""The loss of every sample of a source that need not fit in memory."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator
from typing import Any

import jax
import numpy as np

from jaxsel._devices.mesh import along, gather, n_shards, replicate, shard
from jaxsel._inputs.checks import as_array
from jaxsel._inputs.chunk import chunk_rows, take_rows
from jaxsel._inputs.parameters import Loss, Parameters, check_loss, example_loss, split
from jaxsel._inputs.rows import LabelsOf, RowChunk, Rows
from jaxsel._runs.fingerprint import fingerprint
from jaxsel._runs.progress import track
from jaxsel._runs.saved_stream import SavedStream


def streamed_losses(
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    chunk_size: int = 4096,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 256,
    progress: bool = False,
) -> np.ndarray:
    """Compute the loss of each row of a source, in one pass that can be resumed.

    A thread reads the next chunk meanwhile. The losses are those of `sample_losses`
    with the same `chunk_size`. Memory for three chunks and the losses.

    Args:
        loss: `loss(params, example) -> scalar`, for one example, as for
            `sample_losses`.
        params: Any pytree, as for `sample_losses`.
        examples: `Rows` of `data.open_rows`, or a pytree of them, such as
            `(rows, rows.labels)`, and of arrays `[n, ...]`. Rows and their labels are
            read together.
        chunk_size: Rows at a time.
        mesh: Devices that share each chunk, as `make_mesh` returns them, or None.
        axis: Which axis of the mesh; its only one, or "data", if None.
        checkpoint: Folder in which to keep the losses so far, or None. A call that was
            cut off goes on from there when it is repeated.
        checkpoint_every: Chunks between two saves.
        progress: Whether to show a progress bar.

    Returns:
        Losses, `[n]`.

    Raises:
        TypeError: If `loss` is no hashable function, or no example is `Rows`.
        ValueError: If lengths differ, if the loss is not a real scalar, if a sample's
            loss is NaN or infinite (the first is named), if a source changed, or if
            `checkpoint` holds another run.
    """
    check_loss(loss)
    mesh = along(mesh, axis)
    trees: Any = jax.tree  # its own types are incomplete
    leaves, structure = trees.flatten(examples)
    sources = _Sources(leaves)
    n = sources.n
    devices = n_shards(mesh)
    rows = chunk_rows(
        chunk_size if n is None else n,
        1,
        chunk_size=chunk_size,
        devices=devices,
        entries=1,
    )
    parameters = split(params)
    settings: dict[str, Any] = {}
    if checkpoint is not None:
        settings = {
            "loss": fingerprint(loss),
            "examples": [sources.about(leaf) for leaf in leaves],
            "structure": str(structure),
            "rows": rows,
            "devices": devices,
        }
    saved = SavedStream(checkpoint, checkpoint_every, settings, parameters)
    computed: list[np.ndarray] = []
    states: list[Any] = [0] * len(sources.bases)
    if (kept := saved.load()) is not None:
        computed, states = [kept[0]["losses"]], kept[1]
    done = sum(map(len, computed))
    total = None if n is None else -(-(n - done) // rows)
    on_mesh = replicate(parameters, mesh)
    with contextlib.closing(sources.chunks(rows, states)) as chunks:
        for parts in track(chunks, progress=progress, label="Losses", total=total):
            filled = parts[0].stop - parts[0].start
            tree = trees.unflatten(structure, sources.leaves(parts))
            chunk = take_rows(tree, slice(filled), rows)
            losses = gather(_losses(loss, on_mesh, shard(chunk, mesh)))[:filled]
            bad = np.flatnonzero(~np.isfinite(losses))
            if bad.size:
                raise ValueError(
                    "loss must be finite for every example, but that of example "
                    f"{done + bad[0]} is {losses[bad[0]]}"
                )
            computed.append(losses)
            done += filled
            states = [part.state for part in parts]
            if saved.count():
                computed = [np.concatenate(computed)]
                saved.save({"losses": computed[0]}, states)
    result = np.concatenate(computed)
    saved.save({"losses": result}, states)
    return result


@functools.partial(jax.jit, static_argnums=0)
def _losses(loss: Loss, parameters: Parameters, examples: Any) -> jax.Array:
    example_losses: Callable[[Any], jax.Array] = functools.partial(
        example_loss, loss, parameters, parameters.selected
    )
    return jax.vmap(example_losses)(examples)


class _Sources:
    """Rows and arrays that are read side by side; rows and their labels, once.

    Attributes:
        bases: The rows to read.
        n: How many rows each has, or None if only a pass can tell.
    """

    def __init__(self, leaves: list[Any]):
        # An array, or which of the bases, and whether its labels.
        self._leaves: list[np.ndarray | tuple[int, bool]] = []
        self.bases: list[Rows] = []
        for leaf in leaves:
            if not isinstance(leaf, Rows):
                array = np.asarray(as_array("examples", leaf))
                if not array.ndim:
                    raise ValueError("examples must have one entry a sample, got none")
                self._leaves.append(array)
                continue
            base = leaf
            if isinstance(leaf.source, LabelsOf):
                base = Rows(leaf.source.source, leaf.begin, leaf.end)
            ours = (base.source, base.begin, base.end)
            place = next(
                (
                    i
                    for i, known in enumerate(self.bases)
                    if (known.source, known.begin, known.end) == ours
                ),
                len(self.bases),
            )
            if place == len(self.bases):
                self.bases.append(base)
            self._leaves.append((place, leaf is not base))
        if not self.bases:
            raise TypeError(
                "examples must have Rows among them, such as data.open_rows returns: "
                "arrays are for sample_losses"
            )
        lengths: set[int | None] = {base.n for base in self.bases}
        lengths |= {len(a) for a in self._leaves if not isinstance(a, tuple)}
        if len(lengths) > 1:
            raise ValueError(
                "examples must have the same number of rows, got "
                f"{', '.join(sorted(map(str, lengths)))}"
            )
        (self.n,) = lengths

    def about(self, leaf: Any) -> Any:
        """Return the identity of a leaf, for checkpoints."""
        return leaf.about if isinstance(leaf, Rows) else fingerprint(np.asarray(leaf))

    def chunks(
        self, rows: int, states: list[Any]
    ) -> Generator[tuple[RowChunk, ...], None, None]:
        """Read the next rows of all bases, from where their states say."""
        passes = [
            base.chunks(rows, start=state)
            for base, state in zip(self.bases, states, strict=True)
        ]
        try:
            yield from zip(*passes, strict=True)
        finally:
            for reader in passes:
                reader.close()

    def leaves(self, parts: tuple[RowChunk, ...]) -> list[np.ndarray]:
        """Return the leaves of one chunk."""
        rows = slice(parts[0].start, parts[0].stop)
        return [
            np.asarray(parts[leaf[0]][2 if leaf[1] else 1])
            if isinstance(leaf, tuple)
            else leaf[rows]
            for leaf in self._leaves
        ]
