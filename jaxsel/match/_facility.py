"""Representatives: facility location over gradients."""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import AXIS, along, gather, replicate, shard
from jaxsel._devices.typed import finfo, jit, psum
from jaxsel._inputs.checks import (
    as_array,
    check_choice,
    check_count,
    check_positive,
    widen,
)
from jaxsel._inputs.chunk import chunk_slices
from jaxsel._results.types import Selection
from jaxsel._runs.progress import track
from jaxsel.gradients import Dense, Oracle
from jaxsel.neighbors._distance import rounded_mean, subtract

from ._across import columns, entries, replaced
from ._float64 import narrowed, repeats, widened
from ._inputs import Candidates, as_oracle
from ._resident import ALL, SPLIT, Mesh, Resident, laid_out, lengths, on_parts
from ._usable import check_products, usable

Search = Literal["lazy", "stochastic"]

# Distances in memory at once.
_ENTRIES = 8_000_000
# Relative error of a typical distance from which on the choice is made in float64.
_NOTABLE = 1e-3


def facility_location(
    candidates: Candidates,
    budget: int,
    *,
    search: Search = "lazy",
    epsilon: float = 0.01,
    key: jax.Array | None = None,
    squared: bool = False,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    progress: bool = False,
) -> Selection:
    """Choose representatives by facility location: each candidate has one near it.

    Greedy minimisation of `Σ_i min_{j in S} ‖g_i − g_j‖`, starting from the medoid. The
    weights are the numbers of candidates that each one represents, so that the weighted
    sum of the chosen gradients stands for the sum of all. Columns of distances are
    computed some at a time and never kept. Arrays are centred first. Where float32
    would still round distances away, as between members of tight and distant clusters,
    the choice is made again in float64, at some three times the cost.

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
        mesh: Devices to share the candidates among. Those whose arrays are spread over
            these stay there: some at a time go to all devices, and every process gets
            the squared lengths. Must be None for candidates in files.
        axis: Which axis of the mesh; its only one, or "data", if None.
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

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> features = np.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
        >>> selection = jaxsel.facility_location(features, 2)
        >>> print(selection.indices, selection.weights)  # 2 stands for three rows
        [2 3] [3. 2.]
    """
    mesh = along(mesh, axis)
    oracle = _centred(candidates, as_oracle("candidates", candidates, mesh))
    oracle = laid_out(oracle, mesh)
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
    kind = _Across if isinstance(oracle, Resident) else _Places
    places = kind(oracle, squared=squared)
    room, n = k, int(places.usable.sum())
    k = min(k, n)
    if search == "lazy" or key is None:
        chosen = _lazy(places, k, progress=progress)
    else:
        sample = min(n, math.ceil(n / max(k, 1) * math.log(1 / epsilon)))
        chosen = _stochastic(places, k, sample, key, progress=progress)
    if repeats(places.is_rounded(), oracle):
        with jax.enable_x64(True):
            selection = facility_location(
                widened(candidates),
                budget,
                search=search,
                epsilon=epsilon,
                key=key,
                squared=squared,
                mesh=mesh,
                progress=progress,
            )
            return narrowed(selection)
    return Selection(
        indices=jnp.asarray(np.pad(chosen, (0, room - k)), jnp.int32),
        weights=jnp.asarray(places.counts(room), places.diag.dtype),
        n_valid=jnp.asarray(k, jnp.int32),
        method=f"facility_location(budget={budget}, search={search!r})",
    ).unpadded()


def _centred(candidates: Candidates, oracle: Any) -> Any:
    """Subtract the rounded mean of an array: distances stay, and lose fewer digits."""
    if isinstance(candidates, (Oracle, Resident)) or not isinstance(oracle, Dense):
        return oracle
    array = as_array("candidates", candidates)
    centre = rounded_mean(array)
    return Dense(subtract(array, centre)) if centre.any() else oracle


class _Places:
    """Distance of every candidate to its representative."""

    def __init__(self, oracle: Any, *, squared: bool):
        self.oracle, self.squared = oracle, squared
        self.diag = widen(jnp.asarray(oracle.diag()))
        self.usable = np.asarray(usable(self.diag))
        # Beyond all distances, as ‖g_i − g_j‖² <= 4 max ‖g‖²: none is represented yet.
        reach = 4.1 * self.diag
        check_products(reach)
        reach = jnp.max(jnp.where(self.usable, reach, 0))
        self.nearest = jnp.full(len(oracle), reach if squared else jnp.sqrt(reach))
        self.owner = jnp.zeros(len(oracle), jnp.int32)
        self.block = max(1, min(len(oracle), _ENTRIES // len(oracle)))

    def gains(self, ids: np.ndarray) -> np.ndarray:
        """Return each candidate's gain: the fall of the sum of distances, `[m]`."""
        gains: list[np.ndarray] = []
        for rows in chunk_slices(len(ids), self.block):
            part = ids[rows]
            # A power of two, so that few programs serve all numbers of candidates.
            size = min(1 << (len(part) - 1).bit_length(), self.block)
            padded = np.pad(part, (0, size - len(part)), mode="edge")
            gains.append(self._gains(padded)[: len(part)])
        return np.concatenate(gains)

    def add(self, j: int, rank: int) -> None:
        # -1: the chosen represent themselves, even beside duplicates at distance 0.
        distance = self._distances(np.array([j]))[0].at[j].set(-1)
        self.owner = jnp.where(distance < self.nearest, rank, self.owner)
        self.nearest = jnp.fmin(self.nearest, distance)  # as if without NaN

    def counts(self, k: int) -> np.ndarray:
        return np.bincount(np.asarray(self.owner)[self.usable], minlength=k)

    def is_rounded(self) -> bool:
        """Tell whether rounding moves distances by a thousandth of the mean one."""
        nearest = self.distances()[self.usable]
        free = nearest[nearest >= 0]  # the chosen have -1
        if not len(free):
            return False
        mean = float(free.mean())
        # A squared distance is a difference of squared lengths: its rounding is
        # relative to these, however near two candidates are.
        squares = np.asarray(self.diag, np.float64)[self.usable]
        error = 4 * finfo(self.diag.dtype).eps * float(squares.mean())
        return error > _NOTABLE * (mean if self.squared else mean**2)

    def distances(self) -> np.ndarray:
        """Return every candidate's distance to its representative, `[n]`."""
        return np.asarray(self.nearest)

    def _gains(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray(_gain(self._distances(ids), self.nearest))

    def _distances(self, ids: np.ndarray) -> jax.Array:
        columns = widen(self.oracle.columns(jnp.asarray(ids)))
        return _lengths(columns, self.diag, jnp.asarray(ids), squared=self.squared)


class _Across(_Places):
    """`_Places` of candidates that lie on the devices of a mesh."""

    def __init__(self, candidates: Resident, *, squared: bool):
        super().__init__(candidates, squared=squared)
        self.mesh, self._is_one = candidates.mesh, candidates.places >= 0
        # Rows that fill up are represented already: nothing brings them closer.
        nearest = shard(candidates.laid(np.asarray(self.nearest)), self.mesh)
        owner = shard(np.zeros(len(self._is_one), np.int32), self.mesh)
        squares = lengths(candidates.oracle, self.mesh)
        self._rows = squares, nearest, owner

    def add(self, j: int, rank: int) -> None:
        index, which = replicate((np.int32(j), np.int32(rank)), self.mesh)
        nearest, owner = _represent(
            self.oracle.oracle,
            index,
            which,
            self._rows,
            squared=self.squared,
            mesh=self.mesh,
        )
        self._rows = self._rows[0], nearest, owner

    def counts(self, k: int) -> np.ndarray:
        owner = gather(self._rows[2])[self._is_one]
        return np.bincount(owner[self.usable], minlength=k)

    def distances(self) -> np.ndarray:
        return gather(self._rows[1])[self._is_one]

    def _gains(self, ids: np.ndarray) -> np.ndarray:
        everywhere = replicate(ids.astype(np.int32), self.mesh)
        return gather(
            _gain_across(
                self.oracle.oracle,
                everywhere,
                self._rows[:2],
                squared=self.squared,
                mesh=self.mesh,
            )
        )


_Rows = tuple[jax.Array, jax.Array, jax.Array]
"""Per row: squared length, distance to its representative, representative's rank."""


@jit(static_argnames=("squared", "mesh"))
def _gain_across(
    oracle: Any,
    ids: jax.Array,
    rows: tuple[jax.Array, jax.Array],
    *,
    squared: bool,
    mesh: Mesh,
) -> jax.Array:
    def on_shard(oracle: Any, ids: jax.Array, rows: tuple[jax.Array, jax.Array]) -> Any:
        squares, nearest = rows
        distances = _own_distances(oracle, squares, ids, squared=squared)
        gain = jnp.nansum(
            jnp.maximum(jnp.broadcast_to(nearest, distances.shape) - distances, 0),
            axis=-1,
        )
        return psum(gain, AXIS)

    return on_parts(on_shard, oracle, mesh, ids, rows, out=ALL)


@jit(static_argnames=("squared", "mesh"))
def _represent(
    oracle: Any,
    j: jax.Array,
    rank: jax.Array,
    rows: _Rows,
    *,
    squared: bool,
    mesh: Mesh,
) -> tuple[jax.Array, jax.Array]:
    def on_shard(oracle: Any, chosen: tuple[jax.Array, jax.Array], rows: _Rows) -> Any:
        (j, rank), (squares, nearest, owner) = chosen, rows
        distance = _own_distances(oracle, squares, j[None], squared=squared)[0]
        distance = replaced(distance, j, -1, AXIS)
        owner = jnp.where(distance < nearest, rank, owner)
        return jnp.fmin(nearest, distance), owner

    return on_parts(on_shard, oracle, mesh, (j, rank), rows, out=(SPLIT, SPLIT))


def _own_distances(
    oracle: Any, squares: jax.Array, ids: jax.Array, *, squared: bool
) -> jax.Array:
    """Return distances from candidates `ids` to this device's candidates, `[m, n]`."""
    (atom_squares,) = entries((squares,), ids, AXIS)
    products = widen(columns(oracle, ids, AXIS))
    return _distance(products, atom_squares, squares, squared=squared)


def _distance(
    products: jax.Array, atom_squares: jax.Array, diag: jax.Array, *, squared: bool
) -> jax.Array:
    """Return distances, `[m, n]`, from inner products and squared lengths."""
    total = atom_squares[:, None] + diag[None]
    square = total - 2 * products
    # The root would amplify the rounding that is left between equal candidates.
    square = jnp.where(square < 4 * finfo(diag.dtype).eps * total, 0, square)
    return square if squared else jnp.sqrt(square)


@jit(static_argnames="squared")
def _lengths(
    columns: jax.Array, diag: jax.Array, ids: jax.Array, *, squared: bool
) -> jax.Array:
    return _distance(columns, diag[ids], diag, squared=squared)


@jit()
def _gain(distances: jax.Array, nearest: jax.Array) -> jax.Array:
    # All distances of a candidate with NaN are NaN: it neither gains nor is gained.
    return jnp.nansum(
        jnp.maximum(jnp.broadcast_to(nearest, distances.shape) - distances, 0), axis=-1
    )


def _lazy(places: _Places, k: int, *, progress: bool) -> list[int]:
    n = len(places.oracle)
    bounds = np.empty(n)
    for rows in track(
        chunk_slices(n, places.block), progress=progress, label="Columns"
    ):
        bounds[rows] = places.gains(np.arange(rows.start, rows.stop))
    bounds[~places.usable] = -np.inf
    known = np.zeros(n, np.int64)  # the step at which each bound was exact
    chosen: list[int] = []
    for step in track(range(k), progress=progress, label="Chosen"):
        # Gains only fall from step to step (submodularity), so an old gain is a bound:
        # a candidate with the highest bound, and an exact one, is the greedy choice.
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
