"""Limits of the machine: peak rates of matrix products and of reading memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ._probe import block
from ._records import Json

_ROUNDS = 7


def measure(clock: str, *, quick: bool = False) -> dict[str, float]:
    """Measure the machine's limits.

    Args:
        clock: "cpu_s" or "wall_s".
        quick: Whether tiny sizes will do, which say nothing of the machine.

    Returns:
        `flops_per_s`, of a product of square float32 matrices at highest precision, and
        `bytes_per_s`, read by the product of a large float32 matrix and a vector: the
        best of some rounds each.
    """
    on_cpu = jax.default_backend() == "cpu"
    side = 256 if quick else (2048 if on_cpu else 8192)
    rows = 2**8 if quick else (2**17 if on_cpu else 2**21)
    square, long = jnp.ones((side, side)), jnp.ones((rows, 512))
    times = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    return {
        "flops_per_s": 2 * side**3 / _best(lambda: times(square, square), clock),
        "bytes_per_s": long.nbytes / _best(lambda: times(long, long[0]), clock),
    }


def share(case: Json, seconds: float, limits: Json | None) -> float | None:
    """Return the share of the machine's limit that was reached.

    Args:
        case: As in a record: the operations and bytes that a unit of its work needs.
        seconds: How long a unit took.
        limits: As in a record, or None.

    Returns:
        The larger of both shares; None if the limits or what is needed are not known.
    """
    if not limits:
        return None
    least = max(
        case.get("flops", 0.0) / limits["flops_per_s"],
        case.get("bytes", 0.0) / limits["bytes_per_s"],
    )
    return least / seconds if least else None


def _best(call: Callable[[], Any], clock: str) -> float:
    """Return the seconds of the fastest call."""
    now = time.process_time if clock == "cpu_s" else time.perf_counter
    block(call())
    seconds = []
    for _ in range(_ROUNDS):
        start = now()
        block(call())
        seconds.append(now() - start)
    return min(seconds)
