"""Kernel operations with platform-specific fast paths."""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

_T = TypeVar("_T")


def scatter_index(index: jax.Array) -> jax.Array:
    """Cast indices to uint32 for a scatter, so that it shares none with a gather.

    Under vmap XLA:CPU builds batch-and-row index pairs for each of them. If both want
    the same pairs it builds them once, in memory, and reads them back: 3 times slower
    than computing them twice in passing (12 against 4 ns an entry).
    """
    return index.astype(jnp.uint32)


def take(values: jax.Array, indices: jax.Array) -> jax.Array:
    """Gather along the first axis by indices known to be in bounds.

    Args:
        values: Array of shape `[n, ...]`.
        indices: Integers from 0 to n - 1, of any shape. Others are undefined behaviour.

    Returns:
        Array of shape `[*indices.shape, ...]`.
    """
    return jnp.asarray(values).at[indices].get(mode="promise_in_bounds")


def on_platform(cpu: Callable[..., _T], other: Callable[..., _T], *operands: Any) -> _T:
    """Run one function on CPUs and another elsewhere, as the program is lowered."""
    return lax.platform_dependent(*operands, cpu=cpu, default=other)


class _OneThread(contextlib.ContextDecorator):
    """Context that keeps BLAS at one thread from the first entry to the last exit.

    Limits hold for the whole process: if each context restored its own, two that
    overlap could leave the limit of one behind.
    """

    def __init__(self) -> None:
        self.lock, self.inside = threading.Lock(), 0
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                blas = _blas(len(sys.modules))
                self.limit = blas.limit(limits=1, user_api="blas")
            self.inside += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside and self.limit is not None:
                self.limit.restore_original_limits()


_ONE_THREAD = _OneThread()
_SMALL = 1 << 20  # numbers in a table up to which threads cost more than they save


def one_thread() -> _OneThread:
    """Return a context, or a decorator, that keeps BLAS from splitting small matrices.

    Threads wait for each other: on a busy machine decompositions take 20 times as long.
    """
    return _ONE_THREAD


def one_thread_if_small(x: Any) -> contextlib.AbstractContextManager[None]:
    """Return the context of `one_thread` for a table of up to 2²⁰ numbers.

    Wait for JAX's results within it: their decompositions are SciPy's on CPUs.
    """
    return one_thread() if x.size <= _SMALL else contextlib.nullcontext()


@functools.lru_cache(1)  # a search among the loaded libraries takes 4 ms
def _blas(modules: int) -> Any:
    """Return a controller of the loaded BLAS libraries; cached per module count."""
    # XLA would load it with the first decomposition, after the limit.
    import scipy.linalg  # noqa: F401
    import threadpoolctl

    del modules
    return threadpoolctl.ThreadpoolController()
