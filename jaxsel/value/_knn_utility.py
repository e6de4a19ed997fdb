"""The utility of KNN values as a game: for owners, and for any estimator."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import INT32, check_count
from jaxsel._runs.fingerprint import fingerprint
from jaxsel.neighbors import Metric

from ._linear import Array
from ._task import check_task

_ENTRIES = 1 << 22  # distances at a time, in float64


@dataclasses.dataclass(frozen=True, eq=False)
class KnnUtility:
    """Utility of `knn_utility`: the share of the K nearest with the right label.

    Attributes:
        n: Number of players: points, or owners.
        k: Number of neighbours.
        players: For each validation point, the players of its candidates, the nearest
            first: `[m, c]` int32.
        gains: Their gains, `[m, c]`.
        index: Labels of the players, or None.
    """

    n: int
    k: int
    players: np.ndarray
    gains: np.ndarray
    index: tuple[Any, ...] | None = None

    def __repr__(self) -> str:
        return f"KnnUtility(k={self.k}, n={self.n}, m={len(self.players)})"

    @functools.cached_property
    def about(self) -> dict[str, str]:
        """Identity of this utility, by name."""
        return {
            "utility": f"knn_utility(k={self.k})",
            "neighbours": fingerprint(self.players, self.gains),
            "owners": fingerprint(list(self.index or ())),
        }

    def __call__(self, masks: Any, key: Any = None) -> jax.Array:
        """Return the utility of coalitions `[B, n]`, `[B]`."""
        del key
        members = jnp.asarray(masks).astype(bool)
        near = jnp.asarray(self.players), jnp.asarray(self.gains)
        return _worth(members, *near, k=self.k)

    def of_owners(self, codes: np.ndarray, index: tuple[Any, ...]) -> KnnUtility:
        """Return the game of owners, with only the K nearest points of each."""
        owner = codes[self.players]
        kept = np.zeros(owner.shape, bool)
        for g in range(len(index)):
            belongs = owner == g
            # Of an owner all points join or none do, so at most its K nearest can be
            # among the K nearest of a coalition.
            kept |= belongs & (np.cumsum(belongs, axis=1) <= self.k)
        # The same number in every row: of each owner K, or as many as it has.
        shape = (len(owner), -1)
        return KnnUtility(
            len(index),
            self.k,
            owner[kept].reshape(shape),
            self.gains[kept].reshape(shape),
            index,
        )


def knn_utility(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int = 5,
    metric: Metric = "l2",
) -> KnnUtility:
    """Return the utility of `knn_shapley` as a game that estimators take.

    Of points, `knn_shapley` is far cheaper. Use it for owners: the value of an owner in
    a game of owners is not the sum of the values of its points. With `owners=`, a
    coalition costs m times K times the number of owners, whatever n.

    Args:
        x: Training features, `[n, d]`.
        y: Training labels, or class probabilities.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels, or class probabilities.
        k: Number of neighbours. The divisor is K even if a coalition is smaller.
        metric: "l2" or "cosine".

    Returns:
        A utility of n players. It takes 8 m n bytes. Ties are ordered by index.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: As for `knn_shapley`.
    """
    k = check_count("k", k, maximum=INT32)
    task, classes = check_task(x, y, x_val, y_val, metric=metric, k=k)
    points, queries = (np.asarray(a, np.float64) for a in (task.x, task.x_val))
    if metric == "cosine":
        points, queries = _unit(points), _unit(queries)
    rows = max(1, _ENTRIES // (points.shape[0] * max(1, points.shape[1])))
    # Sums of squared differences rather than |x|² + |q|² - 2 x.q: nothing cancels, and
    # equal points tie exactly.
    order = np.concatenate(
        [
            ((queries[i : i + rows, None] - points) ** 2)
            .sum(-1)
            .argsort(axis=1, kind="stable")
            for i in range(0, len(queries), rows)
        ]
    )
    gains = jax.vmap(classes.gains, in_axes=(None, 0))(
        jnp.asarray(task.train), jnp.asarray(task.query)
    )
    return KnnUtility(
        len(points),
        k,
        order.astype(np.int32),
        np.take_along_axis(np.asarray(gains, np.float32), order, axis=1),
    )


def _unit(rows: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


@jit(static_argnames=("k",))
def _worth(
    members: jax.Array, players: jax.Array, gains: jax.Array, *, k: int
) -> jax.Array:
    """Return the utility of coalitions, averaged over validation points, `[B]`."""

    def add(total: jax.Array, point: Any) -> tuple[jax.Array, None]:
        candidates, gain = point
        present = jnp.take(members, candidates, axis=1)
        taken = present & (jnp.cumsum(present, axis=1, dtype=jnp.int32) <= k)
        votes = jnp.matmul(
            taken.astype(jnp.float32), gain.astype(jnp.float32), precision="highest"
        )
        return total + votes, None

    # One validation point at a time: arrays of all would be [B, m, c].
    start = jnp.zeros(len(members), jnp.float32)
    total, _ = jax.lax.scan(add, start, (players, gains))
    return total / jnp.float32(k * len(players))
