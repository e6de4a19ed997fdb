"""Training points split over the devices of a mesh, validation points replicated.

For a chunk of validation points each device computes the distances to its own training
points. An all-to-all makes of these whole rows, of its share of the chunk, which it
values as any device does. A second one brings the values back to the devices whose
points they are of, and these keep the running results. No device has the features of
others, nor a result of all points.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import AXIS, aligned, n_shards, replicate, shard
from jaxsel._devices.typed import jit, psum, tree_map
from jaxsel._inputs.chunk import chunk_rows, entries
from jaxsel._results.types import Reduce
from jaxsel.neighbors._parts import ROWS, columns_of, rows_of, split_features

from ._plan import Plan, Running, fold_rows, whole_bounds


class ByTraining:
    """Training points split over the devices: see the module's text."""

    def __init__(
        self,
        plan: Plan,
        mesh: jax.sharding.Mesh,
        params: Any,
        x: np.ndarray | jax.Array,
        train: Any,
        x_val: np.ndarray | jax.Array,
    ) -> None:
        """Shard the features over the devices, and replicate the labels."""
        n, devices = len(x), n_shards(mesh)
        self._plan, self._mesh = plan, mesh
        self._parts = split_features(x, x_val, metric=plan.metric, mesh=mesh)
        self.queries, self.asked = self._parts.queries, self._parts.asked
        self.sample, self.width = self._parts.sample, self._parts.share
        # A row of all points for each device and chunk is the least there can be.
        most = max(1, entries() // n) * devices
        self.rows = chunk_rows(
            len(x_val),
            n,
            chunk_size=plan.chunk_size or most,
            devices=devices,
            entries=entries(),
        )
        self._shared = _everywhere((params, train, self._parts.error), mesh)
        self._parts = dataclasses.replace(self._parts, error=None)  # it may be a copy

    def send(self, part: Any, used: np.ndarray) -> Any:
        queries, asked, query = part
        everyone = replicate((queries, asked, used), self._mesh)
        return everyone, shard(query, self._mesh)

    def step(self, sent: Any, state: Any) -> Any:
        everyone, sharded = sent
        step = partial(_step, self._shared, self._parts.own, everyone, sharded)
        thorough = not getattr(self._plan.kernel, "marks", False)
        result, again = step(state, plan=self._plan, thorough=thorough)
        if not thorough and bool(again):
            state = result if self._plan.reduce else None
            result, _ = step(state, plan=self._plan, thorough=True)
        return result

    @staticmethod
    def merge(state: Running, n: int, reduce: Reduce) -> Any:
        del reduce
        moments = state.values, state.m2, state.bound

        def flat(array: jax.Array) -> jax.Array:
            return array.reshape(-1)[:n]

        return tree_map(flat, moments)


def _everywhere(tree: Any, mesh: jax.sharding.Mesh) -> Any:
    """Put a copy of every array on every device; CPU devices of a process share one."""

    def on_host(array: Any) -> np.ndarray:
        # A view of one of several copies would keep them all.
        several = isinstance(array, jax.Array) and array.sharding.num_devices > 1
        return aligned(np.array(array) if several else np.asarray(array))

    if mesh.devices.flat[0].platform == "cpu":
        tree = jax.tree.map(on_host, tree)
    return replicate(tree, mesh)


@jit(static_argnames=("plan", "thorough"), donate_argnames=("state",))
def _step(
    shared: Any,
    part: Any,
    everyone: Any,
    sharded: Any,
    state: Running | None,
    *,
    plan: Plan,
    thorough: bool,
) -> tuple[Any, jax.Array]:
    """Value one chunk and fold it into the state, or return its columns.

    Also return whether the chunk must be repeated with `thorough=True`, the state being
    unchanged: the order of points behind the nearest thousands is hardly ever open
    where it matters, and settling it takes three times the memory.
    """
    decide = getattr(plan.kernel, "decide", None)

    def on_device(
        shared: Any, part: Any, everyone: Any, sharded: Any, state: Any
    ) -> Any:
        params, train, error = shared
        queries, asked, used = everyone
        n = len(jax.tree.leaves(train)[0])
        near, exact, axes = rows_of(
            part,
            error,
            queries,
            asked,
            n=n,
            metric=plan.metric,
            thorough=thorough,
            decide=None if decide is None else partial(decide, params),
        )
        kernel = jax.vmap(plan.kernel, in_axes=(None, 0, None, 0, axes), axis_name=ROWS)
        result = whole_bounds(*kernel(params, near, train, sharded, exact))
        again = jnp.zeros((), bool)
        if not thorough:
            marked = jnp.any(jnp.isnan(result[0][:, 0]))
            # All devices must agree, since the step exchanges rows among them.
            again = psum(marked.astype(jnp.int32), AXIS) > 0
        share = len(part[0])
        result = tree_map(partial(columns_of, share=share), result)
        if plan.reduce:
            values, bound = result
            folded = fold_rows(values, bound, used, state, plan.reduce)
            # The state is donated: if the chunk is repeated, return it unchanged.
            keep = partial(jnp.where, again)
            return jax.tree.map(keep, state, folded), again
        return result, again

    split, replicated = jax.P(AXIS), jax.P()
    return jax.shard_map(
        on_device,
        mesh=plan.mesh,
        in_specs=(replicated, split, replicated, split, split),
        out_specs=(split if plan.reduce else jax.P(None, AXIS), replicated),
        # The compiled operations do not say over which axes their results vary.
        check_vma=False,
    )(shared, part, everyone, sharded, state)
