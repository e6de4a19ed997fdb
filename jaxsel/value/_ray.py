"""Ray's tasks behind the `submit` of `concurrent.futures`."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

from jaxsel._runs.executor import Sent

_LOST = (
    "WorkerCrashedError",
    "NodeDiedError",
    "ObjectLostError",
    "OutOfMemoryError",
    "TaskUnschedulableError",
)


class RayExecutor:
    """Run batches as tasks of Ray: an `Executor`, on one host or a cluster.

    Connect first, by `ray.init(...)`; without, Ray starts on this host. The data are
    put into Ray's object store once per run, from where each node takes them once.
    Hosts need the same versions of jaxsel and JAX.

    Args:
        **options: Of `ray.remote`, for each task, such as `num_cpus=2`, `num_gpus=1` or
            `memory=2**30`.

    Raises:
        ImportError: If Ray is not installed.
    """

    def __init__(self, **options: Any):
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise ImportError(
                "RayExecutor needs ray: pip install 'jaxsel[ray]'"
            ) from error
        if not self._ray.is_initialized():
            self._ray.init()
        kind = "GPU" if options.get("num_gpus") else "CPU"
        per_task = options.get(f"num_{kind.lower()}s", 1) or 1
        total = self._ray.cluster_resources().get(kind, 1)
        self._max_workers = max(1, int(total / per_task))
        # Tasks that are lost are submitted again by the run.
        self._options = {"max_retries": 0, **options}
        self._sent: Sent | None = None
        self._reference: Any = None
        self._task: tuple[Any, Any] = None, None

    def __repr__(self) -> str:
        return f"RayExecutor({self._max_workers} workers, {self._options})"

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> RayFuture:
        """Start a function as a task."""
        known, task = self._task  # at once, since several threads may submit
        if known is not fn:  # Ray sends each task that is made to every worker
            task = self._ray.remote(**self._options)(fn)
            self._task = fn, task
        return RayFuture(self._ray, task.remote(*map(self._shared, args)))

    def _shared(self, arg: Any) -> Any:
        """Return a reference to a run's shared argument; any other one as it is."""
        if not isinstance(arg, Sent):
            return arg
        if arg is not self._sent:
            self._sent, self._reference = arg, self._ray.put(arg.packed())
        return self._reference


class RayFuture:
    """The result of a task, with the errors of `concurrent.futures`."""

    def __init__(self, ray: Any, reference: Any):
        self._ray, self._reference = ray, reference

    def result(self) -> Any:
        """Wait; return the function's result, or raise its error."""
        errors = self._ray.exceptions
        lost = tuple(getattr(errors, name) for name in _LOST if hasattr(errors, name))
        try:
            return self._ray.get(self._reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        except lost as error:
            raise BrokenExecutor(str(error)) from error

    def done(self) -> bool:
        """Return whether there is a result, or an error."""
        return bool(self._ray.wait([self._reference], timeout=0)[0])

    def cancel(self) -> None:
        """Drop the task, unless it runs already."""
        with contextlib.suppress(Exception):
            self._ray.cancel(self._reference)
