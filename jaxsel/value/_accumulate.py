"""From one validation point to many: chunks, devices, means and standard errors.

A kernel values the training points for one validation point. Here it is mapped over
chunks of validation points, whose results are folded into a running count, mean and
sum of squared deviations (or a maximum), so that memory is set by the chunk. With a
mesh, validation points are split over the devices; each keeps its own running result,
and these are merged once, at the end. Or training points are split: see `_split`.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import (
    AXIS,
    along,
    gather as to_hosts,
    n_shards,
    on_axis,
    replicate,
    shard,
)
from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import check_choice
from jaxsel._inputs.chunk import chunk_rows, chunk_slices, entries, take_rows
from jaxsel._inputs.owners import check_owners
from jaxsel._inputs.usual_mistakes import doubt_values
from jaxsel._results.types import Provenance, Reduce, Values
from jaxsel._runs.fingerprint import as_float32, fingerprint, sampled
from jaxsel._runs.progress import track
from jaxsel.neighbors import squared_norms
from jaxsel.neighbors._distance import prepare_exact, repaired

from ._options import Options
from ._plan import Kernel, Plan, Running, fold_rows, merge_devices, whole_bounds
from ._split import ByTraining
from ._task import Task


def accumulate(
    kernel: Kernel,
    params: Any,
    task: Task,
    *,
    options: Options,
    certified: bool,
    method: str,
) -> Values:
    """Map a kernel over all validation points and reduce its results.

    Args:
        kernel: Values the training points for one validation point. Hashable: it is
            part of the key under which JAX caches the compiled step.
        params: Pytree of arrays that all validation points share.
        task: Checked training and validation points.
        options: Metric, reduction, memory and devices: see `KnnOptions`.
        certified: Whether the kernel returns an error bound.
        method: Goes into the result.
    """
    x, train, x_val, query, index = task
    metric, reduce, owners = options.metric, options.reduce, options.owners
    split, gather = options.split, options.gather
    check_choice("reduce", reduce, ("mean", "max", None))
    check_choice("split", split, ("validation", "training"))
    full_mesh, axis = options.mesh, options.axis
    mesh, devices = None, 1
    if full_mesh is not None or axis is not None:
        mesh = along(full_mesh, axis)
        devices = n_shards(mesh)
    if split == "training" and mesh is None:
        raise ValueError("split must be 'validation' without a mesh, got 'training'")
    if not gather:
        _check_split(len(x), devices, full_mesh, reduce)
    m, length = len(x_val), len(x)
    if owners is not None:
        if split == "training" or not gather:
            raise ValueError(
                "owners must be None with split='training' or gather=False: sum the "
                "values themselves, by Values.by_owner"
            )
        codes, index = check_owners(owners, len(x))
        length = len(index)
        kernel, params = _Sums(kernel, length), (params, codes)
        method = f"{method[:-1]}, owners={length})"
    plan = Plan(kernel, metric, reduce, certified, options.chunk_size, mesh)
    if mesh is not None and split == "training" and devices > 1:
        layout = ByTraining(plan, mesh, params, x, train, x_val)
    else:
        layout = _ByValidation(plan, devices, params, x, train, x_val, length)
    state, result, every_row = None, None, []
    if reduce:
        state = _start(plan, devices, layout.width)
    chunks: Iterable[slice[int, int]] = chunk_slices(m, layout.rows)
    if options.progress:
        chunks = track(chunks, progress=True, label=method.partition("(")[0])
    for chunk in chunks:
        filled = chunk.stop - chunk.start
        # Sent while the devices are at the chunk before; then one chunk at a time.
        used = np.arange(layout.rows) < filled
        part = take_rows((layout.queries, layout.asked, query), chunk, layout.rows)
        sent = layout.send(part, used)
        jax.block_until_ready(result)
        result = layout.step(sent, state)
        if reduce:
            state = result
        else:
            # Rows go to the host at once: devices hold one chunk of them at most.
            cut = itemgetter((slice(filled), slice(length)))
            every_row.append(jax.tree.map(cut, to_hosts(result)))

    if reduce:
        if gather or mesh is None or full_mesh is None:
            merge = _merge(layout.merge, None)
            gathered = state if mesh is None else to_hosts(state)
            values, m2, bound = merge(gathered, len(x), reduce)
        else:
            merge = _merge(layout.merge, jax.NamedSharding(mesh, jax.P(AXIS)))
            values, m2, bound = on_axis(merge(state, len(x), reduce), full_mesh, axis)
    else:
        m2 = None
        values, bound = jax.tree.map(
            lambda *parts: jnp.asarray(np.concatenate(parts)), *every_row
        )
    if reduce and gather:
        doubt_values(np.asarray(values))
    return Values(
        values=values,
        count=jnp.asarray(np.int32(m)),
        m2=m2,
        error_bound=bound,
        method=method,
        reduce=reduce,
        index=index,
        provenance=_provenance(
            kernel, params, x, train, x_val, query, sample=layout.sample
        ),
    )


def _start(plan: Plan, devices: int, width: int) -> Running:
    """Return the statistics of no points, `width` values on each device."""
    zeros = np.zeros((devices, width), np.float32)
    state = Running(
        points=zeros[:, 0],
        values=zeros - np.inf if plan.reduce == "max" else zeros,
        m2=zeros if plan.reduce == "mean" else None,
        bound=zeros if plan.certified else None,
    )
    return state if plan.mesh is None else shard(state, plan.mesh)


@dataclasses.dataclass(frozen=True)
class _Sums:
    """A kernel with values summed over each owner's points."""

    kernel: Kernel
    count: int

    @property
    def orders(self) -> bool:
        """True if only the order of the distances matters."""
        return getattr(self.kernel, "orders", False)

    def __call__(
        self, params: Any, distances: jax.Array, train: Any, query: Any, exact: Any
    ) -> tuple[jax.Array, jax.Array | None]:
        inner, codes = params
        values, bound = self.kernel(inner, distances, train, query, exact)
        total = partial(jax.ops.segment_sum, num_segments=self.count)
        # By the triangle inequality the sum of bounds is a bound on the sum of values.
        values, bound = whole_bounds(values, bound)
        return total(values, codes), None if bound is None else total(bound, codes)


class _ByValidation:
    """Validation points split over the devices, each of which has all features."""

    sample = None

    def __init__(
        self,
        plan: Plan,
        devices: int,
        params: Any,
        x: np.ndarray | jax.Array,
        train: Any,
        x_val: np.ndarray | jax.Array,
        length: int,
    ) -> None:
        """Replicate the arrays that all validation points share."""
        self._plan, self.width = plan, length
        (features, queries), source = prepare_exact(x, x_val, metric=plan.metric)
        self.queries = np.asarray(queries)
        points, self.asked = (None, None) if source is None else source
        self.rows = chunk_rows(
            len(x_val),
            len(x),
            chunk_size=plan.chunk_size,
            devices=devices,
            entries=entries(),
        )
        shared: Any = params, features, _norms(features), points, train
        mesh = plan.mesh
        shared = jax.device_put(shared) if mesh is None else replicate(shared, mesh)
        self.step = partial(_step, shared, plan=plan)
        # The CPU takes NumPy arrays as they are, in a third of the time.
        self._stays = mesh is None and jax.default_backend() == "cpu"

    def send(self, part: Any, used: np.ndarray) -> Any:
        return (part, used) if self._stays else shard((part, used), self._plan.mesh)

    @staticmethod
    def merge(state: Running, n: int, reduce: Reduce) -> Any:
        del n
        return merge_devices(state, reduce)


@functools.lru_cache(maxsize=16)
def _merge(
    merge: Callable[..., Any], sharding: jax.NamedSharding | None
) -> Callable[..., Any]:
    """Compile a layout's `merge`, with its results sharded or replicated."""
    return jax.jit(merge, static_argnums=(1, 2), out_shardings=sharding)


# Compiled, since step by step it would hold the squares of all features.
_norms = jax.jit(squared_norms)


# Donated: without that the running results would be in memory twice.
@jit(static_argnames=("plan",), donate_argnames=("state",))
def _step(shared: Any, sent: Any, state: Running | None, *, plan: Plan) -> Any:
    """Value one chunk and fold it into the state, or return its rows."""
    chunk, used = sent

    def on_device(shared: Any, chunk: Any, used: jax.Array, state: Any) -> Any:
        params, x, norms, points, train = shared
        queries, asked, query = chunk
        near, exact, axes = repaired(
            x,
            queries,
            metric=plan.metric,
            norms=norms,
            points=points,
            asked=asked,
            for_order=getattr(plan.kernel, "orders", False),
        )
        result = jax.vmap(plan.kernel, in_axes=(None, 0, None, 0, axes))(
            params, near, train, query, exact
        )
        if plan.reduce:
            values, bound = result
            return fold_rows(values, bound, used, state, plan.reduce)
        return whole_bounds(*result)

    if plan.mesh is None:
        return on_device(shared, chunk, used, state)
    split = jax.P(AXIS)
    return jax.shard_map(
        on_device,
        mesh=plan.mesh,
        in_specs=(jax.P(), split, split, split),
        out_specs=split,
        # The compiled operations do not say over which axes their results vary.
        check_vma=False,
    )(shared, chunk, used, state)


def _check_split(
    n: int, devices: int, mesh: jax.sharding.Mesh | None, reduce: Reduce
) -> None:
    """Raise if the result cannot stay sharded."""
    if mesh is None:
        raise ValueError("gather must be True without a mesh, got False")
    if reduce is None:
        raise ValueError("gather must be True with reduce=None, got False")
    if n % devices:
        raise ValueError(
            f"gather=False needs a number of training points that {devices} devices "
            f"share evenly, got {n}"
        )


def _provenance(
    kernel: Any,
    params: Any,
    x: Any,
    train: Any,
    x_val: Any,
    query: Any,
    *,
    sample: np.ndarray | None = None,
) -> Provenance:
    """Return digests of the kernel, training data and validation points, to merge by.

    Args:
        kernel: The kernel, with functions among its fields.
        params: Arrays that all validation points share.
        x: Training features, `[n, d]`, of which about 1024 rows are looked at.
        train: Their labels or targets.
        x_val: Validation features, `[m, d]`.
        query: Their labels or targets.
        sample: `sampled(x)`, of features that are spread over devices.
    """
    labels = list(map(_canonical, jax.tree.leaves(train)))
    source = {
        "function, options or weights": fingerprint(kernel, jax.tree.leaves(params)),
        "x": fingerprint(x.shape, sampled(x) if sample is None else sample),
        "y": fingerprint(labels),
    }
    points = fingerprint(as_float32(x_val), jax.tree.leaves(query))
    return Provenance(source, (f"{len(x_val)} validation points {points}",))


def _canonical(labels: Any) -> np.ndarray:
    """Return codes of classes numbered anew.

    They were numbered together with the validation points, which may have more.
    """
    labels = np.asarray(labels)
    if labels.dtype.kind != "i" or labels.ndim != 1:
        return labels
    return (np.cumsum(np.bincount(labels) > 0) - 1)[labels]
