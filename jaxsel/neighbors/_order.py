"""The order of training points by distance, the costliest step of every KNN value.

There are three ways to sort a row of n distances stably, and each platform has one that
is far faster than the others (measured in benchmarks/bench_knn.py):

- "native": a compiled radix sort (CPU only, where it was built);
- "packed": one 64-bit key, distance bits above the index, on which XLA's CPU sort needs
  no payload: 4 times faster there than sorting pairs;
- "pairs": a 32-bit key with the index as payload, which XLA hands to a radix sort on
  GPUs (of many rows at once: of few it sorts by comparisons). A 16-bit index, where it
  suffices, takes a quarter of the time off.
"""

import os
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Int32, Real, Shaped

from jaxsel import _native
from jaxsel._devices.platform import on_platform, scatter_index, take
from jaxsel._devices.typed import platform_dependent
from jaxsel._inputs.checks import check_choice, check_row

from ._exact import Exact, nearest, settle
from ._ranks import settle_ranks
from ._select import smallest

# From which k on `top_k` goes by digits where the compiled operations do not serve it;
# never if 0. It is off until somebody has measured it on a GPU: see benchmarks.
_DIGITS_FROM = int(os.environ.get("JAXSEL_DIGITS_FROM", "0"))

Sort = Literal["auto", "native", "packed", "pairs"]
SORTS = ("auto", "native", "packed", "pairs")


def argsort(
    distances: Real[jax.Array, " n"], *, sort: Sort = "auto"
) -> Int32[jax.Array, " n"]:
    """Return the stable order of one row of distances: a pure kernel.

    Equal distances are ordered by index. Distances are compared as float32.

    Args:
        distances: Array of shape `[n]`, none of them negative.
        sort: How to sort; "auto" takes the fastest way on the platform it runs on.

    Returns:
        Array of shape `[n]`, int32: the nearest point first.

    Raises:
        ValueError: If `sort` is unknown, "native" was not built, or the distances are
            not one row.
    """
    check_sort(sort)
    check_row("distances", distances)
    # An order has no derivative, and no operation here has a rule for one.
    distances = lax.stop_gradient(distances.astype(jnp.float32))
    if sort == "auto":
        return on_platform(_sort_cpu, _sort_pairs, distances)
    ways = {"native": _native.argsort, "packed": _sort_packed, "pairs": _sort_pairs}
    return ways[sort](distances)


def check_sort(sort: Sort) -> None:
    """Raise if `sort` is unknown, or not available here."""
    check_choice("sort", sort, SORTS)
    if sort == "native" and not _native.available():
        raise ValueError(
            "sort='native' needs the compiled operations, which were not built when "
            "jaxsel was installed: use sort='auto'"
        )


def settled_argsort(
    distances: jax.Array,
    gains: jax.Array,
    drop: jax.Array,
    *,
    exact: Exact | None,
    sort: Sort = "auto",
) -> jax.Array:
    """Return the order of one row, with near ties settled where they matter.

    Args:
        distances: Array of shape `[n]`, not negative.
        gains: Array of shape `[n]`: contribution of each point as a neighbour.
        drop: Array of shape `[n]`: how much less each rank weighs than the one before.
        exact: Exact features that settle near ties; None takes the distances as they
            are.
        sort: How to sort; see `argsort`.
    """

    def sorted_(distances: Any, gains: Any, drop: Any, exact: Any) -> jax.Array:
        order = argsort(distances, sort=sort)
        near = take(distances, order)
        return settle(near, order, take(gains, order), drop, exact)[1]

    check_sort(sort)
    if exact is None:
        return argsort(distances, sort=sort)
    rows = distances.astype(jnp.float32), gains.astype(jnp.float32)
    rows, drop = lax.stop_gradient((rows, drop.astype(jnp.float32)))
    if exact.axis is not None:
        return ranked(*rows, drop, exact=exact, sort=sort, with_near=False)[0]
    if sort == "native" or (sort == "auto" and _native.available()):
        return on_platform(_native.order, sorted_, *rows, drop, exact)
    return sorted_(*rows, drop, exact)


def ranked(
    distances: jax.Array,
    gains: jax.Array,
    drop: jax.Array,
    *,
    exact: Exact,
    sort: Sort,
    with_near: bool,
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
    """Return the order of one row, with its features on several devices.

    Also return the sorted distances, and whether ranks are left open: `settle_ranks`.

    Args:
        distances: Array of shape `[n]`, float32.
        gains: Array of shape `[n]`, float32.
        drop: Array of shape `[n]`, float32.
        exact: Exact features that settle near ties; it has an axis.
        sort: How to sort; see `argsort`.
        with_near: Whether to return the distances in that order, too.
    """
    order = argsort(distances, sort=sort)
    return settle_ranks(order, distances, gains, drop, exact, with_near=with_near)


def top_k(
    distances: Real[jax.Array, " n"], k: int, *, exact: Exact | None = None
) -> tuple[Real[jax.Array, " {k}"], Int32[jax.Array, " {k}"]]:
    """Return the k nearest points of one row, nearest first: a pure kernel.

    Equal distances are ordered by index.

    Args:
        distances: Array of shape `[n]`.
        k: How many, at most n.
        exact: Exact features that settle near ties; None takes the distances as they
            are.

    Returns:
        Their distances and their indices (int32), each `[k]`.

    Raises:
        ValueError: If k is not from 0 to n, or the distances are not one row.
    """
    (n,) = check_row("distances", distances)
    if not 0 <= k <= n:
        raise ValueError(f"k must be from 0 to n = {n}, got {k}")
    if exact is not None and exact.axis is not None:
        return nearest(distances, k, exact, top_k)
    if distances.dtype != jnp.float32 or not _native.available():
        return _nearest(distances, exact, k)

    def native(distances: jax.Array, exact: Any) -> tuple[jax.Array, jax.Array]:
        return _native.smallest(distances, exact, k)

    def other(distances: jax.Array, exact: Any) -> tuple[jax.Array, jax.Array]:
        return _nearest(distances, exact, k)

    return on_platform(native, other, distances, exact)


def unsort(
    order: Int32[jax.Array, " n"], values: Shaped[jax.Array, " n"]
) -> Shaped[jax.Array, " n"]:
    """Scatter sorted values back to the order of the points: a pure kernel.

    Args:
        order: Array of shape `[n]`, int32: `argsort`'s.
        values: Array of shape `[n]`: the nearest point's first.

    Returns:
        Array of shape `[n]`: the first point's first.
    """
    return (
        jnp.zeros_like(values)
        .at[scatter_index(order)]
        .set(values, mode="promise_in_bounds", unique_indices=True)
    )


def _sort_cpu(distances: jax.Array) -> jax.Array:
    return (_native.argsort if _native.available() else _sort_packed)(distances)


def _bits(distances: jax.Array) -> jax.Array:
    """Return integers in the order of the distances: -0 is 0."""
    # IEEE floats without a sign order as their bits do, denormals included.
    return lax.bitcast_convert_type(distances, jnp.uint32) & jnp.uint32(0x7FFFFFFF)


def _sort_packed(distances: jax.Array) -> jax.Array:
    with jax.enable_x64(True):
        bits = _bits(distances)
        index = lax.iota(jnp.uint64, distances.shape[0])
        # No two keys are equal, so that the order is stable without `is_stable`.
        key = lax.sort(bits.astype(jnp.uint64) << 32 | index, is_stable=False)
        return key.astype(jnp.uint32).astype(jnp.int32)


def _sort_pairs(distances: jax.Array) -> jax.Array:
    wide = partial(_sort_with, index_type=jnp.int32)
    if distances.shape[0] > 2**16:
        return wide(distances)
    short = partial(_sort_with, index_type=jnp.uint16)
    return platform_dependent(distances, cuda=short, default=wide)


def _sort_with(distances: jax.Array, index_type: Any) -> jax.Array:
    bits = _bits(distances)
    index = lax.iota(index_type, distances.shape[0])
    return lax.sort((bits, index), num_keys=1, is_stable=True)[1].astype(jnp.int32)


def _nearest(
    distances: jax.Array, exact: Exact | None, k: int
) -> tuple[jax.Array, jax.Array]:
    if exact is None:
        return _top_k(distances, k)
    return nearest(distances, k, exact, _top_k)


def _top_k(distances: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    if _DIGITS_FROM and k >= _DIGITS_FROM and distances.dtype == jnp.float32:
        return smallest(distances, k)
    top, index = lax.top_k(-distances, k)
    # Without barriers XLA's CPU compiler sorts everything once a caller slices this;
    # with one barrier over both it crashes inside shard_map (jax 0.10 and 0.11).
    return -lax.optimization_barrier(top), lax.optimization_barrier(index)
