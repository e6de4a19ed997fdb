"""Batches of a run as work items: what workers are sent, and what is made again.

A batch of samples depends on the key and its numbers alone. The caller submits some
batches ahead and adds what they return in their order, so that results equal those of
one process. Stopping rules, bars and checkpoints stay with the caller.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import importlib
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from typing import Any, Protocol

import jax

from ._estimator import Batch, Estimator, Moments, Part, State, Work
from ._failures import Counts

TRIES = 3  # of a batch whose worker was lost, after the first
_KEPT = 2  # runs that a worker knows
_DEEP = 8  # attributes of attributes in which to look for what can't be pickled

_known: dict[str, Any] = {}


class Future(Protocol):
    """Protocol of what an executor returns: a result to wait for.

    Those that have `done` and `cancel` as well, as of `concurrent.futures`, are
    submitted again earlier when they are lost, and are cancelled when a run ends.
    """

    def result(self) -> Any:
        """Wait, and return what the function did, or raise what it raised."""
        ...


class Executor(Protocol):
    """Protocol of what computes elsewhere: an executor of `concurrent.futures`.

    A future whose worker was lost raises `concurrent.futures.BrokenExecutor`. An
    attribute `_max_workers`, as those of the standard library have it, says how much to
    submit ahead: two batches a worker. One without gets two for each processor here.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future:
        """Start a function on a worker."""
        ...


def check_executor(executor: Any, mesh: Any) -> None:
    """Refuse what is no executor, and those that JAX does not work with."""
    if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
        raise TypeError(
            "executor must have submit(function, *arguments), as those of "
            f"concurrent.futures, got {executor!r}"
        )
    if mesh is not None:
        raise ValueError(
            "mesh must be None where an executor is given, whose workers take their "
            f"own devices, got {mesh!r}"
        )
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "executor must start processes by 'spawn', since JAX hangs in forks, got "
            "'fork': pass mp_context=multiprocessing.get_context('spawn') to it"
        )


class Sent:
    """A run as workers get it: pickled once at most, and opened once by each process.

    Executors that pickle nothing, such as threads, open the original.
    """

    def __init__(self, estimator: Estimator, work: Work, state: State):
        precision: Any = jax.config.jax_default_matmul_precision  # pyright: ignore
        x64 = bool(jax.config.jax_enable_x64)  # pyright: ignore
        self._contents: Any = estimator, work, state, (x64, precision)
        self._packed: bytes | None = None
        self._digest = ""

    def packed(self) -> Sent:
        """Return this as another process has it."""
        copy = object.__new__(Sent)
        vars(copy).update(self.__getstate__())
        return copy

    def __getstate__(self) -> dict[str, Any]:
        if self._packed is None:
            self._packed = _pickled(self._contents)
            self._digest = hashlib.sha256(self._packed).hexdigest()
        return {"_contents": None, "_packed": self._packed, "_digest": self._digest}

    def open(self) -> tuple[Any, bool]:
        """Return the contents, and whether they are a copy: this process's own."""
        if self._contents is not None:
            return self._contents, False
        if self._digest not in _known:
            contents = pickle.loads(self._packed or b"")
            if contents[1].failures is not None:
                contents[1].failures.silence()
            while len(_known) >= _KEPT:
                _known.pop(next(iter(_known)))
            _known[self._digest] = contents
        return _known[self._digest], True


def compute(sent: Sent, batch: Batch) -> tuple[Moments | None, Counts | None]:
    """Return what a batch adds, and what a worker's copy counted of failures."""
    (estimator, work, state, (x64, precision)), copied = sent.open()
    sums = None
    # Threads do not have the settings of the one that submits, nor do processes.
    with jax.enable_x64(x64), jax.default_matmul_precision(precision):
        for part in estimator.sample(work, state, batch):
            sums = part.sums
    counted = work.failures.drain() if copied and work.failures is not None else None
    return sums, counted


@dataclasses.dataclass
class _Item:
    batch: Batch
    future: Future


class Spread:
    """Batches on an executor, a bounded number of them ahead of what is merged.

    Args:
        executor: Where they are computed.
        sent: What each gets besides its numbers.
        work: The caller's, which counts failures.
        batches: All that may be wanted, in order.
        limit: Number of samples beyond which none is computed ahead, or None.
    """

    def __init__(
        self,
        executor: Executor,
        sent: Sent,
        work: Work,
        batches: Iterator[Batch],
        limit: int | None,
    ):
        self._executor, self._sent, self._work = executor, sent, work
        self._batches, self._limit = batches, limit
        self._next = next(batches)
        self._window: collections.deque[_Item] = collections.deque()
        workers: Any = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
        self._most = 2 * int(workers)
        self._own: ProcessPoolExecutor | None = None

    def parts(self, state: State, first: int, count: int) -> Iterator[Part]:
        """Yield what the next batches add, until they are `count` samples."""
        del state, first  # as announced by `batches`
        while count > 0:
            self._fill()
            item = self._window[0]
            sums, counted = self._result(item)
            self._window.popleft()
            if counted is not None and self._work.failures is not None:
                self._work.failures.count(*counted)
            count -= item.batch.used
            yield Part(item.batch.used, sums)

    def close(self) -> None:
        """Cancel what has not begun, and shut down what was made in here."""
        for item in self._window:
            cancel = getattr(item.future, "cancel", None)
            if cancel is not None:
                cancel()
        if self._own is not None:
            self._own.shutdown(cancel_futures=True)

    def _fill(self) -> None:
        for item in self._window:
            if _is_lost(item.future):
                item.future = self._submit(item.batch)
        limit = float("inf") if self._limit is None else self._limit
        while not self._window or (
            len(self._window) < self._most and self._next.first < limit
        ):
            self._window.append(_Item(self._next, self._submit(self._next)))
            self._next = next(self._batches)

    def _result(self, item: _Item) -> tuple[Moments | None, Counts | None]:
        """Wait for a batch; one that is lost runs again before others are submitted.

        A pool of processes is lost as a whole, so that it is not known whose fault that
        was, but if a batch fails alone.
        """
        for _ in range(TRIES):
            with contextlib.suppress(BrokenExecutor):
                return item.future.result()
            item.future = self._submit(item.batch)
        try:
            return item.future.result()
        except BrokenExecutor as error:
            first, used, _ = item.batch
            raise RuntimeError(
                f"executor lost the worker of samples {first} to {first + used - 1} "
                f"{TRIES + 1} times: does the utility end the process, or need more "
                "memory than there is?"
            ) from error

    def _submit(self, batch: Batch) -> Future:
        try:
            return self._executor.submit(compute, self._sent, batch)
        except BrokenExecutor as error:
            self._replace(error)
        return self._executor.submit(compute, self._sent, batch)

    def _replace(self, error: BrokenExecutor) -> None:
        """Make another pool like the broken one, which takes no work any more."""
        broken = self._executor
        if not isinstance(broken, ProcessPoolExecutor):
            raise RuntimeError(
                f"executor broke, and jaxsel can't make another {type(broken).__name__}"
            ) from error
        names = "max_workers", "mp_context", "initializer", "initargs"
        given = {name: getattr(broken, "_" + name) for name in names}
        made = ProcessPoolExecutor(**given)
        if self._own is not None:
            self._own.shutdown()
        self._own = self._executor = made


def _is_lost(future: Future) -> bool:
    done = getattr(future, "done", None)
    if done is None or not done():
        return False
    try:
        future.result()
    except BrokenExecutor:
        return True
    except BaseException:  # noqa: BLE001, for when its turn comes
        return False
    return False


def _pickled(thing: Any) -> bytes:
    try:
        return _dumps(thing)
    except Exception as error:
        path, part = _culprit(thing[1])
        raise TypeError(
            f"{path} must be picklable to be sent to another process, got {part!r}: "
            "take functions and classes at the top level of a module, or install "
            "cloudpickle for others"
        ) from error


def _dumps(thing: Any) -> bytes:
    """Pickle a thing, with cloudpickle if it needs that and it is installed."""
    try:
        return pickle.dumps(thing)
    except Exception:
        try:
            cloudpickle: Any = importlib.import_module("cloudpickle")
        except ImportError:
            cloudpickle = None
        if cloudpickle is None:
            raise
        return cloudpickle.dumps(thing)


def _culprit(work: Any) -> tuple[str, Any]:
    """Return the innermost attribute that can't be pickled, with its path."""
    path: list[str] = []
    thing = work
    for _ in range(_DEEP):
        for name, part in getattr(thing, "__dict__", {}).items():
            try:
                _dumps(part)
            except Exception:  # noqa: BLE001, of any kind
                path.append(name.strip("_"))
                thing = part
                break
        else:
            break
    return ".".join(path) or "the utility", thing
