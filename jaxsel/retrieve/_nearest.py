"""The nearest candidates of each hard sample, from a stream of candidates.

A chunk of candidates is compared with all hard samples, and the few nearest are merged
with those kept so far: neither the candidates nor their distances are ever whole in
memory. The matrix product runs in blocks that stay in a CPU's second-level cache, and
all else that touches a candidate (length, check, labels) happens while it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, Float, Integer

from jaxsel._devices.mesh import AXIS, along, gather, is_on, n_shards, replicate, shard
from jaxsel._devices.typed import finfo, fori_loop, jit
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._inputs.show import brief
from jaxsel._runs.progress import track
from jaxsel.neighbors import (
    METRICS,
    Metric,
    distances,
    squared_norms,
    top_k,
)

from ._chunks import Part, load_chunks, rows_at_once
from ._resident import Resident
from ._saved import check_folder, saved_pass
from ._stream import Shared, Stream, in_float64, needs_float64, open_stream

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

    from jaxsel._inputs.rows import Rows

# Feature entries in a block: 1 MB, what a core's second-level cache holds. One product
# over 25 MB takes a fifth longer than many over 1 MB. Elsewhere a chunk is one block.
_BLOCK_ENTRIES = 2**18


@brief
class Nearest(NamedTuple):
    """The nearest candidates of m hard samples, nearest first; ties by lower index.

    Attributes:
        distances: Array of shape `[m, k]`: squared distances for "l2", `1 - cos` for
            "cosine". Infinite where there are fewer than k candidates.
        indices: Array of shape `[m, k]`, int32; -1 where there are fewer.
    """

    distances: jax.Array
    indices: jax.Array


def empty_nearest(m: int, k: int, dtype: Any = jnp.float32) -> Nearest:
    """Return lists without any candidate, to begin with: a pure kernel.

    Args:
        m: Number of hard samples.
        k: How many candidates to keep for each.
        dtype: Type of the distances.
    """
    return Nearest(jnp.full((m, k), jnp.inf, dtype), jnp.full((m, k), -1, jnp.int32))


def merge_nearest(
    nearest: Nearest,
    features: Float[jax.Array, "b d"],
    queries: Float[jax.Array, "m d"],
    start: Integer[jax.Array, ""] | int,
    allowed: Bool[jax.Array, "m b"] | Bool[jax.Array, " b"] | None = None,
    *,
    metric: Metric = "cosine",
) -> Nearest:
    """Merge a chunk of candidates with the nearest ones so far: a pure kernel.

    Merge chunks in the order of their indices: equal distances then come out by index.
    Costs m·b·d multiply-adds at highest precision, and m·b distances in memory.

    Args:
        nearest: The nearest so far, `[m, k]` each.
        features: Candidates, `[b, d]`: centred like the queries for "l2"; of any
            length for "cosine".
        queries: Hard samples, `[m, d]`; of unit length for "cosine".
        start: Index of the first candidate of the chunk.
        allowed: Optional mask `[m, b]`, or `[b]` for all hard samples alike: which
            candidates count.
        metric: "l2" or "cosine".

    Returns:
        The nearest of both, `[m, k]` each.
    """
    near, _ = _distances_in_blocks(features, queries, len(features), metric=metric)
    return _merge(nearest, near, start, allowed)


def nearest(
    features: npt.ArrayLike | jax.Array | Rows,
    hard_features: npt.ArrayLike | jax.Array,
    k: int,
    *,
    labels: npt.ArrayLike | jax.Array | Rows | None = None,
    hard_labels: npt.ArrayLike | jax.Array | None = None,
    metric: Metric = "cosine",
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 64,
    progress: bool = False,
) -> Nearest:
    """Find the k nearest candidates of each hard sample.

    The search is exhaustive, but distances are float32. Their error is a few roundings
    of the squared lengths, which are 1 for "cosine" and those of centred features for
    "l2". Candidates whose distances differ by less can change places; KNN values
    separate such candidates. Where a sample of an array shows that rounding would
    decide, as far from the origin, distances are computed in float64. Candidates are
    read once, a chunk at a time, so `features` may be a memory-mapped file larger than
    memory, or `Rows`, which a thread reads ahead. Costs m·n·d multiply-adds, and memory
    for one chunk, three of `Rows`, and the result.

    Args:
        features: Candidates, `[n, d]`, an array or `Rows` of `data.open_rows`. An array
            that is spread over the devices of `mesh`, such as of
            `jax.make_array_from_process_local_data`, stays there, and is copied unless
            it is split over `axis`.
        hard_features: Hard samples, `[m, d]`.
        k: How many for each hard sample.
        labels: Optional classes of the candidates, `[n]`: each hard sample is then
            compared with candidates of its own class only. Needs `hard_labels`.
        hard_labels: Classes of the hard samples, `[m]`.
        metric: "cosine" or "l2".
        chunk_size: Candidates at a time, or None to choose: changes speed and memory,
            not the result, up to near-ties.
        mesh: Devices that share the candidates of each chunk, as `make_mesh` returns
            them, or None for one.
        axis: Which axis of the mesh; its only one, or "data", if None.
        checkpoint: Folder in which to keep the lists so far, or None. A call that was
            cut off goes on from there when it is repeated, with the same result.
        checkpoint_every: Chunks between two saves.
        progress: Whether to show a progress bar.

    Returns:
        Distances and indices, `[m, min(k, n)]` each.

    Raises:
        ValueError: If an array is empty, has a wrong shape, or is not finite, if `k` is
            less than 1, if only one of the labels is given, if a source changed, or if
            `checkpoint` holds another search.
        TypeError: If features are not numeric or are being traced.
    """
    mesh = along(mesh, axis)
    options: Any = {"chunk_size": chunk_size, "mesh": mesh, "progress": progress}
    options |= {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every}
    known: Any = {"labels": labels, "hard_labels": hard_labels, "metric": metric}
    if not is_on(features, mesh) and needs_float64(features, hard_features, metric):
        with jax.enable_x64(True):
            wide = in_float64(features, hard_features)
            lists = nearest(*wide, k, **known, **options)
            return lists._replace(distances=lists.distances.astype(jnp.float32))
    check_count("checkpoint_every", checkpoint_every)
    stream = open_stream(features, hard_features, **known, mesh=mesh)
    return find_nearest(stream, check_count("k", k), **options)


def find_nearest(
    stream: Stream,
    k: int,
    *,
    chunk_size: int | None,
    mesh: jax.sharding.Mesh | None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 64,
    progress: bool,
    label: str = "nearest",
) -> Nearest:
    """Find the nearest candidates as `nearest` does, without its checks."""
    devices = 1 if mesh is None else n_shards(mesh)
    m = len(stream.queries)
    k = k if stream.is_iterator else min(k, stream.n)

    def repeat(a: jax.Array) -> np.ndarray:
        return np.repeat(np.asarray(a)[None], devices, axis=0)

    lists: Any = jax.tree.map(repeat, empty_nearest(m, k, stream.queries.dtype))
    shared = stream.shared() if mesh is None else replicate(stream.shared(), mesh)
    rows = rows_at_once(stream, chunk_size=chunk_size, devices=devices)
    if mesh is not None and is_on(stream.features, mesh):
        check_folder(checkpoint, stream, mesh)
        state = shard(lists, mesh)
        resident = Resident.of(stream, rows, mesh)
        step = _resident_step(mesh, resident.share, resident.rows, stream.metric)
        for first in track(
            resident, progress=progress, label=label, total=len(resident)
        ):
            state, finite = step(state, shared, resident.part, first, stream.n)
            if not bool(np.all(gather(finite))):
                resident.refuse()
        return _across_devices(Nearest(*gather(state)), k)
    saved, after = None, {"row": 0}
    if checkpoint is not None:
        saved = saved_pass(checkpoint, checkpoint_every, stream, (k, rows, devices))
        if (kept := saved.load()) is not None:
            arrays: Any = kept[0]
            lists, after = Nearest(**arrays), kept[1]
    state = jax.device_put(lists) if mesh is None else shard(lists, mesh)
    total = None if stream.is_iterator else -(-(stream.n - after["row"]) // rows)
    with closing(load_chunks(stream, rows, mesh=mesh, start=after)) as chunks:
        for chunk, part, shift, filled in track(
            chunks, progress=progress, label=label, total=total
        ):
            state, finite = _step(
                state,
                shared,
                part if mesh is None or chunk.mesh is not None else shard(part, mesh),
                (np.int32(chunk.start), shift, filled),
                rows=rows // devices,
                metric=stream.metric,
                mesh=mesh,
            )
            if not bool(np.all(finite if mesh is None else gather(finite))):
                chunk.refuse()
            after = chunk.state
            if saved is not None and saved.count():
                saved.save(gather(state)._asdict(), after)
    lists = state if mesh is None else Nearest(*gather(state))
    if saved is not None:
        saved.save(lists._asdict(), after)
    # The first `k` of an iterator with fewer candidates are all that there are.
    return _across_devices(lists, k, min(k, after["row"]))


@jit(static_argnames=("rows", "metric", "mesh"), donate_argnames=("state",))
def _step(
    state: Nearest,
    shared: Shared,
    part: Part,
    scalars: Any,
    *,
    rows: int,
    metric: Metric,
    mesh: jax.sharding.Mesh | None,
) -> tuple[Nearest, jax.Array]:
    """Merge one chunk into each device's state, `[devices, m, k]`."""

    def on_device(state: Any, shared: Any, part: Any, scalars: Any) -> Any:
        start, shift, filled = scalars
        first = 0 if mesh is None else lax.axis_index(AXIS) * rows
        near, finite = _part_distances(shared, part, shift, rows, metric)
        allowed = first + jnp.arange(rows, dtype=jnp.int32) < filled
        local = Nearest(*(a[0] for a in state))
        local = _merge(local, near, start + first, allowed)
        return Nearest(*(a[None] for a in local)), finite[None]

    if mesh is None:
        return on_device(state, shared, part, scalars)
    split, whole = jax.P(AXIS), jax.P()
    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(split, whole, split, whole),
        out_specs=split,
        # The compiled operations do not say over which axes their results vary.
        check_vma=False,
    )(state, shared, part, scalars)


@lru_cache(maxsize=16)
def _resident_step(
    mesh: jax.sharding.Mesh, share: int, rows: int, metric: Metric
) -> Callable[..., tuple[Nearest, jax.Array]]:
    """Return a step that merges some of each device's own candidates into its state."""

    def on_device(state: Any, shared: Any, part: Part, first: Any, n: Any) -> Any:
        # The last rows begin earlier, with some that were merged before.
        begin = jnp.minimum(first, share - rows)
        cut = partial(lax.dynamic_slice_in_dim, start_index=begin, slice_size=rows)
        block = jax.tree.map(cut, part)
        start = lax.axis_index(AXIS) * share + begin
        near, finite = _part_distances(shared, block, begin, rows, metric)
        place = jnp.arange(rows)
        allowed = (begin + place >= first) & (start + place < n)
        local = _merge(Nearest(*(a[0] for a in state)), near, start, allowed)
        return Nearest(*(a[None] for a in local)), finite[None]

    split, all_of = jax.P(AXIS), jax.P()
    step = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(split, all_of, split, all_of, all_of),
        out_specs=split,
        check_vma=False,
    )
    return jax.jit(step, donate_argnums=0)


def _part_distances(
    shared: Shared, part: Part, shift: jax.Array, rows: int, metric: Metric
) -> tuple[jax.Array, jax.Array]:
    """Return distances `[m, rows]`, infinite between classes, and a check."""
    near, finite = _distances_in_blocks(
        part.features, shared.queries, rows, shift, shared.centre, metric=metric
    )
    if part.codes is not None:
        near = jnp.where(shared.hard_codes[:, None] == part.codes[None], near, jnp.inf)
    return near, finite


def _distances_in_blocks(
    features: jax.Array,
    queries: jax.Array,
    rows: int,
    shift: jax.Array | int = 0,
    centre: jax.Array | None = None,
    *,
    metric: Metric,
) -> tuple[jax.Array, jax.Array]:
    """Return distances `[m, rows]`, and whether all of the features are finite.

    Features are `[rows, d]`, or flat, from entry `shift` on.
    """
    check_choice("metric", metric, METRICS)
    m, d = queries.shape

    def block(first: jax.Array | int, size: int) -> tuple[jax.Array, jax.Array]:
        if features.ndim == 1:
            part = lax.dynamic_slice_in_dim(features, shift + first * d, size * d)
            part = part.reshape(size, d)
        else:
            part = lax.dynamic_slice_in_dim(features, first, size)
        part = part if centre is None else part - centre
        if metric == "cosine":
            return _cosine(part, queries)
        norms = squared_norms(part)
        return distances(part, queries, norms=norms), jnp.isfinite(norms).all()

    size = block_rows(d) if jax.default_backend() == "cpu" else rows
    count, rest = divmod(rows, size)
    if rows <= size:
        return block(0, rows)

    def body(
        i: jax.Array, carry: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        near, finite = carry
        near_part, fine = block(i * size, size)
        near = lax.dynamic_update_slice_in_dim(near, near_part, i * size, axis=1)
        return near, finite & fine

    dtype = jnp.result_type(features, queries)
    carry = jnp.zeros((m, rows), dtype), jnp.asarray(True)
    near, finite = fori_loop(0, count, body, carry)
    if rest:
        near_part, fine = block(count * size, rest)
        near, finite = near.at[:, count * size :].set(near_part), finite & fine
    return near, finite


def _cosine(part: jax.Array, queries: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cosine distances; divides the product by the lengths, not the features."""
    # By the largest entry first: the square of a large or tiny one is not finite.
    peak = jnp.max(jnp.abs(part), axis=1)
    scaled = part / jnp.where(peak > 0, peak, 1)[:, None]
    length = peak * jnp.sqrt(squared_norms(scaled))
    tiny = finfo(part.dtype).tiny
    inverse = jnp.where(length > tiny, 1 / jnp.maximum(length, tiny), 0)
    product = jnp.matmul(queries, part.T, precision="highest")
    return jnp.maximum(1 - product * inverse[None], 0), jnp.isfinite(length).all()


def block_rows(d: int) -> int:
    """Return the number of candidates of d features in a block."""
    return max(64, _BLOCK_ENTRIES // d // 64 * 64)


def _merge(
    nearest: Nearest,
    near: jax.Array,
    start: jax.Array | int,
    allowed: jax.Array | None,
) -> Nearest:
    if allowed is not None:
        near = jnp.where(jnp.atleast_2d(allowed), near, jnp.inf)
    k = nearest.distances.shape[1]
    top, index = _top_rows(near, min(k, near.shape[1]))
    index = jnp.where(jnp.isfinite(top), index + start, -1)
    # Earlier candidates come first: `top_k` keeps the first of equal distances.
    both = jnp.concatenate([nearest.distances, top], axis=1)
    index = jnp.concatenate([nearest.indices, index], axis=1)
    top, place = _top_rows(both, k)
    return Nearest(top, jnp.take_along_axis(index, place, axis=1))


def _top_rows(rows: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    return jax.vmap(partial(top_k, k=k))(rows)


def _across_devices(state: Nearest, k: int, n: int | None = None) -> Nearest:
    """Merge `[devices, m, k]`, on the host, into the k nearest of all, or n of them."""
    devices, m, _ = state.distances.shape
    near, index = (np.moveaxis(np.asarray(a), 0, 1).reshape(m, -1) for a in state)
    if devices > 1:
        order = np.lexsort((index, near))[:, :k]  # by distance, ties by index
        near, index = (np.take_along_axis(a, order, axis=1) for a in (near, index))
    return Nearest(jnp.asarray(near[:, :n]), jnp.asarray(index[:, :n]))


def iterate_distances(
    stream: Stream,
    chunk_size: int | None,
    *,
    start: int = 0,
    progress: bool = False,
    label: str = "",
) -> Iterator[tuple[slice, jax.Array]]:
    """Yield distances `[m, b]` chunk by chunk; infinite between different classes.

    Candidates before `start`, which is 0 for iterators, are left out.
    """
    rows = rows_at_once(stream, chunk_size=chunk_size, devices=1)
    shared = stream.shared()
    total = None if stream.is_iterator else -(-(stream.n - start) // rows)
    with closing(load_chunks(stream, rows, mesh=None, start={"row": start})) as chunks:
        for chunk, part, shift, filled in track(
            chunks, progress=progress, label=label, total=total
        ):
            near, finite = _chunk_distances(
                shared, part, shift, rows=rows, metric=stream.metric
            )
            if not finite:
                chunk.refuse()
            yield slice(chunk.start, chunk.stop), near[:, :filled]


_chunk_distances: Callable[..., tuple[jax.Array, jax.Array]] = jax.jit(
    _part_distances, static_argnames=("rows", "metric")
)
