"""Device meshes and multi-host start-up: the only place that knows about devices.

Algorithms take a mesh as an argument and shard their long axis over its one axis,
named "data"; the same code runs on one device, eight, or several hosts.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

AXIS = "data"


def make_mesh(devices: Sequence[Any] | None = None) -> jax.sharding.Mesh:
    """Return a one-dimensional mesh over all devices, or over those given.

    Args:
        devices: The devices to use; all of them, on every host, if None.

    Returns:
        A mesh with one axis, "data", for the `mesh` argument of jaxsel's functions.
    """
    devices = jax.devices() if devices is None else list(devices)
    if not devices:
        raise ValueError("devices must not be empty")
    # Explicit axes, the default since jax 0.9, refuse sorts and gathers.
    return jax.sharding.Mesh(
        np.asarray(devices), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,)
    )


def check_mesh(mesh: jax.sharding.Mesh | None) -> None:
    if mesh is not None and (
        not isinstance(mesh, jax.sharding.Mesh) or mesh.axis_names != (AXIS,)
    ):
        raise ValueError(
            f"mesh must be a mesh with one axis named {AXIS!r}, as jaxsel.make_mesh() "
            f"returns it, got {mesh!r}"
        )


def init_multihost(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Join this process to the others of a run on several hosts.

    Call it first, before anything touches a device; on clusters that JAX recognises
    (Slurm, Cloud TPU, GKE) no arguments are needed. Then pass `make_mesh()` and, in
    every process, the same arrays.

    Args:
        coordinator_address: Host and port of process 0.
        num_processes: How many processes take part.
        process_id: Which of them this is.
    """
    jax.distributed.initialize(coordinator_address, num_processes, process_id)


def replicate(tree: Any, mesh: jax.sharding.Mesh | None) -> Any:
    """Put a copy of every array on every device of the mesh."""
    return _put(tree, mesh, jax.P())


def shard(tree: Any, mesh: jax.sharding.Mesh | None) -> Any:
    """Split the first axis of every array over the mesh; it must divide evenly."""
    return _put(tree, mesh, jax.P(AXIS))


def gather(tree: Any) -> Any:
    """Bring every array to this host, as NumPy, whole: shards on other hosts too."""
    if all(a.is_fully_addressable for a in jax.tree.leaves(tree)):
        return jax.tree.map(np.asarray, tree)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)


def _put(tree: Any, mesh: jax.sharding.Mesh | None, spec: jax.P) -> Any:
    if mesh is None:
        return jax.tree.map(jax.numpy.asarray, tree)
    sharding = jax.NamedSharding(mesh, spec)
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def place(array: Any) -> jax.Array:
        # Each host has the whole array and puts its own part on its own devices.
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

    return jax.tree.map(place, tree)
