"""The game of owners who match a target together: utilities and values."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.platform import one_thread

from ._subsets import match_masks, match_subsets

Constraint = Literal["nonnegative", "simplex"]
MOST = 20
"""Owners of which all subsets are matched."""

_ROWS = 1 << 16  # subsets whose weights are summed together


class Table(NamedTuple):
    """The utility of every subset of owners, by its index: its members are the bits.

    Attributes:
        utility: `[2^n]`.
        support: Index of the owners with positive weights, `[2^n]`.
        weights: Weights on a subset, to be read at `support`, `[2^n, n]`; `[2^n, 0]`
            where they were not asked for.
    """

    utility: np.ndarray
    support: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Game:
    """Owners as players: the share of a target's squared length that a set matches.

    The utility of a set is `1 - min_w (|sum w_o g_o - b|^2 + sum r_o w_o^2) / |b|^2`.

    Attributes:
        vectors: Owners' vectors g, `[n, d]` float64.
        target: The target b, `[d]` float64.
        ridge: Weight r of each owner's squared weight, `[n]`.
        constraint: Whether weights are at least 0, or add up to 1 as well.
    """

    vectors: np.ndarray
    target: np.ndarray
    ridge: np.ndarray
    constraint: Constraint

    @property
    def n(self) -> int:
        """Number of owners."""
        return len(self.vectors)

    @functools.cached_property
    def length(self) -> float:
        """The target's squared length."""
        return float(self.target @ self.target)

    @functools.cached_property
    def _least_squares(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Inner products among owners and with the target, and their unit.

        With weights that add up to 1 the error is `w'Dw`, D of the differences from the
        target. The least of `u'Du/s + (sum u - 1)^2` over u >= 0 is `e / (e + s)` at
        that error e, and its u are proportional to w: non-negative least squares too.
        """
        if self.constraint == "simplex":
            apart = self.vectors - self.target
            gram = apart @ apart.T + np.diag(self.ridge)
            unit = float(np.mean(gram.diagonal()))
            return gram / unit + 1, np.ones(self.n), unit
        gram = self.vectors @ self.vectors.T + np.diag(self.ridge)
        unit = float(np.mean(gram.diagonal()))
        return gram / unit, self.vectors @ self.target / unit, unit

    def _utility(self, match: np.ndarray) -> np.ndarray:
        unit = self._least_squares[2]
        if self.constraint == "nonnegative":
            return match * unit / self.length
        error = unit * (1 / np.where(match > 0, match, 1) - 1)
        return np.where(match > 0, 1 - error / self.length, 0)

    @one_thread()
    def table(self, *, with_weights: bool = False) -> Table:
        """Match the target on every subset of at most 20 owners."""
        gram, inner, _ = self._least_squares
        with jax.enable_x64(True):
            match, support, weights = match_subsets(
                jnp.asarray(gram), jnp.asarray(inner), with_weights=with_weights
            )
            arrays = np.asarray(match), np.asarray(support), np.asarray(weights)
        return Table(self._utility(arrays[0]), *arrays[1:])

    @one_thread()
    def match(self, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return utilities `[s]` and weights `[s, n]` of some sets `[s, n]`."""
        count = len(masks)
        # Few shapes, so that few programs are compiled.
        padded = np.zeros((1 << (count - 1).bit_length(), self.n), bool)
        padded[:count] = masks
        gram, inner, _ = self._least_squares
        with jax.enable_x64(True):
            match, weights = match_masks(
                jnp.asarray(gram), jnp.asarray(inner), jnp.asarray(padded)
            )
            match, weights = np.asarray(match)[:count], np.asarray(weights)[:count]
        return self._utility(match), _scaled(weights, self.constraint)

    @one_thread()
    def fits(self, table: Table) -> np.ndarray:
        """Return the Shapley values of all weights, `[n, n]`.

        Row o holds what owner o adds on average to each owner's weight: with the
        vectors it gives the derivative of o's value in the target.
        """
        n, total = self.n, np.zeros((self.n, self.n))
        without = np.append(_order_weights(n), 0.0)  # by the size of a set without o
        within = np.append(0.0, without[:-1])
        for start in range(0, 1 << n, _ROWS):
            index = np.arange(start, min(start + _ROWS, 1 << n))
            weights = table.weights[table.support[index]].astype(np.float64)
            size = np.bitwise_count(index)
            member = (index[:, None] >> np.arange(n)) & 1
            signs = member * (within + without)[size][:, None] - without[size][:, None]
            total += signs.T @ _scaled(weights, self.constraint)
        return total


def _scaled(weights: np.ndarray, constraint: Constraint) -> np.ndarray:
    if constraint == "nonnegative":
        return weights
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total > 0, total, 1)


def _order_weights(n: int) -> np.ndarray:
    """Return the Shapley weight of a set without a player, by its size, `[n]`."""
    return np.array([1 / (n * math.comb(n - 1, size)) for size in range(n)])


def shapley(utility: np.ndarray) -> np.ndarray:
    """Return Shapley values `[n]` of a table of the utilities of all sets `[2^n]`."""
    n = len(utility).bit_length() - 1
    size, weights = np.bitwise_count(np.arange(len(utility))), _order_weights(n)
    values = np.empty(n)
    for i in range(n):
        sets, sizes = utility.reshape(-1, 2, 1 << i), size.reshape(-1, 2, 1 << i)
        added = sets[:, 1] - sets[:, 0]
        values[i] = np.vdot(added, weights[sizes[:, 0]])
    return values


def owen(utility: np.ndarray, groups: Sequence[Sequence[int]]) -> np.ndarray:
    """Return Owen values `[n]`: groups come in any order, members one after another.

    Args:
        utility: Utilities of all sets, `[2^n]`.
        groups: Owners of each group; all owners are in one.
    """
    n = len(utility).bit_length() - 1
    values, masks = np.zeros(n), [_mask(group) for group in groups]
    for number, group in enumerate(groups):
        others, count = _unions([*masks[:number], *masks[number + 1 :]])
        outer = _order_weights(len(groups))[count]
        for owner in group:
            beside, size = _unions([1 << other for other in group if other != owner])
            inner = _order_weights(len(group))[size]
            sets = others[:, None] | beside
            added = utility[sets | 1 << owner] - utility[sets]
            values[owner] = np.einsum("a,ab,b->", outer, added, inner)
    return values


def _mask(group: Sequence[int]) -> int:
    return sum(1 << owner for owner in group)


def _unions(masks: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the unions of all choices among some masks, and how many each joins."""
    sets, count = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for mask in masks:
        sets, count = np.append(sets, sets | mask), np.append(count, count + 1)
    return sets, count
