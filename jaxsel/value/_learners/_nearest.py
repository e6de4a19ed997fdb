"""K nearest neighbours, on many subsets at once."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key, Shaped

from jaxsel._devices.typed import lax_map
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel.neighbors import METRICS, Metric, distances, normalise
from jaxsel.value._examples import Examples


class Neighbors(NamedTuple):
    """Subsets of a training set.

    Attributes:
        weights: `[B, n]`.
        x: `[n, d]`.
        onehot: `[n, C]`.
    """

    weights: jax.Array
    x: jax.Array
    onehot: jax.Array


@dataclasses.dataclass(frozen=True)
class KNN:
    """K nearest neighbours: the share of each class among them, equally weighted.

    Of smaller subsets it is the share among all. Ties go by index. Metric "likelihood"
    makes it the utility of `soft_knn_shapley`, which is exact and far cheaper: this is
    for other metrics. Costs one sort of the training points for each sample, and
    2 n m C operations a subset.

    Args:
        k: Neighbours.
        metric: "l2" or "cosine".
    """

    k: int = 5
    metric: Metric = "l2"

    probabilistic = True
    regression = False
    warm = False
    host = False

    def __post_init__(self) -> None:
        check_count("k", self.k)
        check_choice("metric", self.metric, METRICS)

    @property
    def shift_invariant(self) -> bool:
        """True if a constant that is added to a column changes no prediction."""
        return self.metric == "l2"

    def prepare(self, data: Examples) -> Examples:
        """Return the examples as they are."""
        return data

    def fit(
        self,
        data: Examples,
        weights: Shaped[jax.Array, "B n"],
        key: Key[jax.Array, ""] | None = None,
        start: Any = None,
    ) -> Neighbors:
        """Remember each subset: see `Learner.fit`."""
        del key, start
        onehot = jax.nn.one_hot(data.y, data.n_classes, dtype=jnp.float32)
        return Neighbors(jnp.asarray(weights, jnp.float32), data.x, onehot)

    def predict(
        self, params: Neighbors, x: Shaped[jax.Array, "m d"]
    ) -> Float[jax.Array, "B m C"]:
        """Return log shares of votes, `[B, m, C]`: see `Learner.predict`."""
        points, queries = (
            jnp.asarray(params.x, jnp.float32),
            jnp.asarray(x, jnp.float32),
        )
        if self.metric == "cosine":
            points, queries = normalise(points), normalise(queries)
        else:  # a rounded mean leaves ties of whole numbers as they are
            centre = jnp.round(points.mean(0, keepdims=True))
            points, queries = points - centre, queries - centre
        near = distances(points, queries, metric=self.metric)
        order = jnp.argsort(near, axis=1, stable=True)

        def votes(order: jax.Array) -> jax.Array:
            weights = params.weights[:, order]
            before = jnp.cumsum(weights, axis=1) - weights
            # A weight is a number of equal points, of which the last may count in part.
            taken = jnp.clip(self.k - before, 0, weights)
            return jnp.matmul(taken, params.onehot[order], precision="highest")

        counts = lax_map(votes, order).transpose(1, 0, 2)
        return jnp.log(counts) - jnp.log(counts.sum(-1, keepdims=True))
