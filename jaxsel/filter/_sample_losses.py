"""The loss of every sample, under any model."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from jaxsel._checks import as_array
from jaxsel._chunk import chunk_rows, chunk_slices, first_row, take_rows
from jaxsel._memory import activations
from jaxsel._mesh import along, gather, n_shards, replicate, shard, whole
from jaxsel._parameters import Loss, Parameters, check_loss, example_loss, split
from jaxsel._progress import track

# Numbers that the samples of a chunk compute: on a CPU about a cache's worth.
_ENTRIES = {"cpu": 1 << 22}
_ENTRIES_ELSEWHERE = 1 << 26


def sample_losses(
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    progress: bool = False,
) -> np.ndarray:
    """Compute the loss of each sample, one forward pass each.

    Args:
        loss: `loss(params, example) -> scalar`, for one example. Pass the same function
            each time: it is compiled once for each.
        params: Any pytree: nested dicts, a Flax NNX module or state, Linen variables,
            an Equinox module. Layers must be in evaluation mode, as for
            `gradients.jvp`.
        examples: A pytree of arrays `[n, ...]`, one entry a sample. Memory-mapped ones
            are read chunk by chunk.
        chunk_size: Samples computed at once; changes speed and memory only.
        mesh: Devices that share each chunk, as `make_mesh` returns them, or None.
        axis: Which axis of the mesh; its only one, or "data", if None.
        progress: Whether to show a progress bar.

    Returns:
        Losses, `[n]`.

    Raises:
        TypeError: If `loss` is no hashable function.
        ValueError: If the examples' lengths differ or are 0, if the loss is not a real
            scalar, if layers are in training mode, or if a sample's loss is NaN or
            infinite (the first is named).
    """
    check_loss(loss)
    mesh = along(mesh, axis)
    examples = jax.tree.map(whole, examples)
    leaves = jax.tree.leaves(examples)
    for leaf in leaves:
        if isinstance(leaf, np.ndarray):
            as_array("examples", leaf)  # refuses masked entries
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in leaves}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "examples must be one or more arrays with the same first axis, one entry a "
            f"sample, got lengths {sorted(lengths) or 'none'}"
        )
    (n,) = lengths
    parameters = split(params)
    each = activations(functools.partial(_loss, loss), parameters, first_row(examples))
    rows = chunk_rows(
        n,
        max(1, each),
        chunk_size=chunk_size,
        devices=n_shards(mesh),
        entries=_ENTRIES.get(jax.default_backend(), _ENTRIES_ELSEWHERE),
    )
    parameters = replicate(parameters, mesh)
    found: list[np.ndarray] = []
    chunks = list(chunk_slices(n, rows))
    for chunk in track(chunks, progress=progress, label="Losses"):
        part = shard(take_rows(examples, chunk, rows), mesh)
        losses = gather(_losses(loss, parameters, part))[: chunk.stop - chunk.start]
        bad = np.flatnonzero(~np.isfinite(losses))
        if bad.size:
            raise ValueError(
                "loss must be finite for every example, but that of example "
                f"{chunk.start + bad[0]} is {losses[bad[0]]}"
            )
        found.append(losses)
    return np.concatenate(found)


def _loss(loss: Loss, parameters: Parameters, example: Any) -> jax.Array:
    return example_loss(loss, parameters, parameters.selected, example)


@functools.partial(jax.jit, static_argnums=0)
def _losses(loss: Loss, parameters: Parameters, examples: Any) -> jax.Array:
    return jax.vmap(functools.partial(_loss, loss, parameters))(examples)
