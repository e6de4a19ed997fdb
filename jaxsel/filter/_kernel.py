"""The threshold as a pure function of arrays, for `jit` and `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxsel._devices.typed import fori_loop
from jaxsel._inputs.show import brief

from ._wide import Wide, excess, largest, less, times, to_float, wide


@brief
class KSThreshold(NamedTuple):
    """Result of `ks_threshold`.

    Attributes:
        value: Scalar: the largest loss that is kept.
        n_kept: Scalar int32: how many are kept.
        distance: Scalar float32: their KS distance to the benchmark's losses.
    """

    value: jax.Array
    n_kept: jax.Array
    distance: jax.Array


def ks_threshold(
    benchmark_losses: Float[jax.Array, " m"], losses: Float[jax.Array, " n"]
) -> KSThreshold:
    """Find the losses to keep so that they are distributed most like a benchmark's.

    The kernel of `loss_threshold`, without its checks, weights and chunks. It is as
    exact: fractions are compared as whole numbers of 96 bits. Costs two sorts, and
    O(m log n) after them. XLA treats denormal losses as 0.

    Args:
        benchmark_losses: `[m]`, finite.
        losses: `[n]`, finite, of the same type.

    Returns:
        The threshold; the smallest of several that are as good.
    """
    v, p = jnp.sort(benchmark_losses), jnp.sort(losses)
    m, n = len(v), len(p)
    # By side, then by array: `reached` and `upto` count up to each loss of v, `before`
    # and `under` below it, in v and in p.
    reached, upto, before, under = (
        wide(jnp.searchsorted(a, v, side=side))
        for side in ("right", "left")
        for a in (v, p)
    )
    of_all = wide(m)

    def leads(k: jax.Array) -> tuple[Wide, Wide]:
        kept = wide(k)

        def least(a: Wide) -> Wide:
            return _least(a, kept)

        # Times m k, so that no fraction is rounded. At least 0 is right: both
        # distributions begin at 0 and end at 1.
        ahead = excess(times(reached, kept), times(least(upto), of_all))
        behind = excess(times(least(under), of_all), times(before, kept))
        return largest(ahead), largest(behind)

    def crossed(k: jax.Array) -> jax.Array:
        return ~less(*leads(k))

    k = _first(crossed, n + 1)
    crossing = p[jnp.minimum(k, n) - 1]
    # Equal losses stay together: candidates are the ends of the run at the crossing.
    last = jnp.where(k > n, n, jnp.searchsorted(p, crossing, side="left"))
    after = jnp.searchsorted(p, crossing, side="right")
    # Before the crossing the kept losses' lead is the larger one, from it on the
    # benchmark's: one lead each suffices.
    of_last, of_after = leads(jnp.maximum(last, 1))[1], leads(after)[0]
    # Compare G = lead / (m k) as fractions, multiplied crosswise.
    later = (k <= n) & (
        (last == 0) | less(times(of_after, wide(last)), times(of_last, wide(after)))
    )

    # The kept losses' lead does not rise with k: equal minima are a run that ends at
    # `last`, and bisection gives its start.
    def as_good(j: jax.Array) -> jax.Array:
        return ~less(times(of_last, wide(j)), times(leads(j)[1], wide(last)))

    first = jnp.where(later, after, _first(as_good, jnp.maximum(last, 1)))
    value = p[first - 1]
    # The least k may lie within a run of equal losses: all of it is kept, and as good.
    n_kept = jnp.searchsorted(p, value, side="right").astype(jnp.int32)
    ahead, behind = leads(n_kept)
    distance = jnp.maximum(to_float(ahead), to_float(behind)) / (
        jnp.float32(m) * n_kept.astype(jnp.float32)
    )
    return KSThreshold(value, n_kept, distance)


def _least(a: Wide, b: Wide) -> Wide:
    smaller = less(a, b)
    return tuple(jnp.where(smaller, x, y) for x, y in zip(a, b, strict=True))


def _first(holds: Callable[[jax.Array], jax.Array], last: jax.Array | int) -> jax.Array:
    """Return the least k in [1, last) from which a condition holds on; else last."""

    def halve(
        _: jax.Array, ends: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = low + (high - low) // 2
        yes = holds(jnp.minimum(middle, high - 1))
        open_ = low < high
        return (
            jnp.where(open_ & ~yes, middle + 1, low),
            jnp.where(open_ & yes, middle, high),
        )

    last = jnp.asarray(last, jnp.int32)
    # 32 halvings suffice for any int32, and `vmap` needs no common condition.
    return fori_loop(0, 32, halve, (jnp.ones_like(last), last))[0]
