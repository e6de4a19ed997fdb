"""Static configuration of a chunk's compiled step, and its running statistics."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsel._results.types import Reduce
from jaxsel.neighbors import Exact, Metric

Split = Literal["validation", "training"]

# (params, distances [n], train, query, `Exact` to settle near ties, or None)
# -> (values [n], error bound [n], or [1] for all of them, or None)
Kernel = Callable[
    [Any, jax.Array, Any, Any, Exact | None], tuple[jax.Array, jax.Array | None]
]


class Plan(NamedTuple):
    """The key under which a step is compiled; see `accumulate`."""

    kernel: Kernel
    metric: Metric
    reduce: Reduce
    certified: bool
    chunk_size: int | None
    mesh: jax.sharding.Mesh | None


class Running(NamedTuple):
    """Running statistics of each device, `[devices, n]` each."""

    points: Any  # [devices]: how many validation points
    values: Any  # their mean, or maximum
    m2: Any  # as in Values; None for a maximum
    bound: Any  # as in Values, or None


def whole_bounds(
    values: jax.Array, bound: jax.Array | None
) -> tuple[jax.Array, jax.Array | None]:
    """Give each value its bound, where one holds for all values of a row."""
    return values, None if bound is None else jnp.broadcast_to(bound, values.shape)


def fold_rows(
    values: jax.Array,
    bound: jax.Array | None,
    used: jax.Array,
    state: Running,
    reduce: Reduce,
) -> Running:
    """Fold the `[rows, n]` results of one device into its state, `[1, n]`."""
    count = jnp.sum(used, dtype=jnp.float32)
    if reduce == "max":
        bound = None if bound is None else _row_max(bound, used, state.bound[0])[None]
        top = _row_max(values, used, state.values[0])[None]
        return Running(state.points + count, top, None, bound)
    # Two passes here and Chan's update across chunks: no cancellation in m2. Sums over
    # rows are matrix products: XLA:CPU walks a reduced first axis column by column,
    # 100 times slower at a million columns.
    used = used.astype(jnp.float32)
    share = used / jnp.maximum(count, 1)
    mean = _row_sum(share, values)[None]
    m2 = _row_sum(used, (values - mean) ** 2)[None]
    total = state.points + count
    weight = (count / jnp.maximum(total, 1))[:, None]
    delta = mean - state.values
    if bound is not None:
        bound = state.bound + (_row_sum(share, bound)[None] - state.bound) * weight
    return Running(
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

    # Row by row, for the same reason as the matrix products in `fold_rows`.
    return lax.scan(fold, start, (rows, used))[0]


def merge_devices(
    state: Running, reduce: Reduce
) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """Merge the devices' states into values, m2 and bound, `[n]` each."""
    count, values, m2, bound = state
    if reduce == "max":
        return values.max(0), None, None if bound is None else bound.max(0)
    share = (count / count.sum())[:, None]
    mean = jnp.sum(share * values, axis=0)
    # Chan's update of all at once: squared deviations from the joint mean never cancel.
    m2 = jnp.sum(m2 + count[:, None] * (values - mean[None]) ** 2, axis=0)
    return mean, m2, None if bound is None else jnp.sum(share * bound, axis=0)
