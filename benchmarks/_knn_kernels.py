"""KNN-Shapley by the sort or the bands that a contender names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from jaxsel.neighbors import Sort
from jaxsel.neighbors._exact import Exact
from jaxsel.value import rank_table, semivalue, shapley_weights
from jaxsel.value._accumulate import accumulate
from jaxsel.value._hybrid import HEAD, semivalue_hybrid
from jaxsel.value._options import Options
from jaxsel.value._task import Task
from jaxsel.value._weights import RankTable

from ._knn import Points

Arrays = tuple[Any, Any, Any, Any]
Call = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class _Sorted:
    """The semivalue kernel with the sort path that it is told, for `accumulate`."""

    sort: Sort

    def __call__(
        self,
        table: RankTable,
        distances: jax.Array,
        y: jax.Array,
        label: jax.Array,
        exact: Exact | None,
    ) -> tuple[jax.Array, None]:
        values = semivalue(distances, y == label, table, sort=self.sort, exact=exact)
        return values, None


@dataclasses.dataclass(frozen=True)
class _Banded:
    """The kernel of hybrid values, for `accumulate`."""

    def __call__(
        self,
        table: RankTable,
        distances: jax.Array,
        y: jax.Array,
        label: jax.Array,
        exact: Exact | None,
    ) -> tuple[jax.Array, jax.Array]:
        head = min(HEAD, len(y) // 4)  # fewer for tiny inputs only
        return semivalue_hybrid(distances, y == label, table, head=head, exact=exact)


def sorted_by(sort: Sort, points: Points, arrays: Arrays) -> Call:
    """Return exact values by one way to sort.

    Args:
        sort: The way.
        points: What `arrays` holds, on the host.
        arrays: Training and validation features and labels.
    """
    table = rank_table(shapley_weights(len(points.x), points.k))
    return _accumulated(_Sorted(sort), table, points, arrays, certified=False)


def banded(points: Points, arrays: Arrays) -> Call:
    """Return hybrid values by bands of distance, where `knn_shapley` may sort.

    Args:
        points: What `arrays` holds, on the host.
        arrays: Training and validation features and labels.
    """
    table = rank_table(shapley_weights(len(points.x), points.k), running=True)
    return _accumulated(_Banded(), table, points, arrays, certified=True)


def _accumulated(
    kernel: Any, table: RankTable, points: Points, arrays: Arrays, *, certified: bool
) -> Call:
    x, y, x_val, _ = arrays
    return lambda: accumulate(
        kernel,
        table,
        Task(x, y, x_val, points.y_val),  # the last is cut into chunks on the host
        options=Options(),
        certified=certified,
        method="",
    )
