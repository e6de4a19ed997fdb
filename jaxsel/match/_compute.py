"""Pursuit as one compiled program, with shapes rounded up to serve many sizes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import AXIS, replicate, shard
from jaxsel._devices.typed import jit, tree_map
from jaxsel.gradients import Gradient, Oracle

from ._inputs import one_of
from ._pursue import pursue
from ._resident import Mesh, Resident, by_shards, parts_of, rounded, to_hosts
from ._types import Match

# Columns of one request, where candidates take more bytes than caches hold.
_MANY, _LARGE = 8, 16_000_000
# Largest number of candidates that is rounded up, so that pools of many sizes
# share a program; copying more would cost more than it saves.
_ROUND = 8192
# Entries of all columns of the targets that are matched in one program.
_ENTRIES = 50_000_000

_STATIC = ("budget", "positive", "score", "many")
_pursue: Callable[..., Match] = jax.jit(pursue, static_argnames=_STATIC)


@jit(static_argnames=_STATIC)
def _pursue_all(oracle: Oracle, targets: Gradient, **options: Any) -> Match:
    return jax.vmap(functools.partial(pursue, oracle, **options))(targets)


def compute(
    oracle: Any,
    target: Gradient,
    *,
    several: bool,
    size: int,
    extra: np.ndarray,
    valid: np.ndarray,
    mesh: Mesh | None,
    **options: Any,
) -> Match:
    """Match candidates in memory, or on the devices of a mesh.

    Args:
        oracle: An oracle, or candidates that are `Resident` on the mesh.
        target: One target, or several stacked ones.
        several: Whether they are several.
        size: How many to choose at most.
        extra: Ridge added to `l2` for each candidate, `[n]`.
        valid: Which candidates may be chosen, `[n]`.
        mesh: The devices to share them among, if any.
        options: Others of `pursue`.
    """
    n = len(oracle)
    rows = rounded(n) if n <= _ROUND else n
    if mesh is not None:
        if not isinstance(oracle, Resident):
            oracle = Resident.of(oracle, mesh, rows=rows)
        rows = len(oracle.places)
        run = functools.partial(
            _on_devices, oracle, several=several, extra=extra, valid=valid
        )
        some_of = _on_host
    else:
        held = sum(a.nbytes for a in jax.tree.leaves(oracle.per_candidate()))
        arrays = oracle if rows == n else _padded(oracle, rows - n)
        # Padding is not valid: the repeated candidate is chosen at its first place.
        extra, valid = (np.pad(array, (0, rows - n)) for array in (extra, valid))
        many = _MANY if held > _LARGE and not several else 1
        run = functools.partial(_pursue_all if several else _pursue, arrays)
        options |= {"extra": extra, "valid": valid, "many": min(many, rows)}
        some_of = one_of
    # Budgets share programs: powers of two from 64 on, `limit` stops at the true one.
    room = min(1 << max(size - 1, 63).bit_length(), rows)
    options |= {"budget": room, "limit": size}
    if not several:
        return _cut(run(target, **options), size)
    targets = len(jax.tree.leaves(target)[0])
    group = min(targets, max(1, _ENTRIES // (room * rows)))
    group = -(-targets // -(-targets // group))  # as even as they get
    parts: list[Match] = []
    for first in range(0, targets, group):
        # The last group repeats the last target, so that one program serves all groups.
        indices = np.minimum(np.arange(first, first + group), targets - 1)
        parts.append(run(some_of(target, jnp.asarray(indices)), **options))
    match = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:targets], *parts)
    return _cut(match, size)


def _on_devices(
    candidates: Resident,
    target: Gradient,
    *,
    several: bool,
    extra: np.ndarray,
    valid: np.ndarray,
    budget: int,
    positive: bool,
    score: str,
    **numbers: Any,
) -> Match:
    """Match candidates where they are, and bring the choice to every process."""
    mesh, places = candidates.mesh, candidates.places
    match: Match = _pursue_across(
        candidates.oracle,
        replicate(target, mesh),
        shard(candidates.laid(extra), mesh),
        shard(candidates.laid(valid), mesh),
        numbers,
        several=several,
        budget=budget,
        positive=positive,
        score=score,
        mesh=mesh,
    )
    match = to_hosts(match)
    filled = np.arange(match.indices.shape[-1]) < np.asarray(match.n_valid)[..., None]
    indices = np.where(filled, places[np.asarray(match.indices)], 0).astype(np.int32)
    return dataclasses.replace(match, indices=jnp.asarray(indices))


@jit(static_argnames=("several", "budget", "positive", "score", "mesh"))
def _pursue_across(
    oracle: Any,
    target: Gradient,
    extra: jax.Array,
    valid: jax.Array,
    numbers: dict[str, Any],
    *,
    several: bool,
    mesh: Mesh,
    **options: Any,
) -> Match:
    parts, shared, together = parts_of(oracle)

    def on_shard(
        parts: Any, shared: Any, target: Any, extra: Any, valid: Any, numbers: Any
    ) -> Match:
        run = functools.partial(
            pursue,
            together(parts, shared),
            extra=extra,
            valid=valid,
            axis=AXIS,
            **numbers,
            **options,
        )
        return jax.vmap(run)(target) if several else run(target)

    split, everywhere = jax.P(AXIS), jax.P()
    specs = (split, everywhere, everywhere, split, split, everywhere)
    run = by_shards(on_shard, mesh, specs, everywhere)
    return run(parts, shared, target, extra, valid, numbers)


def _on_host(targets: Gradient, t: jax.Array) -> Gradient:
    def select(leaf: jax.Array) -> Any:
        return np.asarray(leaf)[np.asarray(t)]

    return tree_map(select, targets)


def _padded(oracle: Any, more: int) -> Any:
    """Repeat the last candidate: zeros might be no valid example of a loss."""
    return dataclasses.replace(oracle, **_lengthened(oracle.per_candidate(), more=more))


@jit(static_argnames="more")
def _lengthened(arrays: Any, *, more: int) -> Any:
    def repeat(array: jax.Array) -> jax.Array:
        return jnp.concatenate([array, jnp.repeat(array[-1:], more, axis=0)])

    return tree_map(repeat, arrays)


def _cut(match: Match, size: int) -> Match:
    if match.indices.shape[-1] == size:
        return match
    long = {name: getattr(match, name) for name in ("indices", "weights", "objective")}
    return dataclasses.replace(match, **_shortened(long, size=size))


@jit(static_argnames="size")
def _shortened(arrays: Any, *, size: int) -> Any:
    return tree_map(lambda array: array[..., :size], arrays)
