"""Non-negative least squares on every subset of owners: kernels on inner products.

The best weights on a set S are positive on some P in S, and there they solve the plain
normal equations. Conversely, a solution of these on P that is not negative is allowed
on every S that holds P. So the best match on S is the best over P in S of the plain
solutions that are not negative: 2^n small systems, solved by one pivot each from a
smaller one, and a maximum over subsets, which takes n passes over the table.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int32

from jaxsel._devices.typed import (
    cholesky,
    finfo,
    fori_loop,
    jit,
    lax_map,
    while_loop,
)

_TOGETHER = 12  # owners whose subsets are solved at once: they fit into a cache
_PATIENCE = 3  # exchanges of all violating owners that may fail to lower their number


@jit(static_argnames="with_weights")
def match_subsets(
    gram: Float[jax.Array, "n n"],
    inner: Float[jax.Array, " n"],
    *,
    with_weights: bool = False,
) -> tuple[Float[jax.Array, " s"], Int32[jax.Array, " s"], Float[jax.Array, "s m"]]:
    """Match a target on each of the s = 2^n subsets of n owners.

    Maximises `2 w'b - w'Kw` over weights w >= 0 that are zero outside the subset.
    Costs some 2 n multiply-adds and n comparisons a subset.

    Args:
        gram: Inner products K of the owners' vectors, ridge included; definite.
        inner: Their inner products b with the target.
        with_weights: Whether to return weights, in 4 n bytes a subset.

    Returns:
        By subset, of which the bits of its index are the members: the maximum; the
        index of the owners with positive weights; and the plain solution on the subset,
        m = n float32 numbers, to be read at that index (m = 0 without weights).
    """
    n = inner.shape[0]
    first = max(0, n - _TOGETHER)
    lengths = gram.diagonal()
    # The normal equations, and a last row that ends as minus the maximum.
    system = jnp.block([[gram, inner[:, None]], [inner[None], jnp.zeros((1, 1))]])
    system = system.astype(gram.dtype)[..., None]
    for i in range(first):
        system = _double(system, i, lengths[i])

    def finish(part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        system, prefix = part[0][..., None], part[1]
        for i in range(first, n):
            system = _double(system, i, lengths[i])
        solution, match = system[:n, 0], -system[n, 0]
        index = prefix + (jnp.arange(match.shape[0], dtype=jnp.int32) << first)
        inside = _members(index, n).T
        # NaN of a singular system is no maximum.
        allowed = jnp.all(~inside | (solution >= 0), axis=0) & (match >= 0)
        kept = jnp.where(inside, solution, 0).T if with_weights else solution[:0].T
        return jnp.where(allowed, match, -jnp.inf), kept.astype(jnp.float32)

    # Subsets along the last axis, where loops over them are fast; here along the first.
    prefixes = jnp.arange(1 << first, dtype=jnp.int32)
    match, weights = lax_map(finish, (jnp.moveaxis(system, -1, 0), prefixes))
    # The first owners are the low bits of the index.
    match = match.T.reshape(-1)
    weights = jnp.moveaxis(weights, 0, 1).reshape(match.shape[0], -1)
    index = jnp.arange(match.shape[0], dtype=jnp.int32)

    def spread(i: jax.Array, state: _Best) -> _Best:
        # A subset with owner i matches no worse than the one without, which it holds.
        best, support = state
        without = index & ~(jnp.int32(1) << i)
        better = best[without] > best
        return (
            jnp.where(better, best[without], best),
            jnp.where(better, support[without], support),
        )

    best, support = fori_loop(0, n, spread, (match, index))
    return best, support, weights


_Best = tuple[jax.Array, jax.Array]
"""The best match so far within each subset, and where it is."""


def _double(system: jax.Array, i: int, length: jax.Array) -> jax.Array:
    """Add to the subsets of owners before i those with i: one pivot each.

    Rows of a subset's owners become their weights; columns before i are dropped.
    """
    column, rest = system[:, 0], system[:, 1:]
    pivot = column[i]
    # Without a part of its own an owner adds nothing, and the system is singular.
    regular = pivot > finfo(pivot.dtype).eps * length
    row = rest[i] / jnp.where(regular, pivot, jnp.nan)[None]
    # Less one, so that row i itself becomes `row`.
    moved = rest - column.at[i].add(-1.0)[:, None] * row[None]
    return jnp.concatenate([rest, moved], -1)


def _members(index: jax.Array, n: int) -> jax.Array:
    """Return which owners are in the subset of each index, `[s, n]`."""
    return (index[:, None] >> jnp.arange(n, dtype=index.dtype)[None]) & 1 == 1


@jit()
def match_masks(
    gram: Float[jax.Array, "n n"],
    inner: Float[jax.Array, " n"],
    masks: Bool[jax.Array, "s n"],
) -> tuple[Float[jax.Array, " s"], Float[jax.Array, "s n"]]:
    """Match a target on some subsets of any number of owners.

    Solves what `match_subsets` does by block principal pivoting: all owners that
    violate the conditions of the optimum change sides at once, or only the last of
    them where that has not lowered their number three times in a row.

    Args:
        gram: Inner products K of the owners' vectors, ridge included; definite.
        inner: Their inner products b with the target.
        masks: The subsets.

    Returns:
        The maximum of `2 w'b - w'Kw` on each subset, and its weights.

    References:
        Kim and Park, SIAM Journal on Scientific Computing 33, 2011.
    """
    n = inner.shape[0]
    slack = 64 * finfo(gram.dtype).eps
    identity = jnp.eye(n, dtype=gram.dtype)

    def solve(active: jax.Array) -> tuple[jax.Array, jax.Array]:
        both = active[:, None] & active
        factor = cholesky(jnp.where(both, gram, identity))
        weights = jax.scipy.linalg.cho_solve(
            (factor, True), jnp.where(active, inner, 0)
        )
        return weights, jnp.matmul(gram, weights, precision="highest") - inner

    def match(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        def wrong(active: jax.Array) -> jax.Array:
            weights, dual = solve(active)
            terms = jnp.matmul(jnp.abs(gram), jnp.abs(weights), precision="highest")
            short = dual < -slack * (terms + jnp.abs(inner))
            low = weights < -slack * jnp.max(jnp.abs(weights))
            return mask & jnp.where(active, low, short)

        def step(state: _Search) -> _Search:
            active, violating, fewest, patience, steps = state
            count = jnp.sum(violating, dtype=jnp.int32)
            fewer = count < fewest
            last = jnp.max(jnp.where(violating, jnp.arange(n), -1))
            alone = ~fewer & (patience == 0)
            moved = violating & (~alone | (jnp.arange(n) == last))
            active = active ^ moved
            patience = jnp.where(fewer, _PATIENCE, jnp.maximum(patience - 1, 0))
            fewest = jnp.minimum(fewest, count)
            return active, wrong(active), fewest, patience, steps - 1

        none = jnp.zeros(n, bool)
        begin: _Search = (
            none,
            wrong(none),
            jnp.asarray(n + 1, jnp.int32),
            jnp.asarray(_PATIENCE, jnp.int32),
            jnp.asarray(16 * n + 64, jnp.int32),  # rounding may make them disagree
        )
        active = while_loop(lambda s: jnp.any(s[1]) & (s[4] > 0), step, begin)[0]
        weights = jnp.maximum(jnp.where(active, solve(active)[0], 0), 0)
        doubled = 2 * inner - jnp.matmul(gram, weights, precision="highest")
        return jnp.vdot(weights, doubled, precision="highest"), weights

    return jax.vmap(match)(masks)


_Search = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""Positive owners, violating ones, fewest of these so far, patience, steps left."""
