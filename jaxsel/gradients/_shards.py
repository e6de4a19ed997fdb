"""Arrays split over devices or processes, which stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxsel._devices.mesh import automatic, gather, replicate
from jaxsel._devices.typed import jit, psum, tree_map
from jaxsel._inputs.checks import check_features, check_numeric, float_type, to_float

Shards = tuple[jax.sharding.Mesh, Any]
"""A mesh, and the axis or axes of it over which rows are split."""


def is_spread(value: Any) -> bool:
    """Return whether an array lies on several devices of a mesh."""
    if not isinstance(value, jax.Array) or isinstance(value, Tracer):
        return False
    sharding: Any = value.sharding
    return isinstance(sharding, jax.NamedSharding) and sharding.num_devices > 1


def finite_rows(name: str, value: Any) -> jax.Array:
    """Return finite rows `[n, d]` of `float_type`; a split array stays split.

    Raises:
        TypeError: As `check_features`.
        ValueError: As `check_features`, in every process.
    """
    if not is_spread(value):
        return to_float(check_features(name, value))
    value = automatic(value)
    check_numeric(name, value)
    if value.ndim != 2 or 0 in value.shape:
        check_features(name, np.empty(value.shape, np.int8))  # which refuses the shape
    if jnp.issubdtype(value.dtype, jnp.floating):
        first, count = map(int, gather(_wrong_rows(value)))
        if count:
            raise ValueError(
                f"{name} must be finite, but row {first} has NaN or infinity "
                f"({count} of {len(value)} rows do): fill these in, or leave them out"
            )
    return _as_type(value, float_type(value))


@jit()
def _wrong_rows(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    wrong = ~jnp.isfinite(rows).all(axis=1)
    return jnp.argmax(wrong), jnp.sum(wrong, dtype=jnp.int32)


@jit(static_argnums=1)
def _as_type(array: jax.Array, dtype: Any) -> jax.Array:
    return array.astype(dtype)


def split_rows(tree: Any) -> tuple[Any, Shards | None]:
    """Return arrays split alike by their first axis, if one of them is, and the split.

    Nothing moves, but for arrays that are split otherwise than the first that is split
    by rows. Within `jit`, and where no array is split, all stay as they are.
    """
    leaves = jax.tree.leaves(tree)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return tree, None

    def plain(leaf: jax.Array) -> jax.Array:
        return automatic(leaf) if is_spread(leaf) else leaf

    tree = tree_map(plain, tree)
    splits = [shards for leaf in jax.tree.leaves(tree) if (shards := shards_of(leaf))]
    if not splits:
        return tree, None
    return tree_map(lambda leaf: _like(leaf, *splits[0]), tree), splits[0]


def shards_of(tree: Any) -> Shards | None:
    """Return how the arrays of `split_rows` are split; None within `jit`."""
    leaf = jax.tree.leaves(tree)[0]
    if not (is_spread(leaf) and len(leaf.sharding.spec) and leaf.sharding.spec[0]):
        return None
    return leaf.sharding.mesh, leaf.sharding.spec[0]


def beside(array: np.ndarray, like: jax.Array) -> jax.Array:
    """Split a replicated host array by rows, as `like` is split."""
    if not is_spread(like):
        return jnp.asarray(array)
    sharding: Any = like.sharding
    return _like(array, sharding.mesh, sharding.spec[0] if sharding.spec else None)


def _like(array: Any, mesh: jax.sharding.Mesh, axes: Any) -> jax.Array:
    sharding = jax.NamedSharding(mesh, jax.P(axes))
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return jax.device_put(array, sharding)
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    array = np.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)


def by_shards(
    function: Callable[..., Any],
    shards: Shards | None,
    *,
    rows: int,
    total: bool = False,
) -> Callable[..., Any]:
    """Return a function that runs on each device's rows: `shard_map`, if split.

    Args:
        function: Of arrays, all but the last `rows` of them the same on all devices.
        shards: How rows are split; None if they are not.
        rows: How many arguments, the last ones, have a row a candidate.
        total: Whether results are summed over devices; else they are rows.
    """
    if shards is None:
        return function
    mesh, axes = shards

    def run(*arguments: Any) -> Any:
        def on_shard(*arguments: Any) -> Any:
            result = function(*arguments)
            return psum(result, axes) if total else result

        same = len(arguments) - rows
        across: Any = jax.shard_map(
            on_shard,
            mesh=mesh,
            in_specs=(jax.P(),) * same + (jax.P(axes),) * rows,
            out_specs=jax.P() if total else jax.P(axes),
            check_vma=False,
        )
        return across(*arguments)

    return run


def everywhere(tree: Any, shards: Shards | None) -> Any:
    """Replicate arrays over the devices of the split; leave them if there is none."""
    return tree if shards is None else replicate(tree, shards[0])
