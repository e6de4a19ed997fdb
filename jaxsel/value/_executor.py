"""Batches of a run as work items of an executor.

A batch of samples depends on the key and its numbers alone. The caller submits some
batches ahead and adds what they return in their order, so that results equal those of
one process. Stopping rules, bars and checkpoints stay with the caller.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from typing import Any

from jaxsel._runs.executor import (
    Ahead,
    Executor as Executor,
    Sent,
    check_executor as check_executor,
    workers_of,
)
from jaxsel._runs.processes import by_value, local_processes

from ._estimator import PART, Batch, Estimator, Moments, Part, State, Work, batches
from ._failures import Counts

_LOG = logging.getLogger(__name__)
PATIENCE = 5.0  # seconds of a run, about twice what processes take to start
_clock = time.monotonic


class SentRun(Sent):
    """An estimator, its work and a state, as workers get them."""

    def __init__(self, estimator: Estimator, work: Work, state: State):
        super().__init__((estimator, work, state), ("the utility", work))

    def opened(self, contents: Any) -> None:
        """Make a worker's copy count failures without warning of them."""
        _, work, _ = contents
        if work.failures is not None:
            work.failures.silence()


class RunByValue(SentRun):
    """The same for processes that know nothing of the caller's script."""

    def _dumps(self, thing: Any) -> bytes:
        return by_value(thing)


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


class Later:
    """Batches here, and from some seconds on in processes where cores are free.

    What cannot be pickled stays here, and so does the rest of a run that loses them.

    Args:
        estimator: Method to estimate by.
        work: Inputs it is bound to.
        spread: Returns a `Spread` on an executor, from a number of a sample on.
    """

    def __init__(
        self,
        estimator: Estimator,
        work: Work,
        spread: Callable[[Executor, int], Spread],
    ):
        self._estimator, self._work, self._spread = estimator, work, spread
        self._begun = _clock()
        self._waits = True
        self._elsewhere: Spread | None = None

    def parts(self, state: State, first: int, count: int) -> Iterator[Part]:
        """Yield the parts of a round; `state` may hold part of its first batch."""
        end = first + count
        while first < end:
            # A batch that a checkpoint has begun is completed here.
            if self._waits and not any(name.startswith(PART) for name in state):
                self._start(first)
            if self._elsewhere is None:
                batch = next(batches(self._estimator, self._work, first, end - first))
                yield from self._estimator.sample(self._work, state, batch)
                state = {k: v for k, v in state.items() if not k.startswith(PART)}
                first += batch.used
                continue
            try:
                for part in self._elsewhere.parts(state, first, end - first):
                    first += part.samples
                    yield part
            except RuntimeError as error:
                if not isinstance(error.__cause__, BrokenExecutor):
                    raise
                _LOG.warning("processes were lost: going on in this one")
                self.close()

    def close(self) -> None:
        """Cancel pending batches."""
        if self._elsewhere is not None:
            self._elsewhere.close()
        self._elsewhere = None

    def _start(self, first: int) -> None:
        if _clock() - self._begun < PATIENCE:
            return
        self._waits = False
        executor = local_processes()
        if executor is None:
            return
        try:
            self._elsewhere = self._spread(executor, first)
        except TypeError as error:
            _LOG.info("no processes: %s", error)
            return
        _LOG.info("going on in %d processes", workers_of(executor))


def _name(batch: Batch) -> str:
    return f"samples {batch.first} to {batch.first + batch.used - 1}"
