"""Executors of `concurrent.futures`; items of lost workers are computed again.

The caller submits work items ahead and takes their results in order. What an item
returns depends on the item alone, so results do not depend on where it is computed.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import importlib
import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

import jax

_LOG = logging.getLogger(__name__)
_LOST = "a worker was lost: computing %s again"
TRIES = 3  # of an item whose worker was lost, after the first
_KEPT = 2  # contents that a worker knows
_DEEP = 8  # attributes of attributes in which to look for what can't be pickled

_known: dict[str, Any] = {}

T = TypeVar("T")


class Future(Protocol):
    """Protocol of a future: a result to wait for.

    Futures that have `done` and `cancel` as well, as in `concurrent.futures`, are
    submitted again earlier when they are lost, and are cancelled when a run ends.
    """

    def result(self) -> Any:
        """Wait for the function's result and return it, or raise its exception."""
        ...


class Executor(Protocol):
    """Protocol of an executor, as in `concurrent.futures`.

    A future whose worker was lost raises `concurrent.futures.BrokenExecutor`. An
    attribute `_max_workers`, as those of the standard library have it, says how much to
    submit ahead: two batches a worker. One without gets two for each processor here.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future:
        """Start a function on a worker."""
        ...


def check_executor(executor: Any, mesh: Any = None) -> None:
    """Raise if `executor` is none, forks processes, or comes with a mesh."""
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


def workers_of(executor: Any) -> int:
    """Return how many workers an executor has, or processors here if it doesn't say."""
    return int(getattr(executor, "_max_workers", None) or os.cpu_count() or 1)


class Sent:
    """Contents that all items share: pickled once, and opened once by each process.

    Executors that pickle nothing, such as threads, open the original.

    Args:
        contents: Anything that can be pickled.
        named: Name and part of the contents that an error blames if that fails.
    """

    def __init__(self, contents: Any, named: tuple[str, Any]):
        precision: Any = jax.config.jax_default_matmul_precision  # pyright: ignore
        x64 = bool(jax.config.jax_enable_x64)  # pyright: ignore
        draws = bool(jax.config.jax_threefry_partitionable)  # pyright: ignore
        self._contents: Any = contents
        self._settings: Any = x64, precision, draws
        self._named = named
        self._packed: bytes | None = None
        self._digest = ""

    def packed(self) -> Sent:
        """Return a copy as another process would unpickle it."""
        copy = object.__new__(type(self))
        vars(copy).update(self.__getstate__())
        return copy

    def __getstate__(self) -> dict[str, Any]:
        if self._packed is None:
            self._packed = _pickled(self._contents, *self._named)
            self._digest = hashlib.sha256(self._packed).hexdigest()
        return {
            "_contents": None,
            "_settings": self._settings,
            "_named": (self._named[0], None),
            "_packed": self._packed,
            "_digest": self._digest,
        }

    def open(self) -> tuple[Any, bool]:
        """Return the contents, and whether they are a copy: this process's own."""
        if self._contents is not None:
            return self._contents, False
        if self._digest not in _known:
            contents = pickle.loads(self._packed or b"")
            self.opened(contents)
            while len(_known) >= _KEPT:
                _known.pop(next(iter(_known)))
            _known[self._digest] = contents
        return _known[self._digest], True

    def opened(self, contents: Any) -> None:
        """Prepare a copy, before its first use."""

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """Apply the caller's settings of JAX, which other threads do not have."""
        x64, precision, draws = self._settings
        with (
            jax.enable_x64(x64),
            jax.default_matmul_precision(precision),
            jax.threefry_partitionable(draws),
        ):
            yield


class Renewed:
    """An executor that replaces broken process pools.

    Several threads may submit at once.
    """

    def __init__(self, executor: Executor):
        self._executor = executor
        self._own: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future:
        """Start a function, in another pool if this one takes no work any more."""
        for _ in range(TRIES):
            executor = self._executor
            try:
                return executor.submit(fn, *args)
            except BrokenExecutor as error:
                self._replace(executor, error)
        return self._executor.submit(fn, *args)

    def result(self, future: Future, again: Callable[[], Future], name: str) -> Any:
        """Wait for a result, and have it computed again where a worker was lost.

        A process pool breaks as a whole, so the item at fault is known only if it was
        alone.

        Args:
            future: The future to wait for.
            again: Submits the same item once more.
            name: The item's name in errors.
        """
        for _ in range(TRIES):
            with contextlib.suppress(BrokenExecutor):
                return future.result()
            _LOG.warning(_LOST, name)
            future = again()
        try:
            return future.result()
        except BrokenExecutor as error:
            raise RuntimeError(
                f"executor lost the worker of {name} {TRIES + 1} times: does what "
                "it computes end the process, or need more memory than there is?"
            ) from error

    def shutdown(self) -> None:
        """Shut down a pool made here; the caller's stays open."""
        if self._own is not None:
            self._own.shutdown(cancel_futures=True)

    def _replace(self, broken: Executor, error: BrokenExecutor) -> None:
        """Make another pool like the broken one."""
        if not isinstance(broken, ProcessPoolExecutor):
            raise RuntimeError(
                f"executor broke, and jaxsel can't make another {type(broken).__name__}"
            ) from error
        with self._lock:
            if self._executor is not broken:  # another thread did it
                return
            names = "max_workers", "mp_context", "initializer", "initargs"
            arguments = {name: getattr(broken, "_" + name) for name in names}
            replacement = ProcessPoolExecutor(**arguments)
            if self._own is not None:
                self._own.shutdown()
            self._own = self._executor = replacement


@dataclasses.dataclass
class _Waiting(Generic[T]):
    item: T
    future: Future


class Ahead(Generic[T]):
    """Items on an executor, a bounded number of them ahead of the next one.

    Args:
        executor: The executor.
        function: A function of `sent` and an item.
        sent: Contents that all calls share.
        items: All items that may be wanted, in order.
        name: Returns an item's name for errors.
        wanted: Returns whether to compute an item ahead of time.
    """

    def __init__(
        self,
        executor: Executor,
        function: Callable[[Any, T], Any],
        sent: Sent,
        items: Iterator[T],
        *,
        name: Callable[[T], str],
        wanted: Callable[[T], bool] = lambda item: True,
    ):
        self._renewed = Renewed(executor)
        self._function, self._sent = function, sent
        self._items, self._name, self._wanted = items, name, wanted
        self._next: T | None = next(items, None)
        self._window: collections.deque[_Waiting[T]] = collections.deque()
        self._most = 2 * workers_of(executor)

    def __iter__(self) -> Iterator[tuple[T, Any]]:
        """Yield each item with its result, in order."""
        return self

    def __next__(self) -> tuple[T, Any]:
        self._fill()
        if not self._window:
            raise StopIteration
        first = self._window[0]
        again = lambda: self._submit(first.item)  # before others are submitted
        result = self._renewed.result(first.future, again, self._name(first.item))
        self._window.popleft()
        return first.item, result

    def close(self) -> None:
        """Cancel items that have not begun, and shut down a pool made here."""
        for waiting in self._window:
            cancel = getattr(waiting.future, "cancel", None)
            if cancel is not None:
                cancel()
        self._renewed.shutdown()

    def _fill(self) -> None:
        for waiting in self._window:
            if _is_lost(waiting.future):
                _LOG.warning(_LOST, self._name(waiting.item))
                waiting.future = self._submit(waiting.item)
        while self._next is not None and (
            not self._window
            or (len(self._window) < self._most and self._wanted(self._next))
        ):
            self._window.append(_Waiting(self._next, self._submit(self._next)))
            self._next = next(self._items, None)

    def _submit(self, item: T) -> Future:
        return self._renewed.submit(self._function, self._sent, item)


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


def _pickled(thing: Any, name: str, blamed: Any) -> bytes:
    try:
        return _dumps(thing)
    except Exception as error:
        path, part = _culprit(name, blamed)
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


def _culprit(name: str, blamed: Any) -> tuple[str, Any]:
    """Return the innermost attribute that can't be pickled, with its path."""
    path: list[str] = []
    thing = blamed
    for _ in range(_DEEP):
        for attribute, part in getattr(thing, "__dict__", {}).items():
            try:
                _dumps(part)
            except Exception:  # noqa: BLE001, of any kind
                path.append(attribute.strip("_"))
                thing = part
                break
        else:
            break
    return ".".join(path) or name, thing
