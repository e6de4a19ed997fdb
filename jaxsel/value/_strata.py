"""Coalitions by groups of sizes: in which order they are taken, and their weights.

A unit is a coalition, or, of semivalues that weigh sizes s and n - s alike, a coalition
with its complement. Small groups are taken without replacement, so that they end; in
large ones repetitions are rare, and every unit is drawn anew.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from jaxsel._devices.typed import jit

from ._sampling import permutation_ranks

Kind = Literal["shapley", "banzhaf", "beta"]
_MOST = 1 << 16  # units of a group that is taken without replacement
_GROUPS = 24
_LEAST = 1e-3  # share from which a size is a group of its own
_FIRST = 2  # units of each group that come early, as standard errors need
_APART = 2**32 - 1  # no sample has this number


@dataclasses.dataclass(frozen=True)
class Group:
    """Coalition sizes that are sampled together.

    Attributes:
        sizes: Of the coalitions, ascending.
        units: How many units there are of each size.
        chance: Chance of each size.
        share: Share of the samples.
        total: How many units there are; infinite where they are drawn anew.
    """

    sizes: np.ndarray
    units: np.ndarray
    chance: np.ndarray
    share: float
    total: float


@dataclasses.dataclass(frozen=True)
class Strata:
    """A semivalue as a weighted sum over coalitions, and the groups it is taken by.

    The value of point i is the sum over all coalitions S of U(S) times
    `inside[s] / C(n, s)` if i is in S, else times `-outside[s] / C(n, s)`.

    Args:
        n: Number of points.
        kind: "shapley", "banzhaf" or "beta".
        alpha: First parameter of "beta".
        beta: Second parameter of "beta".
    """

    n: int
    kind: Kind = "shapley"
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def paired(self) -> bool:
        """True if units are coalitions with their complements."""
        return self.kind != "beta" or self.alpha == self.beta

    @functools.cached_property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Total weight by size of points inside and outside, `[n + 1]` each."""
        n, size = self.n, np.arange(self.n)
        if self.kind == "banzhaf":
            log_weight = np.full(n, (1 - n) * np.log(2.0))
        else:
            alpha, beta = (self.alpha, self.beta) if self.kind == "beta" else (1.0, 1.0)
            log_weight = special.betaln(size + beta, n - 1 - size + alpha)
            log_weight -= special.betaln(beta, alpha)
        choose = _log_choose(n)
        inside = np.append(0.0, np.exp(choose[1:] + log_weight))
        outside = np.append(np.exp(choose[:-1] + log_weight), 0.0)
        return inside, outside

    @functools.cached_property
    def factor(self) -> np.ndarray:
        """Factor of a coalition's weight in its unit by size, `[n + 1]`."""
        sizes = np.arange(self.n + 1)
        return np.where(self.paired & (2 * sizes != self.n), 2.0, 1.0)

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups, by size.

        The share of a size is the one of least variance where all utilities vary alike
        (Neyman's allocation): the root of the sum over points of squared weights.
        A size that counts is a group of its own, so that none is missed by chance;
        with more such sizes than groups, each group has as much weight.
        """
        n = self.n
        last = n // 2 if self.paired else n - 1
        sizes = np.arange(1, last + 1)
        if not len(sizes):
            return ()
        inside, outside = (w[sizes] for w in self.weights)
        scale = np.sqrt(sizes * inside**2 + (n - sizes) * outside**2)
        scale *= self.factor[sizes]
        # Size n / 2 is its own complement, with half as many pairs.
        logs = _log_choose(n)[sizes] - np.log(2.0) * (self.paired & (2 * sizes == n))
        # Counts matter up to `_MOST` only: cut them before exp overflows.
        units = np.rint(np.exp(np.minimum(logs, 100.0)))
        share, first = scale / scale.sum(), 0
        least = _LEAST if (share >= _LEAST).sum() < _GROUPS else 1 / _GROUPS
        groups: list[Group] = []
        bounds: list[tuple[int, int]] = []
        for i in range(len(sizes)):
            if share[first : i + 1].sum() >= least:
                bounds.append((first, i + 1))
                first = i + 1
        # The last sizes have too little weight for a group of their own.
        bounds[-1] = bounds[-1][0], len(sizes)
        for a, b in bounds:
            total = float(units[a:b].sum())
            # Taken by their number, rare sizes of a group with weight are missed.
            ends = total <= _MOST and (b == a + 1 or least == _LEAST)
            part = units[a:b] if ends else scale[a:b]
            groups.append(
                Group(
                    sizes[a:b],
                    units[a:b],
                    part / part.sum(),
                    float(scale[a:b].sum() / scale.sum()),
                    total if ends else np.inf,
                )
            )
        return tuple(groups)

    @property
    def total(self) -> float:
        """Number of units there are; infinite unless all groups end."""
        return sum(group.total for group in self.groups)

    def order(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the group, and the number in it, of the first units, `[count]` each.

        Fewer than `count` if there are no more. Groups take turns at their shares, but
        for the first few of each, and those that have ended leave theirs to the others.
        """
        shares = np.array([group.share for group in self.groups])
        totals = np.array([group.total for group in self.groups])
        count = int(min(count, totals.sum()))
        # The first units of each group come early, so that no group stays unknown.
        early = np.maximum(shares, 1 / max(1, len(shares)))
        until = float(count)

        def lengths() -> np.ndarray:
            first = np.minimum(_FIRST, np.floor(until * early + 0.5))
            return np.minimum(totals, np.maximum(first, np.floor(until * shares + 0.5)))

        # Groups that have ended leave their share to the others.
        while lengths().sum() < count:
            until *= 2
        length = lengths().astype(int)
        group = np.repeat(np.arange(len(length)), length)
        number = np.concatenate([np.arange(size) for size in [0, *length]])
        share = np.where(number < _FIRST, early[group], shares[group])
        turn = np.argsort((number + 0.5) / share, kind="stable")[:count]
        return group[turn], number[turn]

    def masks(self, key: jax.Array, first: int, used: int, rows: int) -> np.ndarray:
        """Return the coalitions of units, one of each, `[rows, n]` bool.

        Args:
            key: A key: unit t depends on it and on t alone.
            first: Number of the first unit.
            used: How many there are; rows from this on, and of units that do not exist,
                are empty.
            rows: How many rows.
        """
        group, number = (part[first:] for part in self.order(first + used))
        masks = np.zeros((rows, self.n), bool)
        drawn: list[tuple[Group, np.ndarray]] = []
        for g, stratum in enumerate(self.groups):
            units = np.flatnonzero(group == g)
            if np.isinf(stratum.total) and len(units):
                drawn.append((stratum, units))
            elif len(units):
                ranks = _shuffled(key, self)[g][number[units]]
                masks[units] = _unrank(ranks, stratum, self.n)
        if drawn:
            share, places = _draws(key, first, count=rows, n=self.n)
            for stratum, units in drawn:
                below = np.searchsorted(
                    stratum.chance.cumsum(), share[units], side="right"
                )
                size = stratum.sizes[np.minimum(below, len(stratum.sizes) - 1)]
                masks[units] = places[units] < size[:, None]
        return masks


def _log_choose(n: int) -> np.ndarray:
    """Return the logarithm of the number of coalitions by size, `[n + 1]`."""
    size = np.arange(n + 1)
    return -special.betaln(n - size + 1.0, size + 1.0) - np.log(n + 1.0)


def _draws(
    key: jax.Array, first: int, *, count: int, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a number in [0, 1) and ranks of points of each unit."""
    share = _shares(jax.random.fold_in(key, _APART), first, count=count)
    ranks = permutation_ranks(key, first, count=count, n=n)
    return np.asarray(share, np.float64), np.asarray(ranks)


@jit(static_argnames=("count",))
def _shares(key: jax.Array, first: jax.Array | int, *, count: int) -> jax.Array:
    def draw(t: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, t), dtype=jnp.float32)

    return jax.vmap(draw)(first + jnp.arange(count))


def _shuffled(key: jax.Array, strata: Strata) -> list[np.ndarray]:
    """Return the units of each group that ends, in random order."""
    bits = np.asarray(jax.random.key_data(key)).tobytes()
    return _shuffled_by(bits, str(jax.random.key_impl(key)), strata)


@functools.lru_cache(maxsize=4)
def _shuffled_by(bits: bytes, impl: str, strata: Strata) -> list[np.ndarray]:
    data = np.frombuffer(bits, np.uint32)
    wrap: Any = jax.random.wrap_key_data
    key: jax.Array = wrap(jnp.asarray(data), impl=impl)
    totals = [g.total if np.isfinite(g.total) else 0 for g in strata.groups]
    ends = np.cumsum(totals).astype(int)
    key = jax.random.fold_in(jax.random.fold_in(key, _APART), _APART)
    drawn = np.asarray(jax.random.bits(key, (int(ends[-1]),), jnp.uint32))
    return [np.argsort(part, kind="stable") for part in np.split(drawn, ends[:-1])]


def _unrank(ranks: np.ndarray, group: Group, n: int) -> np.ndarray:
    """Return the coalitions of these numbers within a group, `[len(ranks), n]`.

    Within a size by the combinatorial number system. Its first half, of coalitions of
    half the points, lacks the last point: one of each pair.
    """
    starts = np.append(0, group.units.cumsum())
    size_index = np.searchsorted(starts, ranks, side="right") - 1
    rank = ranks - starts[size_index]
    remaining = group.sizes[size_index].astype(np.float64)
    masks, choose = np.zeros((len(ranks), n), bool), cast(Any, special.comb)
    # C(point, remaining) coalitions lack this point; they come first.
    for point in range(n - 1, -1, -1):
        fewer = np.rint(np.asarray(choose(point, remaining), np.float64))
        taken = (remaining > 0) & (rank >= fewer)
        masks[:, point] = taken
        rank = rank - np.where(taken, fewer, 0)
        remaining = remaining - taken
    return masks
