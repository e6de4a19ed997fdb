"""Count of a learner's failures on coalitions, with warnings."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from jax.core import Tracer

from jaxsel._devices.mesh import gather

Counts: TypeAlias = tuple[int, int, str]  # coalitions, failed, the first error

UNCONVERGED = (
    "training did not converge: scale the columns of x, as "
    "sklearn.preprocessing.StandardScaler does, or raise l2"
)
NOT_NUMBERS = (
    "its scores are not numbers, as after training that diverges: lower the learning "
    "rate, clip gradients, or scale the features"
)

_lock = threading.Lock()  # of all, since those with one of their own can't be pickled


class Failures:
    """Count of coalitions on which a learner failed.

    Attributes:
        coalitions: How many there were.
        failed: On how many of them it failed.
        first: The first error.
        silent: Whether this is a worker's copy, which knows its own batches alone.

    Args:
        kind: Name of what fails, in the plural.
        outcome: Its treatment where the learner raises an error, for the warning.
        unconverged: The same where training did not converge.
    """

    def __init__(self, kind: str, outcome: str, unconverged: str = ""):
        self.coalitions = self.failed = 0
        self.first = ""
        self._unconverged = unconverged
        self._kind, self._outcome, self._told = kind, outcome, 0
        self.silent = False

    def __repr__(self) -> str:
        return f"Failures({self.failed} of {self.coalitions}, first={self.first!r})"

    def add(self, failed: np.ndarray, errors: Sequence[str | None]) -> None:
        """Count a batch, `[B]`, and warn of the first failure."""
        first = str(errors[int(np.argmax(failed))]) if failed.any() else ""
        self.count(len(failed), int(failed.sum()), first)

    def count(self, coalitions: int, failed: int, first: str) -> None:
        """Count coalitions, failures among them, and warn of the first one."""
        with _lock:
            self.coalitions += coalitions
            self.failed += failed
            self.first = self.first or first
        if failed and not self._told:
            self.warn()

    def add_models(self, params: Any) -> None:
        """Count models by whether they converged, and wait for them, if that is known.

        Args:
            params: Parameters of B models; `converged`, `[B]`, is their attribute where
                training may fail to.
        """
        converged = getattr(params, "converged", None)
        if converged is None or isinstance(converged, Tracer):
            return
        if not converged.is_fully_addressable:
            converged = gather(converged)
        count = len(converged)
        failed = count - int(np.count_nonzero(np.asarray(converged)))
        self.count(count, failed, UNCONVERGED if failed else "")

    def silence(self) -> None:
        """Reset the counts, and warn no more: the run's own process does so."""
        self.drain()
        self.silent = True

    def drain(self) -> Counts:
        """Return the counts, and reset them."""
        with _lock:
            counts = self.coalitions, self.failed, self.first
            self.coalitions = self.failed = self._told = 0
            self.first = ""
        return counts

    def warn(self) -> None:
        """Warn of the number of failures, unless it was reported before."""
        if self.failed > self._told and not self.silent:
            self._told = self.failed
            stuck = self.first == UNCONVERGED
            outcome = self._unconverged if stuck else self._outcome
            warnings.warn(
                f"the learner failed on {self.failed} of {self.coalitions} "
                f"{self._kind} so far, {outcome}; the first error was: "
                f"{self.first}",
                stacklevel=2,
            )


def tell(failures: Failures | None) -> None:
    """Warn of failures within a run, if they are counted."""
    if failures is not None:
        failures.warn()


def failed_rows(scores: np.ndarray) -> np.ndarray:
    """Return which models have a NaN among their scores `[B, m, K]`, `[B]`."""
    return np.asarray(np.isnan(scores).any((1, 2)))
