"""Coalitions on which a learner fails: counted, and told."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np


class Failures:
    """Count of coalitions on which a learner failed.

    Attributes:
        coalitions: How many there were.
        failed: On how many of them it failed.
        first: The first error.
    """

    def __init__(self, kind: str, outcome: str):
        self.coalitions = self.failed = 0
        self.first = ""
        self._kind, self._outcome, self._told = kind, outcome, 0

    def __repr__(self) -> str:
        return f"Failures({self.failed} of {self.coalitions}, first={self.first!r})"

    def add(self, failed: np.ndarray, errors: Sequence[str | None]) -> None:
        """Count a batch, `[B]`, and warn of the first failure."""
        self.coalitions += len(failed)
        if failed.any():
            self.failed += int(failed.sum())
            self.first = self.first or str(errors[int(np.argmax(failed))])
            if not self._told:
                self.warn()

    def warn(self) -> None:
        """Warn how many there are, unless that was told already."""
        if self.failed > self._told:
            self._told = self.failed
            warnings.warn(
                f"the learner failed on {self.failed} of {self.coalitions} "
                f"{self._kind} so far, {self._outcome}; the first error was: "
                f"{self.first}",
                stacklevel=2,
            )


def failed_rows(scores: np.ndarray) -> np.ndarray:
    """Return of which models scores `[B, m, K]` are not all numbers, `[B]`."""
    return np.asarray(np.isnan(scores).any((1, 2)))
