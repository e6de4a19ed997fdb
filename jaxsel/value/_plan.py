"""Static configuration of a chunk's compiled step."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax

from jaxsel._results.types import Reduce
from jaxsel.neighbors import Exact, Metric

Split = Literal["validation", "training"]

# How many (validation point, training point) pairs are in memory at once, on each
# device, at 10 to 60 bytes each. On a CPU malloc hands out the same memory again below
# 32 MB; above, every chunk pays for new pages (a quarter of the hybrid's time at twice
# this). A GPU wants large chunks: at a tenth of this it takes 1.7 times as long.
_ENTRIES = {"cpu": 500_000}
_ENTRIES_ELSEWHERE = 50_000_000

# (params, distances [n], train, query, `Exact` to settle near ties, or None)
# -> (values [n], error bound [n] or None)
Kernel = Callable[
    [Any, jax.Array, Any, Any, Exact | None], tuple[jax.Array, jax.Array | None]
]


class Plan(NamedTuple):
    """The key under which a step is compiled; see `accumulate`."""

    kernel: Kernel
    metric: Metric
    reduce: Reduce
    certified: bool
    chunk_size: int | None
    mesh: jax.sharding.Mesh | None


def entries() -> int:
    """Return how many pairs are in memory at once, on each device."""
    return _ENTRIES.get(jax.default_backend(), _ENTRIES_ELSEWHERE)
