"""Candidates that lie on the devices of a mesh, each device its own part.

They stay there: what leaves a device are inner products, the few that are chosen, and
sums over all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsel._devices.mesh import (
    AXIS,
    gather,
    is_on,
    n_shards,
    replicate,
    shard,
    spread,
    whole,
)
from jaxsel._devices.typed import jit, psum, tree_map
from jaxsel._inputs.checks import widen
from jaxsel.gradients import Gradient, Oracle, Streamed

from ._usable import correlations

Mesh = jax.sharding.Mesh
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Resident:
    """Oracle with its candidates split over the axis "data" of a mesh.

    Attributes:
        oracle: Rows, equally many on each device; shared fields are replicated.
        mesh: The devices.
        places: Which candidate each row is, in ascending order; -1 where a row only
            fills up its device's part, `[rows]`.
    """

    oracle: Any
    mesh: Mesh
    places: np.ndarray

    @classmethod
    def of(cls, oracle: Any, mesh: Mesh, *, rows: int | None = None) -> Resident:
        """Lay candidates out on a mesh; those that are spread over it stay there.

        Args:
            oracle: Of n candidates. Arrays that are spread over other devices come to
                every process whole.
            mesh: The devices.
            rows: How many rows to have at least; n if None.
        """
        n, devices = len(oracle), n_shards(mesh)
        rows = -(-max(n, rows or n) // devices) * devices

        def lay(array: Any) -> jax.Array:
            # The last candidate is repeated: zeros might be no valid example of a loss.
            if is_on(array, mesh):
                return spread(array, mesh, rows, mode="edge")
            array = np.asarray(whole(array))
            more = [(0, rows - n)] + [(0, 0)] * (array.ndim - 1)
            return shard(np.pad(array, more, mode="edge"), mesh)

        parts = tree_map(lay, oracle.per_candidate())
        shared = {
            name: replicate(getattr(oracle, name), mesh) for name in oracle.shared
        }
        places = np.pad(np.arange(n), (0, rows - n), constant_values=-1)
        return cls(dataclasses.replace(oracle, **parts, **shared), mesh, places)

    def __len__(self) -> int:
        """Return n, the number of candidates."""
        return int(np.sum(self.places >= 0))

    @property
    def dtype(self) -> Any:
        """The type of the products."""
        return self.oracle.dtype

    def laid(self, values: np.ndarray) -> np.ndarray:
        """Scatter values `[n]` of candidates to rows; 0 or False in filler rows."""
        scattered = np.where(self.places >= 0, values[self.places], 0)
        return scattered.astype(values.dtype)

    def diag(self) -> np.ndarray:
        """Return each candidate's squared length, `[n]`, to every process."""
        squares = gather(lengths(self.oracle, self.mesh))
        return squares[self.places >= 0]

    def corr(self, target: Gradient) -> np.ndarray:
        """Return all `correlations` with a target, `[n]`, to every process."""
        products = gather(_corr(self.oracle, replicate(target, self.mesh), self.mesh))
        return products[self.places >= 0]

    def combine(self, weights: np.ndarray) -> Gradient:
        """Return `sum_i w_i g_i`, for weights `[n]`, to every process."""
        rows = shard(self.laid(weights).astype(self.dtype), self.mesh)
        return to_hosts(_combine(self.oracle, rows, self.mesh))

    def mean(self, rows: np.ndarray | None = None) -> Gradient:
        """Return the mean gradient of some candidates, or of all."""
        subset = self if rows is None else self.take(rows)
        n = len(subset)
        return subset.combine(np.full(n, 1 / n))

    def take(self, wanted: np.ndarray) -> Resident:
        """Return some candidates, in ascending order, each where it is.

        Devices have as many rows as the one that has most of them, or some more.
        """
        device, local_rows = self._where(wanted)
        counts = np.bincount(device, minlength=n_shards(self.mesh))
        share = min(rounded(int(counts.max())), self._share)
        # Fillers repeat a row of the device: zeros might be no valid example of a loss.
        last = np.zeros(len(counts), np.int32)
        last[device] = local_rows
        rows = np.repeat(last[:, None], share, axis=1)
        places = np.full(rows.shape, -1)
        # Candidates ascend, and so do their devices: count on within each device.
        slot = np.arange(len(wanted)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows[device, slot], places[device, slot] = local_rows, np.arange(len(wanted))
        parts = _pick(self.oracle.per_candidate(), shard(rows, self.mesh), self.mesh)
        oracle = dataclasses.replace(self.oracle, **parts)
        return Resident(oracle, self.mesh, places.reshape(-1))

    def grouped(self, size: int) -> Resident:
        """Return the mean gradients of `size` consecutive candidates each.

        If a group is spread over several devices, its rows go to one of them.
        """
        n, devices = len(self), n_shards(self.mesh)
        groups = -(-n // size)
        per_device = -(-groups // devices)
        counts = np.clip(n - size * np.arange(per_device * devices), 0, size)
        shares = np.arange(size) < counts[:, None]
        # A group that only fills up a device has no member, and shares of 0 instead of
        # NaN.
        shares = (shares / np.maximum(counts, 1)[:, None]).astype(self.dtype)
        rows = np.zeros(shares.shape, np.int32)
        form = jax.eval_shape(_grouped, self.oracle, rows, shares)
        moved = dataclasses.replace(self.oracle, **self._moved(per_device * size))
        parts = _group(moved, shard(shares, self.mesh), self.mesh)
        shared = {name: getattr(self.oracle, name) for name in form.shared}
        places = np.arange(per_device * devices)
        places[groups:] = -1
        return Resident(dataclasses.replace(form, **parts, **shared), self.mesh, places)

    @property
    def _share(self) -> int:
        return len(self.places) // n_shards(self.mesh)

    def _where(self, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the device of each candidate, and its row there."""
        rows = np.flatnonzero(self.places >= 0)[candidates]
        return rows // self._share, rows % self._share

    def _moved(self, share: int) -> Any:
        """Return arrays of which each device has the next `share` candidates.

        Shifts by one device, two, and so on carry only as many rows as they need to.
        """
        n, devices = len(self), n_shards(self.mesh)
        source, local_rows = self._where(np.arange(n))
        goal, slot = np.arange(n) // share, np.arange(n) % share
        steps: list[tuple[int, jax.Array, jax.Array]] = []
        for shift in range(devices):
            moving = [
                np.flatnonzero((source == d) & (goal == (d + shift) % devices))
                for d in range(devices)
            ]
            longest = max(map(len, moving))
            if not longest:
                continue
            sent = np.zeros((devices, longest), np.int32)
            kept = np.full((devices, longest), share, np.int32)  # dropped
            for d, rows in enumerate(moving):
                sent[d, : len(rows)] = local_rows[rows]
                kept[(d + shift) % devices, : len(rows)] = slot[rows]
            steps.append((shift, *shard((sent, kept), self.mesh)))
        shifts = tuple(shift for shift, *_ in steps)
        lists = [tuple(arrays) for _, *arrays in steps]
        parts = self.oracle.per_candidate()
        return _move(parts, lists, shifts, share, self.mesh)


def laid_out(oracle: Any, mesh: Mesh | None) -> Any:
    """Lay candidates out on a mesh, if there is one, and they do not lie there yet.

    Raises:
        ValueError: If they are in files.
    """
    if mesh is None or isinstance(oracle, Resident):
        return oracle
    if isinstance(oracle, Streamed):
        raise ValueError("mesh must be None for streamed candidates")
    return Resident.of(oracle, mesh)


def rounded(n: int) -> int:
    """Round up to a power of two, or, above 1024, one of four sizes between two."""
    bits = max((n - 1).bit_length(), 6)
    step = 1 << (bits if bits <= 10 else bits - 3)
    return -(-n // step) * step


def by_shards(
    function: Callable[..., Any], mesh: Mesh, specs: Any, out: Any
) -> Callable[..., Any]:
    """Return a function that every device applies to its own part: `jax.shard_map`."""
    # Oracles of users need not know which of their arrays differ between devices.
    run: Any = jax.shard_map(
        function, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False
    )
    return run


def to_hosts(tree: _T) -> _T:
    """Bring small arrays whole to every process."""

    def local(array: Any) -> jax.Array:
        return jnp.asarray(array)

    return tree_map(local, gather(tree))


def parts_of(oracle: Any) -> tuple[Any, Any, Callable[[Any, Any], Any]]:
    """Return per-candidate fields, shared fields, and a function that joins them."""
    shared = {name: getattr(oracle, name) for name in oracle.shared}

    def together(parts: Any, shared: Any) -> Any:
        return dataclasses.replace(oracle, **parts, **shared)

    return oracle.per_candidate(), shared, together


SPLIT, ALL = jax.P(AXIS), jax.P()


def on_parts(
    function: Callable[[Any, Any, Any], Any],
    oracle: Any,
    mesh: Mesh,
    same: Any = (),
    split: Any = (),
    *,
    out: Any,
) -> Any:
    """Have every device apply a function to the candidates that it has.

    Args:
        function: Of an oracle, of `same` and of `split`.
        oracle: All candidates, their rows split over the mesh.
        mesh: The devices.
        same: Arrays that are the same on all of them.
        split: Arrays with an entry for each row, split as they are.
        out: How results are split: `SPLIT`, or `ALL` if they are the same everywhere.
    """
    parts, shared, together = parts_of(oracle)

    def on_shard(parts: Any, shared: Any, same: Any, split: Any) -> Any:
        return function(together(parts, shared), same, split)

    run = by_shards(on_shard, mesh, (SPLIT, ALL, ALL, SPLIT), out)
    return run(parts, shared, same, split)


@jit(static_argnums=1)
def lengths(oracle: Oracle, mesh: Mesh) -> jax.Array:
    """Return the squared length of each row, split as they are."""

    def on_shard(oracle: Any, *_: Any) -> jax.Array:
        return widen(oracle.diag())

    return on_parts(on_shard, oracle, mesh, out=SPLIT)


@jit(static_argnums=2)
def _corr(oracle: Oracle, target: Gradient, mesh: Mesh) -> jax.Array:
    def on_shard(oracle: Any, target: Gradient, _: Any) -> jax.Array:
        return correlations(oracle, target)

    return on_parts(on_shard, oracle, mesh, target, out=SPLIT)


@jit(static_argnums=2)
def _combine(oracle: Oracle, weights: jax.Array, mesh: Mesh) -> Gradient:
    parts, shared, together = parts_of(oracle)

    def on_shard(parts: Any, shared: Any, weights: jax.Array) -> Gradient:
        total = together(parts, shared).combine(weights)
        # All weights of a device may be 0, as of fillers, but 0 times a NaN is NaN.
        none = ~jnp.any(weights)
        total = tree_map(lambda leaf: jnp.where(none, 0, leaf), total)
        return psum(total, AXIS)

    run = by_shards(on_shard, mesh, (SPLIT, ALL, SPLIT), ALL)
    return run(parts, shared, weights)


@jit(static_argnums=2)
def _pick(parts: Any, rows: jax.Array, mesh: Mesh) -> Any:
    def on_shard(parts: Any, rows: jax.Array) -> Any:
        return tree_map(lambda array: array[rows[0]], parts)

    return by_shards(on_shard, mesh, (SPLIT, SPLIT), SPLIT)(parts, rows)


@jit(static_argnums=(2, 3, 4))
def _move(parts: Any, lists: Any, shifts: Any, share: int, mesh: Mesh) -> Any:
    devices = n_shards(mesh)

    def on_shard(parts: Any, lists: Any) -> Any:
        def moved(array: jax.Array) -> jax.Array:
            received = jnp.zeros((share, *array.shape[1:]), array.dtype)
            for shift, (sent, kept) in zip(shifts, lists, strict=True):
                ring = [(d, (d + shift) % devices) for d in range(devices)]
                rows = array[sent[0]]
                rows = lax.ppermute(rows, AXIS, ring) if shift else rows
                received = received.at[kept[0]].set(rows, mode="drop")
            return received

        return tree_map(moved, parts)

    return by_shards(on_shard, mesh, (SPLIT, SPLIT), SPLIT)(parts, lists)


def _grouped(oracle: Any, rows: np.ndarray, shares: jax.Array) -> Any:
    return oracle.group(jnp.asarray(rows), shares)


@jit(static_argnums=2)
def _group(oracle: Any, shares: jax.Array, mesh: Mesh) -> Any:
    parts, shared, together = parts_of(oracle)

    def on_shard(parts: Any, shared: Any, shares: jax.Array) -> Any:
        rows = np.arange(shares.size).reshape(shares.shape)
        return _grouped(together(parts, shared), rows, shares).per_candidate()

    run = by_shards(on_shard, mesh, (SPLIT, ALL, SPLIT), SPLIT)
    return run(parts, shared, shares)
