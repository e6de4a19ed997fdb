"""Right sides of an influence, and scores of the solutions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from ._recipe import Output, Recipe

FEW = 50
"""Targets up to which forward-mode passes take less time than written gradients."""

_NUMBERS = 2**25  # of samples' gradients that are in memory at once
# Samples at least: with fewer, a product with the solutions takes the time of reading
# these, which are more numbers than 16 samples' gradients. With 64 it takes two thirds
# of the time, for half of the solutions' memory at most.
_LEAST, _ENOUGH = 16, 64
_BYTES = 2**34  # of memory, where the system does not tell
_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


def target_gradients(
    recipe: Recipe,
    params: Any,
    x_val: jax.Array,
    y_val: jax.Array,
    output: Output,
    *,
    of_mean: bool,
) -> jax.Array:
    """Return the gradient of each target's output, `[t, P]`, or the mean, `[1, P]`."""
    flat, unravel = ravel_pytree(params)

    def measured(flat: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return recipe.measure(output, recipe.apply(unravel(flat), x[None]), y[None])[0]

    def gradient(target: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jax.grad(measured)(flat, *target)

    if not of_mean:
        return jax.lax.map(gradient, (x_val, y_val))
    total, _ = jax.lax.scan(
        lambda total, target: (total + gradient(target), None),
        jnp.zeros_like(flat),
        (x_val, y_val),
    )
    return total[None] / y_val.shape[0]


def rows_at_once(size: int, targets: int) -> int:
    """Return how many samples' gradients of `size` numbers are in memory at once.

    Args:
        size: Numbers of a gradient, and of a solution.
        targets: Solutions that are in memory.
    """
    return max(_NUMBERS // size, _LEAST, min(_ENOUGH, targets // 2 // 16 * 16))


def over_targets(
    kernel: Callable[[jax.Array, jax.Array], Any],
    x_val: jax.Array,
    y_val: jax.Array,
    size: int,
) -> Any:
    """Apply a kernel to one block of targets after the other.

    Args:
        kernel: From targets `[b, ...]` and their labels to arrays `[b, ...]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        size: Bytes that the kernel keeps of a target: those of a block fit into a
            fourth of the device's memory, or a third of the host's.

    Returns:
        The kernel's arrays, of all targets.
    """
    count = y_val.shape[0]
    blocks = -(-count // max(_room() // size, 1))
    if blocks == 1:
        return kernel(x_val, y_val)
    # The last block is filled up with targets from the start.
    rows = jnp.arange(count + -count % blocks) % count
    rows = rows.reshape(blocks, -1)
    parts = jax.lax.map(lambda rows: kernel(x_val[rows], y_val[rows]), rows)
    return jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:])[:count], parts)


def _room() -> int:
    """Return how many bytes solutions may take."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] // 4
    memory = _BYTES
    with contextlib.suppress(AttributeError, ValueError):  # such as on Windows
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # "max" where there is none
        memory = min(memory, int(_LIMIT.read_text()))
    return memory // 3


def by_batches(
    scores: Callable[[jax.Array, jax.Array], jax.Array],
    x: jax.Array,
    y: jax.Array,
    size: int,
) -> jax.Array:
    """Apply a function to batches of samples, and join its scores, `[t, samples]`.

    The function multiplies with the solutions from the left. Under `jax.vmap` they may
    be on the right, where XLA's products on CPUs take up to six times as long.

    Args:
        scores: From samples `[b, ...]` and their labels to `[t, b]`.
        x: Samples, `[c, ...]`.
        y: Their labels or targets, `[c]`.
        size: Samples in a batch, at most.
    """
    count = y.shape[0]
    if size >= count:
        return scores(x, y)
    # The last batch is filled up with samples from the start.
    rows = (jnp.arange(count + -count % size) % count).reshape(-1, size)
    parts = jax.lax.map(lambda rows: scores(x[rows], y[rows]), rows)
    return jnp.moveaxis(parts, 1, 0).reshape(parts.shape[1], -1)[:, :count]


def solution_scores(
    recipe: Recipe, params: Any, chunks: tuple[jax.Array, ...], solution: jax.Array
) -> jax.Array:
    """Return products of solutions `[t, P]` with samples' gradients, `[t, samples]`.

    Args:
        recipe: The model and its loss.
        params: Trained parameters.
        chunks: Samples as of `chunks_of`, and so in the result, with those that fill up
            the last chunk.
        solution: One row a target. For few targets each costs a forward-mode pass over
            all samples; for more, samples' gradients are written out and multiplied,
            which takes `P` multiplications a pair and a backward pass a sample.
    """
    flat, unravel = ravel_pytree(params)

    def losses(flat: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return recipe.losses(recipe.apply(unravel(flat), x), y)

    def loss(flat: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return losses(flat, x[None], y[None])[0]

    def of_batch(x: jax.Array, y: jax.Array) -> jax.Array:
        rows = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(flat, x, y)
        return jnp.matmul(solution, rows.T, precision="highest")

    def of_chunk(chunk: Any) -> jax.Array:
        x, y, _ = chunk
        if len(solution) > FEW:
            size = rows_at_once(flat.size, len(solution))
            return by_batches(of_batch, x, y, size)
        _, along = jax.linearize(lambda flat: losses(flat, x, y), flat)
        return jax.vmap(along)(solution)

    parts = jax.lax.map(of_chunk, chunks)
    return jnp.moveaxis(parts, 1, 0).reshape(len(solution), -1)
