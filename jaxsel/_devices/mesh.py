"""Device meshes and multi-host start-up: the only place that knows about devices.

Public functions take any mesh, and the name of the axis to share their work over. They
bring both to one form with `along`: a mesh that has an axis "data", over which alone
algorithms shard. The same code runs on one device, eight, or several hosts.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

AXIS = "data"
_ALIGNMENT = 64  # bytes


def make_mesh(devices: Sequence[Any] | None = None) -> jax.sharding.Mesh:
    """Return a one-dimensional mesh over all devices, or over those given.

    Args:
        devices: The devices to use; all of them, on every host, if None.

    Returns:
        A mesh with one axis, "data", for the `mesh` argument of jaxsel's functions.
        These take any other mesh, too.

    Examples:
        >>> import jaxsel
        >>> mesh = jaxsel.make_mesh()  # of all devices
        >>> mesh.axis_names
        ('data',)
    """
    devices = jax.devices() if devices is None else list(devices)
    if not devices:
        raise ValueError("devices must not be empty")
    return _automatic(np.asarray(devices), (AXIS,))


def along(
    mesh: jax.sharding.Mesh | None, axis: str | None = None
) -> jax.sharding.Mesh | None:
    """Return the same devices, the axis to share work over named "data".

    Devices that differ in other axes only do the same work; these become "copies_0", or
    another number. All axes are automatic. A mesh that has this form stays as it is.

    Args:
        mesh: Any mesh, or None.
        axis: Name of the axis to share over. If None, the only one, or "data".

    Raises:
        ValueError: If `mesh` is no mesh, or `axis` names none of its axes, or several
            may be meant.
    """
    if mesh is None:
        if axis is not None:
            raise ValueError(f"axis must be None without a mesh, got {axis!r}")
        return None
    axis = axis_of(mesh, axis)
    # Devices keep their order, so that programs take arrays of the given mesh.
    names = [
        AXIS if name == axis else f"copies_{place}"
        for place, name in enumerate(mesh.axis_names)
    ]
    return _automatic(mesh.devices, names)


def axis_of(mesh: jax.sharding.Mesh, axis: str | None) -> Any:
    """Return the name of the axis of a mesh to share work over."""
    if not isinstance(mesh, jax.sharding.Mesh) or not mesh.axis_names:
        raise ValueError(
            "mesh must be a mesh of devices with named axes, such as "
            f"jaxsel.make_mesh() returns, got {mesh!r}"
        )
    names = mesh.axis_names
    shown = ", ".join(map(repr, names))
    if axis is None:
        if len(names) > 1 and AXIS not in names:
            raise ValueError(
                "axis must name the axis of the mesh to share the work over: pass "
                f"axis= with one of {shown}"
            )
        return names[0] if len(names) == 1 else AXIS
    if axis not in names:
        raise ValueError(f"axis must be one of the mesh's axes, {shown}, got {axis!r}")
    return axis


def _automatic(devices: np.ndarray, names: Sequence[Any]) -> jax.sharding.Mesh:
    # Explicit axes, the default since jax 0.9, refuse sorts and gathers.
    types = (jax.sharding.AxisType.Auto,) * len(names)
    return jax.sharding.Mesh(devices, tuple(names), axis_types=types)


def n_shards(mesh: jax.sharding.Mesh | None) -> int:
    """Return the size of the axis that work is shared over; 1 without a mesh."""
    return 1 if mesh is None else mesh.shape[AXIS]


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
        num_processes: Number of processes.
        process_id: Number of this process, from 0 on.

    Examples:
        >>> import jaxsel
        >>> jaxsel.init_multihost("10.0.0.1:8476", 2, 0)  # doctest: +SKIP
        >>> mesh = jaxsel.make_mesh()  # the devices of both hosts  # doctest: +SKIP
    """
    jax.distributed.initialize(coordinator_address, num_processes, process_id)


def replicate(tree: Any, mesh: jax.sharding.Mesh | None) -> Any:
    """Put a copy of every array on every device of the mesh."""
    return _put(tree, mesh, jax.P())


def aligned(array: np.ndarray) -> np.ndarray:
    """Return the array, copied if unaligned, so that JAX on CPUs can alias it."""
    if array.ctypes.data % _ALIGNMENT == 0 and array.flags.c_contiguous:
        return array
    # NumPy aligns to 16 bytes only: allocate more, and start at a multiple of 64.
    room = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def shard(tree: Any, mesh: jax.sharding.Mesh | None) -> Any:
    """Split the first axis of every array over the mesh; it must divide evenly."""
    return _put(tree, mesh, jax.P(AXIS))


def gather(tree: Any) -> Any:
    """Gather every array to this host as NumPy, shards on other hosts included."""
    if all(a.is_fully_addressable for a in jax.tree.leaves(tree)):
        return jax.tree.map(np.asarray, tree)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)


def whole(value: Any) -> Any:
    """Gather an array that is spread over devices; return any other value as it is.

    Arrays of `jax.make_array_from_process_local_data` are spread, and those of a mesh
    with explicit axes, which refuse gathers.
    """
    if not isinstance(value, jax.Array) or isinstance(value, Tracer):
        return value
    return gather(value) if len(value.sharding.device_set) > 1 else value


def is_on(value: Any, mesh: jax.sharding.Mesh | None) -> bool:
    """Return whether an array is spread over the devices of a mesh, in its order."""
    if not isinstance(mesh, jax.sharding.Mesh):
        return False
    if not isinstance(value, jax.Array) or isinstance(value, Tracer):
        return False
    sharding = value.sharding
    if not isinstance(sharding, jax.NamedSharding) or mesh.size == 1:
        return False
    array_mesh = sharding.mesh
    return isinstance(array_mesh, jax.sharding.Mesh) and (
        array_mesh.devices.ravel().tolist() == mesh.devices.ravel().tolist()
    )


def automatic(value: jax.Array) -> jax.Array:
    """Relabel an array's sharding with automatic mesh axes.

    No data moves. Explicit axes refuse gathers and sorts.
    """
    sharding: Any = value.sharding
    plain = _automatic(sharding.mesh.devices, sharding.mesh.axis_names)
    return _relabelled(value, jax.NamedSharding(plain, sharding.spec))


def spread(
    value: jax.Array, mesh: jax.sharding.Mesh, rows: int, *, mode: Any = "constant"
) -> jax.Array:
    """Shard an array that `is_on` a mesh over "data", padded to `rows` rows.

    Shards go from device to device, if at all; no process ever holds all of them.

    Args:
        value: Array of shape `[n, ...]`.
        mesh: The devices.
        rows: Number of rows after padding.
        mode: Padding mode, as in `jax.numpy.pad`: zeros, if not given.
    """
    value = automatic(value)
    source: Any = value.sharding
    split = jax.NamedSharding(mesh, jax.P(AXIS))
    if len(value) == rows and source.is_equivalent_to(split, value.ndim):
        return _relabelled(value, split)
    return _filled(split)(value, rows, mode)


@functools.lru_cache(maxsize=16)
def _filled(sharding: jax.NamedSharding) -> Callable[[jax.Array, int, Any], jax.Array]:
    def fill(value: jax.Array, rows: int, mode: Any) -> jax.Array:
        more = [(0, rows - len(value))] + [(0, 0)] * (value.ndim - 1)
        return jnp.pad(value, more, mode=mode)

    return jax.jit(fill, static_argnums=(1, 2), out_shardings=sharding)


def on_axis(tree: Any, mesh: jax.sharding.Mesh, axis: str | None) -> Any:
    """Relabel arrays that are split over `along(mesh, axis)` as split over `mesh`.

    No data moves: each shard stays on its device.
    """
    sharding = jax.NamedSharding(mesh, jax.P(axis_of(mesh, axis)))
    return jax.tree.map(lambda array: _relabelled(array, sharding), tree)


def _relabelled(array: jax.Array, sharding: jax.NamedSharding) -> jax.Array:
    shards = [shard.data for shard in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(array.shape, sharding, shards)


def _put(tree: Any, mesh: jax.sharding.Mesh | None, spec: jax.P) -> Any:
    if mesh is None:
        return jax.tree.map(jax.numpy.asarray, tree)
    sharding = jax.NamedSharding(mesh, spec)
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def place(array: Any) -> jax.Array:
        # Each host has the whole array and puts its own part on its own devices.
        if isinstance(array, jax.Array):
            if array.sharding == sharding:
                return array
            if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
                bits = place(jax.random.key_data(array))
                return jax.random.wrap_key_data(bits, impl=jax.random.key_impl(array))
        array = np.asarray(whole(array))
        return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

    return jax.tree.map(place, tree)
