"""Processes on the cores that others leave free, for long runs outside JAX."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import threading
from concurrent.futures import BrokenExecutor
from typing import Any

import jax

from .executor import Executor


def free_cores() -> int:
    """Return how many cores of this process's other programs leave free, at least 1."""
    joblib: Any = importlib.import_module("joblib")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    # This process's own share of the load is one.
    return max(1, int(joblib.cpu_count()) - round(max(0.0, load - 1)))


def local_processes() -> Executor | None:
    """Start a process for each free core; None where there are no two, or on a device.

    They are joblib's, which other calls take over, and which end when idle. They do not
    import the caller's script, so that it needs no `if __name__ == "__main__"`.
    """
    nested = multiprocessing.parent_process() is not None
    aside = threading.current_thread() is not threading.main_thread()
    # Each process would take a device's memory for itself.
    if nested or aside or jax.default_backend() != "cpu" or free_cores() < 2:
        return None
    loky: Any = importlib.import_module("joblib.externals.loky")
    try:
        return loky.get_reusable_executor(max_workers=free_cores(), timeout=60)
    except (OSError, BrokenExecutor):  # no shared memory, as in some containers
        return None


def by_value(thing: Any) -> bytes:
    """Pickle a thing, with the functions and classes of the caller's script in it."""
    reduction: Any = importlib.import_module("joblib.externals.loky.backend.reduction")
    return bytes(reduction.dumps(thing))
