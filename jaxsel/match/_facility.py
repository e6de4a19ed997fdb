"""Representatives: facility location over gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._checks import check_choice, check_count, check_positive, widen
from jaxsel._chunk import chunk_slices
from jaxsel._progress import track
from jaxsel._typed import compiled
from jaxsel._types import Selection

from ._inputs import Candidates, as_oracle
from ._usable import check_products, usable

Search = Literal["lazy", "stochastic"]

# Distances in memory at once.
_ENTRIES = 8_000_000


def facility_location(
    candidates: Candidates,
    budget: int,
    *,
    search: Search = "lazy",
    epsilon: float = 0.01,
    key: jax.Array | None = None,
    squared: bool = False,
    progress: bool = False,
) -> Selection:
    """Choose representatives, such that every candidate has one near it.

    Greedy minimisation of `Σ_i min_{j in S} ‖g_i − g_j‖`, starting from the medoid. The
    weights are the numbers of candidates that each one represents, so that the weighted
    sum of the chosen gradients stands for the sum of all. Columns of distances are
    computed some at a time and never kept.

    Args:
        candidates: An oracle of n gradients, or features or gradients `[n, p]`. Those
            with a NaN are refused in an array; in an oracle they are ignored.
        budget: How many to choose at most, k.
        search: "lazy": exactly the greedy choice. It computes the columns of all
            candidates once, then for each choice those of the min(n, 8,000,000/n)
            candidates with the highest bounds, once or more. Up to n = 2828 these are
            all candidates, as in plain greedy search: k·n columns. "stochastic": each
            choice is the best of (n/k)·ln(1/epsilon) random candidates. It computes
            n·ln(1/epsilon) columns in all, and gains in expectation at least
            1 − 1/e − epsilon of what the best choice gains.
        epsilon: Above zero and below 1; for "stochastic".
        key: Of the random candidates; needed for "stochastic".
        squared: Whether to sum squared distances.
        progress: Whether to show a bar.

    Returns:
        A `Selection` in the order of choice; weights sum to n, or to the number of
        candidates without NaN.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range, `key` is missing, or squared distances
            overflow.

    References:
        Mirzasoleiman, Bilmes and Leskovec, Coresets for Data-efficient Training of
        Machine Learning Models (CRAIG), ICML 2020. Minoux, Accelerated greedy
        algorithms, 1978 (lazy). Mirzasoleiman et al., Lazier than lazy greedy, AAAI
        2015 (stochastic).
    """
    oracle = as_oracle("candidates", candidates)
    n = len(oracle)
    k = min(check_count("budget", budget), n)
    check_choice("search", search, ("lazy", "stochastic"))
    epsilon = check_positive("epsilon", epsilon)
    if epsilon >= 1:
        raise ValueError(f"epsilon must be below 1, got {epsilon}")
    if search == "stochastic" and key is None:
        raise ValueError("key must be given for search='stochastic', got None")
    typed = isinstance(key, jax.Array) and jnp.issubdtype(
        key.dtype, jax.dtypes.prng_key
    )
    if key is not None and not typed:
        raise TypeError(f"key must be a key as of jax.random.key(0), got {key!r}")
    places = _Places(oracle, squared=squared)
    room, n = k, int(places.usable.sum())
    k = min(k, n)
    if search == "lazy" or key is None:
        chosen = _lazy(places, k, progress=progress)
    else:
        sample = min(n, math.ceil(n / max(k, 1) * math.log(1 / epsilon)))
        chosen = _stochastic(places, k, sample, key, progress=progress)
    return Selection(
        indices=jnp.asarray(np.pad(chosen, (0, room - k)), jnp.int32),
        weights=jnp.asarray(places.counts(room), places.diag.dtype),
        n_valid=jnp.asarray(k, jnp.int32),
        method=f"facility_location(budget={budget}, search={search!r})",
    )


class _Places:
    """Distance of every candidate to its representative."""

    def __init__(self, oracle: Any, *, squared: bool):
        self.oracle, self.squared = oracle, squared
        self.diag = widen(oracle.diag())
        self.usable = np.asarray(usable(self.diag))
        # Farther than any distance but 0: nobody is represented yet.
        reach = 4.1 * self.diag
        check_products(reach)
        reach = jnp.max(jnp.where(self.usable, reach, 0))
        self.nearest = jnp.full(len(oracle), reach if squared else jnp.sqrt(reach))
        self.owner = jnp.zeros(len(oracle), jnp.int32)
        self.block = max(1, min(len(oracle), _ENTRIES // len(oracle)))

    def gains(self, ids: np.ndarray) -> np.ndarray:
        """Return how much closer each candidate would bring all others, `[m]`."""
        gains: list[np.ndarray] = []
        for rows in chunk_slices(len(ids), self.block):
            part = ids[rows]
            # A power of two, so that few programs serve all numbers of candidates.
            size = min(1 << (len(part) - 1).bit_length(), self.block)
            padded = np.pad(part, (0, size - len(part)), mode="edge")
            gain = _gain(self._distances(padded), self.nearest)
            gains.append(np.asarray(gain)[: len(part)])
        return np.concatenate(gains)

    def add(self, j: int, rank: int) -> None:
        distance = self._distances(np.array([j]))[0].at[j].set(-1)
        self.owner = jnp.where(distance < self.nearest, rank, self.owner)
        self.nearest = jnp.fmin(self.nearest, distance)  # as if without NaN

    def counts(self, k: int) -> np.ndarray:
        return np.bincount(np.asarray(self.owner)[self.usable], minlength=k)

    def _distances(self, ids: np.ndarray) -> jax.Array:
        columns = widen(self.oracle.columns(jnp.asarray(ids)))
        return _lengths(columns, self.diag, jnp.asarray(ids), squared=self.squared)


def _distance(columns: jax.Array, diag: jax.Array, ids: jax.Array, *, squared: bool):
    square = jnp.maximum(diag[ids][:, None] + diag - 2 * columns, 0)
    return square if squared else jnp.sqrt(square)


_lengths: Callable[..., jax.Array] = jax.jit(_distance, static_argnames="squared")


@compiled()
def _gain(distances: jax.Array, nearest: jax.Array) -> jax.Array:
    return jnp.nansum(jnp.maximum(nearest - distances, 0), axis=-1)


def _lazy(places: _Places, k: int, *, progress: bool) -> list[int]:
    n = len(places.oracle)
    bounds = np.empty(n)
    for rows in track(
        list(chunk_slices(n, places.block)), progress=progress, label="Columns"
    ):
        bounds[rows] = places.gains(np.arange(rows.start, rows.stop))
    bounds[~places.usable] = -np.inf
    known = np.zeros(n, np.int64)  # the step at which each bound was exact
    chosen: list[int] = []
    for step in track(range(k), progress=progress, label="Chosen"):
        while True:
            j = int(np.argmax(bounds))
            if known[j] == step:
                break
            top = np.argsort(-bounds, kind="stable")[: places.block]
            stale = np.sort(top[(known[top] < step) & np.isfinite(bounds[top])])
            bounds[stale] = places.gains(stale)
            known[stale] = step
        places.add(j, step)
        chosen.append(j)
        bounds[j] = -np.inf
    return chosen


def _stochastic(
    places: _Places, k: int, sample: int, key: jax.Array, *, progress: bool
) -> list[int]:
    free = places.usable.copy()
    chosen: list[int] = []
    for step in track(range(k), progress=progress, label="Chosen"):
        order = np.asarray(
            jax.random.permutation(jax.random.fold_in(key, step), len(free))
        )
        ids = np.sort(order[free[order]][:sample])
        j = int(ids[np.argmax(places.gains(ids))])
        places.add(j, step)
        chosen.append(j)
        free[j] = False
    return chosen
