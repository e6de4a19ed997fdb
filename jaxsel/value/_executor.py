"""Batches of a run as work items of an executor.

A batch of samples depends on the key and its numbers alone. The caller submits some
batches ahead and adds what they return in their order, so that results equal those of
one process. Stopping rules, bars and checkpoints stay with the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxsel._runs.executor import (
    Ahead,
    Executor as Executor,
    Sent,
    check_executor as check_executor,
)

from ._estimator import Batch, Estimator, Moments, Part, State, Work
from ._failures import Counts


class SentRun(Sent):
    """An estimator, its work and a state, as workers get them."""

    def __init__(self, estimator: Estimator, work: Work, state: State):
        super().__init__((estimator, work, state), ("the utility", work))

    def opened(self, contents: Any) -> None:
        """Make a worker's copy count failures without warning of them."""
        _, work, _ = contents
        if work.failures is not None:
            work.failures.silence()


def compute(sent: SentRun, batch: Batch) -> tuple[Moments | None, Counts | None]:
    """Return a batch's sums, and the failures that a worker's copy counted."""
    (estimator, work, state), copied = sent.open()
    sums = None
    with sent.settings():
        for part in estimator.sample(work, state, batch):
            sums = part.sums
    counted = work.failures.drain() if copied and work.failures is not None else None
    return sums, counted


class Spread:
    """Batches on an executor, a bounded number of them ahead of the merge.

    Args:
        executor: Where they are computed.
        sent: Run that each batch belongs to.
        work: The caller's, which counts failures.
        batches: All that may be wanted, in order.
        limit: Number of samples beyond which none is computed ahead, or None.
    """

    def __init__(
        self,
        executor: Executor,
        sent: SentRun,
        work: Work,
        batches: Iterator[Batch],
        limit: int | None,
    ):
        self._work = work
        self._ahead = Ahead(
            executor,
            compute,
            sent,
            batches,
            name=_name,
            wanted=lambda batch: limit is None or batch.first < limit,
        )

    def parts(self, state: State, first: int, count: int) -> Iterator[Part]:
        """Yield the results of the next batches, until they cover `count` samples."""
        del state, first  # as announced by `batches`
        while count > 0:
            batch, (sums, counted) = next(self._ahead)
            if counted is not None and self._work.failures is not None:
                self._work.failures.count(*counted)
            count -= batch.used
            yield Part(batch.used, sums)

    def close(self) -> None:
        """Cancel pending batches, and shut down executors that replaced lost ones."""
        self._ahead.close()


def _name(batch: Batch) -> str:
    return f"samples {batch.first} to {batch.first + batch.used - 1}"
