"""Losses in memory, in ascending order."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ._objective import Counts

Chunk = tuple[np.ndarray, np.ndarray | None]
"""Losses `[c]` and their whole weights, or None where each counts once."""


class Sorted:
    """Losses in memory, in ascending order.

    Args:
        losses: `[n]`.
        weights: Whole numbers, `[n]` int64, or None where each counts once.
    """

    def __init__(self, losses: np.ndarray, weights: np.ndarray | None = None):
        self.weighted = weights is not None
        if weights is None:
            self._losses, self._upto = np.sort(losses), None
        else:
            order = np.argsort(losses)
            self._losses = losses[order]
            self._upto = np.append(0, np.cumsum(weights[order]))

    @property
    def total(self) -> int:
        """Weight of all losses."""
        return int(self._weight(len(self._losses)))

    def counts(self, edges: np.ndarray) -> Counts:
        """Return how much weight lies below the edges."""
        below, upto = (
            self._weight(np.searchsorted(self._losses, edges, side))
            for side in ("left", "right")
        )
        return Counts(below, upto, self.total)

    def apart(self) -> Sorted:
        """Return this, which never changes."""
        return self

    def number(self, value: float) -> int:
        """Return how many losses are at most `value`."""
        return int(np.searchsorted(self._losses, value, "right"))

    def _weight(self, rows: np.ndarray | int) -> np.ndarray:
        return np.asarray(rows if self._upto is None else self._upto[rows], np.int64)


def distinct(values: np.ndarray) -> np.ndarray:
    """Return ascending values without repetitions."""
    return values[np.append(True, values[1:] != values[:-1])[: len(values)]]


def joined(chunks: Iterable[Chunk]) -> Chunk:
    """Return the losses and weights of all chunks, one after the other."""
    losses, weights = zip(*chunks, strict=True)
    whole = [w for w in weights if w is not None]
    return np.concatenate(losses), np.concatenate(whole) if whole else None
