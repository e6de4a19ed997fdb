"""KNN-Shapley for regression: the utility is a negative squared error.

References:
    Jia et al., Efficient task-specific data valuation for nearest neighbor algorithms,
    VLDB 2019, Theorem 6. The published sums hold for n > K only; the weights here also
    hold for n <= K (checked by enumeration).
"""

import dataclasses
from functools import partial
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Real

from jaxsel._devices.platform import take
from jaxsel._inputs.alignment import check_pair
from jaxsel._inputs.checks import (
    INT32,
    as_array,
    check_choice,
    check_count,
    check_finite,
    check_numeric,
    check_row,
    check_same_length,
)
from jaxsel._inputs.show import brief
from jaxsel._inputs.usual_mistakes import doubt_neighbours, doubt_same, doubt_targets
from jaxsel._results.types import Values
from jaxsel.neighbors import METRICS, Exact, Sort, unsort

from ._accumulate import accumulate
from ._linear import Array, describe
from ._options import KnnOptions, Options, knn_value
from ._semivalue import reverse_sum, settled_argsort
from ._task import Task


@knn_value
def knn_regression_shapley(
    x: Array,
    t: Array,
    x_val: Array,
    t_val: Array,
    *,
    k: int = 5,
    **options: Unpack[KnnOptions],
) -> Values:
    """Return the exact Shapley value of each training point for KNN regression.

    The utility of a set is minus the squared error of `sum(targets of its K nearest) /
    K`. The values sum to the gain of the whole training set over predicting zero, so
    centre the targets.

    Arguments, result and errors as for `knn_shapley`, but:

    Args:
        x: Training features, `[n, d]`.
        t: Training targets, `[n]`.
        x_val: Validation features, `[m, d]`.
        t_val: Validation targets, `[m]`.
        k: Number of neighbours.
        **options: As for all KNN values: see `KnnOptions`; but `ties` may be "stable"
            and `method` "exact" only, and there are no `weights`: the utility is not
            linear in the targets.

    References:
        Jia et al., Efficient task-specific data valuation for nearest neighbor
        algorithms, VLDB 2019, Theorem 6.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> area = np.array([[50.0], [60.0], [70.0], [80.0], [90.0], [100.0]])
        >>> price = np.array([100.0, 120.0, 140.0, 460.0, 180.0, 200.0])  # 160 mistyped
        >>> area_val, price_val = np.array([[62.0], [81.0]]), np.array([124.0, 162.0])
        >>> centre = price_val.mean()
        >>> values = jaxsel.knn_regression_shapley(
        ...     area, price - centre, area_val, price_val - centre, k=2
        ... )
        >>> print(values.bottom(1))
        [3]
    """
    k = check_count("k", k, maximum=INT32)
    return _values(x, t, x_val, t_val, k=k, options=Options(**options))


def _values(
    x: Array,
    t: Array,
    x_val: Array,
    t_val: Array,
    *,
    k: int,
    options: Options,
) -> Values:
    metric = options.metric
    check_choice("ties", options.ties, ("stable",))
    check_choice("method", options.method, ("exact",))
    if options.weights is not None:
        raise ValueError(
            "weights must be None: knn_regression_shapley does not weight by distance"
        )
    check_choice("metric", metric, METRICS)
    mesh = options.mesh if options.split == "training" else None
    pair = check_pair(x, t, x_val, t_val, mesh=mesh, names=("t", "t_val"))
    targets = []
    for name, value, rows_name, rows in (
        ("t", t, "x", pair.x),
        ("t_val", t_val, "x_val", pair.x_val),
    ):
        array = as_array(name, value)
        check_numeric(name, array)
        if array.ndim != 1:
            raise ValueError(f"{name} must have shape [n], got {array.shape}")
        check_same_length(rows_name, rows, name, array)
        check_finite(name, array)
        targets.append(np.asarray(array, np.float32))
    doubt_targets(targets[0])
    doubt_same(pair.x, targets[0], pair.x_val, targets[1])
    doubt_neighbours(k, len(pair.x))
    return accumulate(
        _regression_kernel,
        regression_table(len(pair.x), k),
        Task(pair.x, targets[0], pair.x_val, targets[1], pair.row_labels),
        options=options,
        certified=False,
        method=describe("knn_regression_shapley", k=k, metric=metric),
    )


@brief
@partial(
    jax.tree_util.register_dataclass,
    data_fields=["nearer", "farther", "chance"],
    meta_fields=["k"],
)
@dataclasses.dataclass(frozen=True)
class RegressionTable:
    """Weights by rank, `[n]` each: how often two points are neighbours."""

    nearer: jax.Array
    farther: jax.Array
    chance: jax.Array
    k: int


def regression_table(n: int, k: int) -> RegressionTable:
    """Return the weights that `regression_shapley` takes, on the host.

    Args:
        n: Number of training points.
        k: Number of neighbours.
    """
    rank = np.arange(1, n + 1, dtype=np.float64)

    def together(r: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.minimum(k - 1, r - 1) * np.minimum(k, r) / (2 * r * (r - 1))
        return np.where(r > 1, weight, 0.0)

    to_float = partial(jnp.asarray, dtype=jnp.float32)
    return RegressionTable(
        nearer=to_float(together(rank)),
        farther=to_float(together(rank - 1)),
        chance=to_float(np.minimum(k, rank) / rank),
        k=k,
    )


def regression_shapley(
    distances: Real[jax.Array, " n"],
    targets: Real[jax.Array, " n"],
    target: Real[jax.Array, ""] | float,
    table: RegressionTable,
    *,
    sort: Sort = "auto",
    exact: Exact | None = None,
) -> Float[jax.Array, " n"]:
    """Value every training point for one validation point: a pure kernel.

    The utility is `-(sum of the targets of the K nearest / K - target)**2`.

    Args:
        distances: Array of shape `[n]`.
        targets: Array of shape `[n]`.
        target: Scalar: the validation point's target.
        table: `regression_table(n, k)`.
        sort: How to sort; see `jaxsel.neighbors.argsort`.
        exact: What settles the order of points that float32 distances leave open.

    Returns:
        Array of shape `[n]`, in squared units of the target. Costs one sort.

    Raises:
        ValueError: If a shape is not as stated, or `sort` is unknown or not there.
    """
    (n,) = check_row("distances", distances)
    check_row("targets", targets, n=n)
    if table.chance.shape != (n,):
        raise ValueError(
            f"table must be regression_table(n, k) with n = {n}, got n = "
            f"{table.chance.shape[0]}"
        )
    targets = targets.astype(jnp.float32)
    # K times the drops of the Shapley weights 1 / max(r, K): they tell how fast ranks
    # cease to matter here too, though values are quadratic in the targets.
    drop = jnp.concatenate([jnp.zeros(1), -jnp.diff(table.chance)])
    order = settled_argsort(distances, targets, drop, exact=exact, sort=sort)
    y = take(targets, order) / table.k
    after = jnp.concatenate([y[1:], jnp.zeros(1, y.dtype)])
    # The sum over nearer points, as a reverse sum of the flipped row: in blocks, and a
    # forward `cumsum` takes XLA:CPU five times as long.
    nearer = jnp.flip(reverse_sum(jnp.flip(y)))
    weighted = reverse_sum(table.farther * y)
    # From r + 2 on: the sum of all later terms, less that of r + 1.
    first = jnp.concatenate([(table.farther * y)[1:], jnp.zeros(1, y.dtype)])
    pull = 2 * (table.nearer * nearer + weighted - first)
    step = -(y - after) * (pull + (y + after - 2 * target) * table.chance)
    return unsort(order, reverse_sum(step) + step)


def _regression_kernel(
    params: Any, distances: jax.Array, train: Any, query: Any, exact: Exact | None
) -> tuple[jax.Array, None]:
    return regression_shapley(distances, train, query, params, exact=exact), None
