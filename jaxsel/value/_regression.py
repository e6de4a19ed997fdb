"""KNN-Shapley for regression: the utility is a negative squared error.

References:
    Jia et al., Efficient task-specific data valuation for nearest neighbor algorithms,
    VLDB 2019, Theorem 6. The published sums hold for n > K only; the weights here also
    hold for n <= K (checked by enumeration).
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ..neighbors._order import Sort, argsort, take, unsort
from ._semivalue import reverse_sum


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["nearer", "farther", "chance"],
    meta_fields=["k"],
)
@dataclasses.dataclass(frozen=True)
class RegressionTable:
    """Weights by rank, `[n]` each: how often pairs of points are neighbours together."""

    nearer: jax.Array
    farther: jax.Array
    chance: jax.Array
    k: int


def regression_table(n: int, k: int) -> RegressionTable:
    """Prepare the weights for n training points and k neighbours."""
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
    distances: jax.Array,
    targets: jax.Array,
    target: jax.Array,
    table: RegressionTable,
    *,
    sort: Sort = "auto",
) -> jax.Array:
    """Value every training point for one validation point: a pure kernel.

    The utility is `-(sum of the targets of the K nearest / K - target)**2`.

    Args:
        distances: Array of shape `[n]`.
        targets: Array of shape `[n]`.
        target: Scalar: the validation point's target.
        table: `regression_table(n, k)`.
        sort: How to sort; see `jaxsel.neighbors.argsort`.

    Returns:
        Array of shape `[n]`, in squared units of the target. Costs one sort.
    """
    order = argsort(distances, sort=sort)
    y = take(targets.astype(jnp.float32), order) / table.k
    after = jnp.concatenate([y[1:], jnp.zeros(1, y.dtype)])
    nearer = jnp.flip(reverse_sum(jnp.flip(y)))
    weighted = reverse_sum(table.farther * y)
    # From r + 2 on: the sum of all later terms, less that of r + 1.
    first = jnp.concatenate([(table.farther * y)[1:], jnp.zeros(1, y.dtype)])
    pull = 2 * (table.nearer * nearer + weighted - first)
    step = -(y - after) * (pull + (y + after - 2 * target) * table.chance)
    return unsort(order, reverse_sum(step) + step)
