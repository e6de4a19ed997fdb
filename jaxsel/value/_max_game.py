"""The game in which the best of several players counts: values and their means."""

from __future__ import annotations

import dataclasses
from typing import cast

import jax.numpy as jnp
import numpy as np

from jaxsel._results.types import Values


@dataclasses.dataclass
class Block:
    """Consecutive queries.

    Attributes:
        gains: Scores, at least 0; 0 where there is no candidate, `[b, m]`.
        places: Player of each, `[b, m]`, -1 for none; None: the player is the column.
        weights: `[b]`, or None.
        values: Shapley values of each query, `[b, m]`.
    """

    gains: np.ndarray
    places: np.ndarray | None
    weights: np.ndarray | None
    values: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))


def largest(gains: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leave a player its largest gain of a query: set others to 0, of no player."""
    ordered = np.sort(places, axis=1)
    twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    rows = np.flatnonzero(twice)
    if rows.size:
        players, scores = places[rows], gains[rows]
        # By player, then by score: of a run of one player the last is the largest. Runs
        # of -1 are harmless, as they have no gain anyway.
        order = np.lexsort((scores, players), axis=1)
        players, scores = (
            np.take_along_axis(a, order, axis=1) for a in (players, scores)
        )
        same = players[:, 1:] == players[:, :-1]
        lesser = np.append(same, np.zeros((len(rows), 1), bool), axis=1)
        places, gains = places.copy(), gains.copy()
        places[rows] = np.where(lesser, -1, players)
        gains[rows] = np.where(lesser, 0, scores)
    return gains, places


def shares(gains: np.ndarray) -> np.ndarray:
    """Return the Shapley values of each query, `[b, m]`, from gains of at least 0."""
    width = gains.shape[1]
    # Ties need no stable order: the rise between them is 0, so they get equal values.
    order = np.argsort(gains, axis=1)
    ordered = np.take_along_axis(gains, order, axis=1)
    # Players without a gain come first, and their rises are 0: no mask is needed.
    sharers = cast(np.ndarray, np.arange(width, 0, -1))
    rises = np.diff(ordered, axis=1, prepend=0.0) / sharers
    values = np.empty_like(gains)
    np.put_along_axis(values, order, np.cumsum(rises, axis=1), axis=1)
    return values


class Tally:
    """Means over queries and squared deviations, block by block, in float64."""

    def __init__(self, players: int, *, keep: bool):
        self.count = 0
        self.mean = np.zeros(players)
        self.m2 = np.zeros(players)
        self.rows: list[np.ndarray] | None = [] if keep else None

    def add(self, block: Block) -> None:
        size = len(block.values)
        if self.rows is not None:
            self.rows.append(_by_player(block, len(self.mean)))
            self.count += size
            return
        if block.places is None:
            mean = block.values.mean(axis=0)
            deviations = block.values
            # In place, to save a copy: nobody reads a block's values after this.
            deviations -= mean
            m2 = np.einsum("bn,bn->n", deviations, deviations)
        else:
            mean, m2 = _scattered(block, len(self.mean))
        # Pairwise update of Chan, Golub and LeVeque, as in `Values.merge`.
        total = self.count + size
        delta = mean - self.mean
        self.mean += delta * (size / total)
        self.m2 += m2 + delta**2 * (self.count * size / total)
        self.count = total

    def result(self) -> Values:
        count = jnp.asarray(self.count, jnp.int32)
        if self.rows is not None:
            rows = jnp.asarray(np.concatenate(self.rows), jnp.float32)
            return Values(values=rows, count=count, reduce=None)
        return Values(
            values=jnp.asarray(self.mean, jnp.float32),
            m2=jnp.asarray(self.m2, jnp.float32),
            count=count,
        )


def _scattered(block: Block, players: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the squared deviations of players that come by their ids."""
    assert block.places is not None
    present = block.places >= 0
    places, values = block.places[present], block.values[present]
    size = len(block.values)
    # Two passes, since squares less the square of the mean would cancel.
    mean = np.bincount(places, values, minlength=players) / size
    deviations = (values - mean[places]) ** 2
    m2 = np.bincount(places, deviations, minlength=players)
    # Where a player is no candidate, its value is 0.
    absent = size - np.bincount(places, minlength=players)
    return mean, m2 + absent * mean**2


def _by_player(block: Block, players: int) -> np.ndarray:
    """Return values `[b, players]`."""
    if block.places is None:
        return block.values.astype(np.float32)
    values = np.zeros((len(block.values), players), np.float32)
    row, slot = np.nonzero(block.places >= 0)
    values[row, block.places[row, slot]] = block.values[row, slot]
    return values
