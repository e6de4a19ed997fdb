"""From one validation point to many: chunks, devices, means and standard errors.

A kernel values the training points for one validation point. Here it is mapped over
chunks of validation points, whose results are folded into a running count, mean and
sum of squared deviations (or a maximum), so that memory is set by the chunk. With a
mesh, validation points are split over the devices; each keeps its own running result,
and these are merged once, at the end.
"""

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsel._checks import check_choice
from jaxsel._chunk import chunk_rows, chunk_slices, take_rows
from jaxsel._mesh import (
    AXIS,
    along,
    gather as to_hosts,
    n_shards,
    on_axis,
    replicate,
    shard,
)
from jaxsel._progress import track
from jaxsel._typed import compiled
from jaxsel._types import Reduce, Values
from jaxsel.neighbors import Exact, Metric, distances, squared_norms
from jaxsel.neighbors._distance import prepare_exact
from jaxsel.neighbors._exact import BY_QUERY, errors, repair

from ._provenance import counted

# How many (validation point, training point) pairs are in memory at once, on each
# device, at 10 to 60 bytes each. On a CPU malloc hands out the same memory again below
# 32 MB; above, every chunk pays for new pages (a quarter of the hybrid's time at twice
# this). A GPU wants large chunks: at a tenth of this it takes 1.7 times as long.
_ENTRIES = {"cpu": 500_000}
_ENTRIES_ELSEWHERE = 50_000_000

# (params, distances [n], train, query, what settles near ties or None)
# -> (values [n], error bound [n] or None)
Kernel = Callable[
    [Any, jax.Array, Any, Any, Exact | None], tuple[jax.Array, jax.Array | None]
]


class _Running(NamedTuple):
    """Running statistics of each device, `[devices, n]` each."""

    points: Any  # [devices]: how many validation points
    values: Any  # their mean, or maximum
    m2: Any  # as in Values; None for a maximum
    bound: Any  # as in Values, or None


def accumulate(
    kernel: Kernel,
    params: Any,
    x: np.ndarray | jax.Array,
    train: Any,
    x_val: np.ndarray | jax.Array,
    query: Any,
    *,
    metric: Metric,
    reduce: Reduce,
    certified: bool,
    method: str,
    chunk_size: int | None,
    mesh: jax.sharding.Mesh | None,
    axis: str | None,
    gather: bool,
    progress: bool,
) -> Values:
    """Map a kernel over all validation points and combine what it returns.

    Args:
        kernel: Values the training points for one validation point. Hashable: it is
            part of the key under which JAX caches the compiled step.
        params: Pytree of arrays that all validation points share.
        x: Training features, `[n, d]`, checked.
        train: Pytree of arrays `[n, ...]`: labels or targets.
        x_val: Validation features, `[m, d]`, checked.
        query: Pytree of NumPy arrays `[m, ...]`: one entry for each validation point.
        metric: Distance.
        reduce: "mean", "max" or None.
        certified: Whether the kernel returns an error bound.
        method: Goes into the result.
        chunk_size: Validation points at a time, or None to choose.
        mesh: Devices to split validation points over, or None.
        axis: Name of the axis of the mesh to split over, or None.
        gather: Whether to return the result whole, or split over the devices.
        progress: Whether to show a bar.
    """
    check_choice("reduce", reduce, ("mean", "max", None))
    given, mesh = mesh, along(mesh, axis)
    devices = n_shards(mesh)
    if not gather:
        _check_split(len(x), devices, given, reduce)
    n, m = len(x), len(x_val)
    (features, queries), source = prepare_exact(x, x_val, metric=metric)
    queries = np.asarray(queries)
    points, asked = (None, None) if source is None else source
    entries = _ENTRIES.get(jax.default_backend(), _ENTRIES_ELSEWHERE)
    rows = chunk_rows(m, n, chunk_size=chunk_size, devices=devices, entries=entries)
    shared = replicate((params, features, _norms(features), points, train), mesh)
    step = partial(_step, kernel=kernel, metric=metric, reduce=reduce, mesh=mesh)
    state = shard(_start(devices, n, reduce, certified), mesh) if reduce else None

    result, every_row = None, []
    chunks = track(
        chunk_slices(m, rows),
        progress=progress,
        label=method.partition("(")[0],
        total=-(-m // rows),
    )
    for chunk in chunks:
        filled = chunk.stop - chunk.start
        # Sent while the devices are at the chunk before; then one chunk at a time.
        used = np.arange(rows) < filled
        part = take_rows((queries, asked, query), chunk, rows)
        here, used = shard((part, used), mesh)
        jax.block_until_ready(result)
        result = step(shared, here, used, state)
        if reduce:
            state = result
        else:
            every_row.append(jax.tree.map(itemgetter(slice(filled)), to_hosts(result)))

    if reduce:
        if gather or mesh is None or given is None:
            values, m2, bound = _finish(to_hosts(state), reduce)
        else:
            split = jax.NamedSharding(mesh, jax.P(AXIS))
            values, m2, bound = _finish_split(split)(state, reduce)
            values, m2, bound = on_axis((values, m2, bound), given, axis)
    else:
        m2 = None
        values, bound = jax.tree.map(
            lambda *parts: jnp.asarray(np.concatenate(parts)), *every_row
        )
    return Values(
        values=values,
        count=jnp.asarray(np.int32(m)),
        m2=m2,
        error_bound=bound,
        method=method,
        reduce=reduce,
        provenance=counted(kernel, params, x, train, x_val, query),
    )


# Compiled, since step by step it would hold the squares of all features.
_norms = jax.jit(squared_norms)


@compiled(
    static_argnames=("kernel", "metric", "reduce", "mesh"),
    donate_argnames=("state",),
)
def _step(
    shared: Any,
    here: Any,
    used: jax.Array,
    state: _Running | None,
    *,
    kernel: Kernel,
    metric: Metric,
    reduce: Reduce,
    mesh: jax.sharding.Mesh | None,
) -> Any:
    """Value one chunk and fold it into the state, or return its rows."""

    def on_device(shared: Any, here: Any, used: jax.Array, state: Any) -> Any:
        params, x, norms, points, train = shared
        queries, asked, query = here
        near = distances(x, queries, metric=metric, norms=norms)
        if points is None:
            exact, axes = None, None
        else:
            exact = _exact(points, asked, norms, queries, metric)
            axes = dataclasses.replace(exact, **BY_QUERY)
            near = repair(near, exact, for_order=getattr(kernel, "orders", False))
        result = jax.vmap(kernel, in_axes=(None, 0, None, 0, axes))(
            params, near, train, query, exact
        )
        return _fold(*result, used, state, reduce) if reduce else result

    if mesh is None:
        return on_device(shared, here, used, state)
    split = jax.P(AXIS)
    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(jax.P(), split, split, split),
        out_specs=split,
        # The compiled operations do not say over which axes their results vary.
        check_vma=False,
    )(shared, here, used, state)


def _exact(
    points: jax.Array,
    asked: jax.Array,
    norms: jax.Array,
    queries: jax.Array,
    metric: Metric,
) -> Exact:
    """Return what settles near ties among the distances of some queries."""
    cosine = metric == "cosine"
    lengths = norms, squared_norms(queries)
    if cosine:  # half the squared difference of unit rows
        lengths = jnp.full_like(lengths[0], 0.5), jnp.full_like(lengths[1], 0.5)
    error, query_error = errors(*lengths, queries.shape[1])
    return Exact(points, asked, error, query_error, cosine)


def _start(devices: int, n: int, reduce: Reduce, certified: bool) -> _Running:
    zeros = np.zeros((devices, n), np.float32)
    return _Running(
        points=zeros[:, 0],
        values=zeros - np.inf if reduce == "max" else zeros,
        m2=zeros if reduce == "mean" else None,
        bound=zeros if certified else None,
    )


def _fold(
    values: jax.Array,
    bound: jax.Array | None,
    used: jax.Array,
    state: _Running,
    reduce: Reduce,
) -> _Running:
    """Fold the `[rows, n]` results of one device into its state, `[1, n]`."""
    count = jnp.sum(used, dtype=jnp.float32)
    if reduce == "max":
        bound = None if bound is None else _row_max(bound, used, state.bound[0])[None]
        top = _row_max(values, used, state.values[0])[None]
        return _Running(state.points + count, top, None, bound)
    # Two passes here and Chan's update across chunks: no cancellation in m2. Sums over
    # rows are matrix products: XLA:CPU walks a reduced first axis column by column,
    # 100 times slower at a million columns.
    share = used / jnp.maximum(count, 1)
    mean = _row_sum(share, values)
    m2 = _row_sum(used.astype(jnp.float32), (values - mean) ** 2)
    total = state.points + count
    weight = (count / jnp.maximum(total, 1))[:, None]
    delta = mean - state.values
    if bound is not None:
        bound = state.bound + (_row_sum(share, bound) - state.bound) * weight
    return _Running(
        total,
        state.values + delta * weight,
        state.m2 + m2 + delta**2 * (state.points[:, None] * weight),
        bound,
    )


def _row_sum(weights: jax.Array, rows: jax.Array) -> jax.Array:
    return jnp.matmul(weights, rows, precision="highest")


def _row_max(rows: jax.Array, used: jax.Array, start: jax.Array) -> jax.Array:
    def fold(best: jax.Array, row: Any) -> tuple[jax.Array, None]:
        values, counts = row
        return jnp.where(counts, jnp.maximum(best, values), best), None

    return lax.scan(fold, start, (rows, used))[0]


def _check_split(
    n: int, devices: int, mesh: jax.sharding.Mesh | None, reduce: Reduce
) -> None:
    """Refuse to leave split what can't be."""
    if mesh is None:
        raise ValueError("gather must be True without a mesh, got False")
    if reduce is None:
        raise ValueError("gather must be True with reduce=None, got False")
    if n % devices:
        raise ValueError(
            f"gather=False needs a number of training points that {devices} devices "
            f"share evenly, got {n}"
        )


@functools.lru_cache(maxsize=16)
def _finish_split(split: jax.NamedSharding) -> Callable[..., Any]:
    """Return `_finish`, whose results stay split over the training points."""
    return jax.jit(_merge_devices, static_argnames=("reduce",), out_shardings=split)


def _merge_devices(
    state: _Running, reduce: Reduce
) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """Merge the devices' states into values, m2 and bound, `[n]` each."""
    count, values, m2, bound = state
    if reduce == "max":
        return values.max(0), None, None if bound is None else bound.max(0)
    share = (count / count.sum())[:, None]
    mean = jnp.sum(share * values, axis=0)
    m2 = jnp.sum(m2 + count[:, None] * (values - mean) ** 2, axis=0)
    return mean, m2, None if bound is None else jnp.sum(share * bound, axis=0)


_finish = compiled(static_argnames=("reduce",))(_merge_devices)
