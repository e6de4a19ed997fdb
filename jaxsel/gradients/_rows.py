"""Maps and sums over examples, some rows at a time, within one compiled loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from jaxsel._devices.typed import fori_loop, pcast, tree_map
from jaxsel._inputs.checks import check_count

_T = TypeVar("_T")

# Numbers held for one chunk: on a CPU about a cache's worth (measured: larger chunks
# slow convolutions down by a half), elsewhere enough to fill the device.
_ENTRIES = {"cpu": 4_000_000}
_ENTRIES_ELSEWHERE = 64_000_000
_MIN_ROWS = 8


def n_rows(examples: Any) -> int:
    return jax.tree.leaves(examples)[0].shape[0]


def rows_of(
    examples: Any, per_example: int, chunk_size: int | None, *, factor: int = 1
) -> int:
    """Choose how many examples are computed at once; chunks come out about even.

    Args:
        examples: All of them.
        per_example: Numbers that one example needs in memory.
        chunk_size: The caller's choice, or None.
        factor: How many times the usual memory to use.
    """
    n = n_rows(examples)
    if chunk_size is None:
        entries = factor * _ENTRIES.get(jax.default_backend(), _ENTRIES_ELSEWHERE)
        chunk_size = max(_MIN_ROWS, entries // max(1, per_example))
    # Rounded to even chunks, for the last one computes again as many rows as it lacks.
    return -(-n // -(-n // min(chunk_size, n)))


def check_chunk_size(chunk_size: int | None) -> int | None:
    return None if chunk_size is None else check_count("chunk_size", chunk_size)


def vary(tree: _T, like: Any) -> _T:
    """Mark arrays as different on each device if others are, under `jax.shard_map`.

    The derivative by a replicated array is summed over devices, but a sample's gradient
    belongs to its own device alone.
    """
    axes: frozenset[str] = frozenset()
    axes = axes.union(*map(_varying, jax.tree.leaves(like)))

    def mark(array: jax.Array) -> jax.Array:
        missing = tuple(axes - _varying(array))
        return pcast(array, missing, to="varying") if missing else array

    return tree_map(mark, tree) if axes else tree


def _varying(array: Any) -> frozenset[str]:
    kind = array if isinstance(array, jax.ShapeDtypeStruct) else jax.typeof(array)
    manual = getattr(kind, "manual_axis_type", None)
    return frozenset() if manual is None else manual.varying


def map_rows(function: Callable[[Any], Any], examples: Any, rows: int) -> Any:
    """Map `[rows, ...] -> [rows, ...]` over examples `[n, ...]`, chunk by chunk.

    The last chunk starts early enough to be whole: its first results are computed
    twice, and no array is padded.
    """
    n = n_rows(examples)
    if rows == n:
        return function(examples)
    shapes = jax.eval_shape(function, _cut(examples, 0, rows))
    out = jax.tree.map(functools.partial(_nothing, rows=n), shapes)

    def body(chunk: jax.Array, out: Any) -> Any:
        start = jnp.minimum(chunk * rows, n - rows)
        return tree_map(
            lambda whole, part: lax.dynamic_update_slice_in_dim(whole, part, start, 0),
            out,
            function(_cut(examples, start, rows)),
        )

    return fori_loop(0, -(-n // rows), body, out)


def sum_rows(
    function: Callable[[Any, jax.Array], Any],
    examples: Any,
    weights: jax.Array,
    rows: int,
) -> Any:
    """Sum `function(examples [rows, ...], weights [rows])` over chunks."""
    n = n_rows(examples)
    if rows == n:
        return function(examples, weights)
    shapes = jax.eval_shape(function, _cut(examples, 0, rows), weights[:rows])
    total = jax.tree.map(_nothing, shapes)

    def body(chunk: jax.Array, total: Any) -> Any:
        start = jnp.minimum(chunk * rows, n - rows)
        # The last chunk must not count again what it shares with the one before.
        new = start + jnp.arange(rows) >= chunk * rows
        part = jnp.where(new, lax.dynamic_slice_in_dim(weights, start, rows), 0)
        return jax.tree.map(jnp.add, total, function(_cut(examples, start, rows), part))

    return fori_loop(0, -(-n // rows), body, total)


def _nothing(like: jax.ShapeDtypeStruct, rows: int | None = None) -> jax.Array:
    """Return zeros to write results to, or to add them to, for a number of rows."""
    shape = like.shape if rows is None else (rows, *like.shape[1:])
    # A loop's carry keeps its type, and with it the axes over which it varies.
    return vary(jnp.zeros(shape, like.dtype), like)


def _cut(examples: Any, start: jax.Array | int, rows: int) -> Any:
    return tree_map(
        lambda array: lax.dynamic_slice_in_dim(array, start, rows, 0), examples
    )
