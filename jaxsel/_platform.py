"""Small things that kernels need on every platform, written as each likes them."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

_T = TypeVar("_T")


def scatter_index(index: jax.Array) -> jax.Array:
    """Give indices another type for a scatter than for a gather.

    Under vmap XLA:CPU builds batch-and-row index pairs for each of them. If both want
    the same pairs it builds them once, in memory, and reads them back: 3 times slower
    than computing them twice in passing (12 against 4 ns an entry).
    """
    return index.astype(jnp.uint32)


def take(values: jax.Array, indices: jax.Array) -> jax.Array:
    """Gather along the first axis by indices known to be in bounds.

    Args:
        values: Array of shape `[n, ...]`.
        indices: Array of any shape, of integers from 0 to n - 1: others give anything.

    Returns:
        Array of the indices' shape, and the rest of that of `values`.
    """
    return jnp.asarray(values).at[indices].get(mode="promise_in_bounds")


def on_platform(cpu: Callable[..., _T], other: Callable[..., _T], *operands: Any) -> _T:
    """Run one function on CPUs and another elsewhere, as the program is lowered."""
    return lax.platform_dependent(*operands, cpu=cpu, default=other)


def one_thread() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which BLAS does not split small matrices among threads.

    These wait for each other: on a busy machine decompositions take 20 times as long.
    """
    controller = _blas()
    if controller is None:
        return contextlib.nullcontext()
    return controller.limit(limits=1, user_api="blas")


@functools.cache  # a search among the loaded libraries takes 4 ms
def _blas() -> Any:
    try:
        import threadpoolctl
    except ImportError:  # it comes with scikit-learn
        return None
    return threadpoolctl.ThreadpoolController()
