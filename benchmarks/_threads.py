"""One thread for every contender: BLAS, OpenMP, torch, XLA, and processes begun here.

Threads of a pool that wait for work spin, and their CPU seconds count: two of OpenBLAS
double what a peer takes on small matrices, and gain nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator

THREADS = 1
VARIABLES = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What XLA, OpenMP and both kinds of BLAS read once, when they start."""


@contextlib.contextmanager
def limited(threads: int | None = THREADS) -> Iterator[None]:
    """Limit the threads of all that starts in this context, processes included.

    Libraries that have started before are limited by `limit`; XLA cannot be, so enter
    before anything asks JAX for its devices.

    Args:
        threads: How many, or None to take the limit away for processes begun here.
    """
    before = {name: os.environ.get(name) for name in VARIABLES}
    try:
        for name in VARIABLES:
            _set(name, None if threads is None else str(threads))
        yield
    finally:
        for name, value in before.items():
            _set(name, value)


def limit() -> int | None:
    """Limit the threads of BLAS, OpenMP and torch, as far as they are loaded.

    Call it after every import: a library that comes later has a pool of its own.

    Returns:
        The number of threads; None without threadpoolctl, which scikit-learn brings,
        and without which the BLAS of NumPy keeps a thread for each core.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(THREADS)
    if importlib.util.find_spec("threadpoolctl") is None:
        return None
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=THREADS)
    return THREADS


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
