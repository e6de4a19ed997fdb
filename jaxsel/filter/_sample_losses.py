"""The loss of every sample, under any model."""

from __future__ import annotations

import functools
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.memory import activations
from jaxsel._devices.mesh import (
    AXIS,
    along,
    automatic,
    gather as to_hosts,
    is_on,
    n_shards,
    on_axis,
    replicate,
    shard,
    spread,
    whole,
)
from jaxsel._devices.typed import jit, tree_map
from jaxsel._inputs.checks import as_array
from jaxsel._inputs.chunk import chunk_rows, chunk_slices, first_row, take_rows
from jaxsel._inputs.parameters import Loss, Parameters, check_loss, example_loss, split
from jaxsel._runs.progress import track

# Numbers that the samples of a chunk compute: on a CPU about a cache's worth.
_ENTRIES = {"cpu": 1 << 22}
_ENTRIES_ELSEWHERE = 1 << 26


@overload
def sample_losses(
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    gather: Literal[True] = True,
    progress: bool = False,
) -> np.ndarray: ...


@overload
def sample_losses(
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    gather: bool,
    progress: bool = False,
) -> np.ndarray | jax.Array: ...


def sample_losses(
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    gather: bool = True,
    progress: bool = False,
) -> np.ndarray | jax.Array:
    """Compute the loss of each sample, one forward pass each.

    Args:
        loss: `loss(params, example) -> scalar`, for one example. Pass the same function
            each time: it is compiled once for each.
        params: Any pytree: nested dicts, a Flax NNX module or state, Linen variables,
            an Equinox module. Layers must be in evaluation mode, as for
            `gradients.jvp`.
        examples: A pytree of arrays `[n, ...]`, one entry a sample. Memory-mapped ones
            are read chunk by chunk. Those that are spread over the devices of the mesh
            stay there, and each device computes its own.
        chunk_size: Samples computed at once; changes speed and memory only.
        mesh: Devices that share each chunk, as `make_mesh` returns them, or None.
        axis: Which axis of the mesh; its only one, or "data", if None.
        gather: Whether every process gets all losses (the default). If not, they stay
            on the devices, split over the axis, of which n must be a multiple; so do
            the examples meanwhile, all of them. Needs a mesh.
        progress: Whether to show a progress bar.

    Returns:
        Losses, `[n]`: a NumPy array, or with `gather=False` one of JAX.

    Raises:
        TypeError: If `loss` is no hashable function.
        ValueError: If the examples' lengths differ or are 0, if the loss is not a real
            scalar, if layers are in training mode, if losses cannot stay on the
            devices, or if a sample's loss is NaN or infinite (the first is named, in
            every process).
    """
    check_loss(loss)
    given_mesh, mesh = mesh, along(mesh, axis)
    stay = any(is_on(leaf, mesh) for leaf in jax.tree.leaves(examples))

    def on_mesh_or_here(leaf: jax.Array) -> Any:
        return automatic(leaf) if is_on(leaf, mesh) else whole(leaf)

    examples = tree_map(on_mesh_or_here, examples)
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
    devices = n_shards(mesh)
    if not gather and (mesh is None or n % devices):
        if mesh is None:
            raise ValueError("gather must be True without a mesh, got False")
        raise ValueError(
            f"gather=False needs a number of samples that {devices} devices share "
            f"evenly, got {n}"
        )
    parameters = split(params)
    first = jax.eval_shape(first_row, examples)
    entries = activations(functools.partial(_loss, loss), parameters, first)
    rows = chunk_rows(
        n,
        max(1, entries),
        chunk_size=chunk_size,
        devices=devices,
        entries=_ENTRIES.get(jax.default_backend(), _ENTRIES_ELSEWHERE),
    )
    parameters = replicate(parameters, mesh)
    if mesh is not None and given_mesh is not None and (stay or not gather):
        on_devices = _on_devices(loss, parameters, examples, n, rows, mesh, progress)
        if not gather:
            return on_axis(on_devices, given_mesh, axis)
        return to_hosts(on_devices)[:n]
    parts: list[np.ndarray] = []
    chunks = chunk_slices(n, rows)
    for chunk in track(chunks, progress=progress, label="Losses"):
        part = shard(take_rows(examples, chunk, rows), mesh)
        losses = to_hosts(_losses(loss, parameters, part))[: chunk.stop - chunk.start]
        bad = np.flatnonzero(~np.isfinite(losses))
        if bad.size:
            _refuse(chunk.start + bad[0], losses[bad[0]])
        parts.append(losses)
    return np.concatenate(parts)


def _refuse(row: int, value: Any) -> None:
    raise ValueError(
        f"loss must be finite for every example, but that of example {row} is {value}"
    )


def _loss(loss: Loss, parameters: Parameters, example: Any) -> jax.Array:
    return example_loss(loss, parameters, parameters.selected, example)


@jit(static_argnums=0)
def _losses(loss: Loss, parameters: Parameters, examples: Any) -> jax.Array:
    return jax.vmap(functools.partial(_loss, loss, parameters))(examples)


def _on_devices(
    loss: Loss,
    parameters: Parameters,
    examples: Any,
    n: int,
    rows: int,
    mesh: jax.sharding.Mesh,
    progress: bool,
) -> jax.Array:
    """Return the losses of samples where they are, `[n]` filled up to even parts."""
    devices = n_shards(mesh)
    share = -(-n // devices)

    def lay(leaf: Any) -> jax.Array:
        # The last one is repeated: zeros might be no valid example of a loss.
        if is_on(leaf, mesh):
            return spread(leaf, mesh, share * devices, mode="edge")
        more = [(0, share * devices - n)] + [(0, 0)] * (np.ndim(leaf) - 1)
        return shard(np.pad(leaf, more, mode="edge"), mesh)

    examples = jax.tree.map(lay, examples)
    rows = min(rows // devices, share)
    kind = jax.eval_shape(
        functools.partial(_loss, loss), parameters, jax.eval_shape(first_row, examples)
    )
    losses = shard(np.zeros(share * devices, kind.dtype), mesh)
    # The last chunk starts early: all have one shape, and one program.
    starts = [min(start, share - rows) for start in range(0, share, rows)]
    for start in track(starts, progress=progress, label="Losses"):
        losses = _more(loss, parameters, examples, losses, start, rows, mesh)
    wrong, row, value = to_hosts(_wrong(losses))
    if wrong:
        _refuse(int(row), value)
    return losses


# Donated, so that a chunk does not copy the losses so far.
@jit(static_argnums=(0, 5, 6), donate_argnums=3)
def _more(
    loss: Loss,
    parameters: Parameters,
    examples: Any,
    losses: jax.Array,
    start: int,
    rows: int,
    mesh: jax.sharding.Mesh,
) -> jax.Array:
    """Compute the losses of some rows of every device."""

    def on_shard(
        parameters: Any, examples: Any, losses: jax.Array, start: jax.Array
    ) -> Any:
        def cut(leaf: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(leaf, start, rows)

        rows_here = tree_map(cut, examples)
        return jax.lax.dynamic_update_slice_in_dim(
            losses, _losses(loss, parameters, rows_here), start, 0
        )

    split, same = jax.P(AXIS), jax.P()
    run: Any = jax.shard_map(
        on_shard,
        mesh=mesh,
        in_specs=(same, split, split, same),
        out_specs=split,
        check_vma=False,
    )
    return run(parameters, examples, losses, jnp.int32(start))


@jax.jit
def _wrong(losses: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    wrong = ~jnp.isfinite(losses)
    row = jnp.argmax(wrong)
    return wrong.any(), row, losses[row]
