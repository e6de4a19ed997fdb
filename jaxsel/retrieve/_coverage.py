"""The order in which coverage takes candidates (Algorithm 3).

Rank by rank, the hard samples are visited by their distance at that rank, and each
gives its neighbour of that rank if no other has given it before: every hard sample has
its nearest candidate before any has its second nearest.

So a candidate's turn is decided by its best rank over the hard samples, then by its
distance there, then by the hard sample's number. `coverage` reads turns off the lists
of nearest neighbours; where these would be too long for memory, `Turns` folds one hard
sample after the other into each candidate's best turn so far.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int32, Integer

from jaxsel._devices.typed import jit
from jaxsel.neighbors import argsort


def coverage(
    distances: Float[jax.Array, "m k"], indices: Integer[jax.Array, "m k"], budget: int
) -> tuple[Int32[jax.Array, " {budget}"], Int32[jax.Array, ""]]:
    """Choose candidates from lists of nearest neighbours: a pure kernel.

    Costs O(m·k·log(m·k)) time and O(m·k) memory.

    Args:
        distances: Array of shape `[m, k]`, each row ascending; infinite where a hard
            sample has fewer than k neighbours.
        indices: Array of shape `[m, k]`, int32: which candidates these are.
        budget: How many to choose.

    Returns:
        The indices chosen, in order, `[budget]` int32, 0 where padded; and how many
        they are, int32. Lists of k neighbours settle the first k ranks: the choice is
        final if it is full, or if no list has more to give.

    References:
        Mycroft: Towards Effective and Efficient External Data Augmentation,
        Algorithm 3.
    """
    visits = jnp.argsort(distances, axis=0, stable=True)
    near = jnp.take_along_axis(distances, visits, axis=0)
    listed = jnp.take_along_axis(indices, visits, axis=0)
    # One row a rank: read row by row, that is the order of the visits.
    listed, present = listed.T.reshape(-1), jnp.isfinite(near).T.reshape(-1)
    beyond = jnp.iinfo(jnp.int32).max
    # Sorted by candidate, and stably: the first of a run is its earliest visit.
    order = jnp.argsort(jnp.where(present, listed, beyond), stable=True)
    ordered = listed[order]
    first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    is_new = jnp.zeros_like(present).at[order].set(first) & present
    turn = jnp.cumsum(is_new, dtype=jnp.int32) - 1
    place = jnp.where(is_new, turn, budget)  # `budget` is out of bounds: dropped
    chosen = jnp.zeros(budget, jnp.int32).at[place].set(listed, mode="drop")
    return chosen, jnp.minimum(turn[-1] + 1, budget)


chosen_from: Callable[..., tuple[jax.Array, jax.Array]] = jax.jit(
    coverage, static_argnames=("budget",)
)


def cover(parts: Iterable[np.ndarray], budget: int) -> np.ndarray:
    """Choose candidates by coverage from integer distances, block by block.

    Lists of `budget` neighbours settle the choice, however much they overlap: the first
    of them alone has enough.

    Args:
        parts: Distances of m hard samples from the next candidates, `[m, b]` unsigned.
        budget: How many to choose.

    Returns:
        Their indices in the order of choice, int32; all of them, if they are fewer.
    """
    near = places = np.zeros((0, 0), np.int32)
    n = 0
    for part in parts:
        m, b = part.shape
        ids = np.broadcast_to(np.arange(n, n + b, dtype=np.int32), (m, b))
        near = np.hstack([near, part]) if n else part
        places = np.hstack([places, ids]) if n else ids
        # Stable: of equal distances, that of the lower index comes first.
        order = np.argsort(near, axis=1, kind="stable")[:, :budget]
        near = np.take_along_axis(near, order, axis=1)
        places = np.take_along_axis(places, order, axis=1)
        n += b
    chosen, count = chosen_from(near.astype(np.float32), places, budget=min(budget, n))
    return np.asarray(chosen)[: int(count)]


@dataclasses.dataclass
class Turns:
    """The best turn of each candidate over the hard samples so far, in O(n) memory.

    Chooses as `coverage` does with lists of all n candidates.

    Attributes:
        rank: At which rank it comes, `[n]` int32; n where it does not count.
        near: Its distance there, `[n]`.
        hard: The hard sample that gives it, `[n]` int32.
    """

    rank: np.ndarray
    near: np.ndarray
    hard: np.ndarray

    @classmethod
    def none(cls, n: int, dtype: np.dtype[Any]) -> Turns:
        """Return the turns before any hard sample."""
        rank = np.full(n, n, np.int32)
        return cls(rank, np.full(n, np.inf, dtype), np.zeros(n, np.int32))

    def fold(self, h: int, row: np.ndarray) -> None:
        """Update the best turns with another hard sample; call in ascending order of h.

        Args:
            h: Its number.
            row: Its distances to every candidate, `[n]`; infinite where a candidate
                does not count.
        """
        n = len(row)
        ranks = np.empty(n, np.int32)
        ranks[np.asarray(_order(jnp.asarray(row)))] = np.arange(n, dtype=np.int32)
        # A later hard sample must be strictly better: ties go to the lower number.
        better = (ranks < self.rank) | ((ranks == self.rank) & (row < self.near))
        better &= np.isfinite(row)
        self.rank[better], self.near[better] = ranks[better], row[better]
        self.hard[better] = h

    def first(self, budget: int) -> np.ndarray:
        """Return the first `budget` candidates by turn, or all that have one."""
        order = np.lexsort((self.hard, self.near, self.rank))[:budget]
        return order[self.rank[order] < len(self.rank)].astype(np.int32)


@jit()
def _order(row: jax.Array) -> jax.Array:
    # `neighbors.argsort` is faster, but compares as float32.
    if row.dtype == jnp.float32:
        return argsort(row)
    return jnp.argsort(row, stable=True)
