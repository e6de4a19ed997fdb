"""Each sample's nearest other samples: their votes, and duplicates that disagree."""

from __future__ import annotations

import dataclasses
import logging
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import as_array, check_count, check_features, check_positive
from jaxsel._inputs.show import compared
from jaxsel._runs.progress import track
from jaxsel.neighbors import (
    METRICS,
    Metric,
    distances,
    prepare_features,
    squared_norms,
    top_k,
)
from jaxsel.neighbors._distance import error_parts

from ._inputs import number_labels

_LOG = logging.getLogger(__name__)

NEIGHBOURS = (5, 10, 20, 50, 100)
SHARPNESS = (0.0, 1.0, 3.0)
_TRIED = 512  # samples on which metrics are compared
_ENTRIES = 1 << 22  # distances in memory at once
_NUMBERS = 1 << 18  # of features, computed in float64 at once: they fit a cache
_SEARCH = 1e12  # multiply-adds of a search for neighbours that is made unasked
_ROUNDED = 1e-3  # share of a distance that rounding may take


class Near(NamedTuple):
    """The k nearest other samples of each, the nearest first; ties by lower index.

    Attributes:
        distances: `[n, k]` float64; squares of lengths for "l2", 1 - cos for "cosine".
        indices: `[n, k]`.
        metric: "l2" or "cosine".
    """

    distances: np.ndarray
    indices: np.ndarray
    metric: Metric


@compared
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Duplicates:
    """Pairs of samples that are all but equal, with different labels.

    Attributes:
        pairs: `[m, 2]`, the lower row first, nearest pairs first.
        distances: `[m]`.
        radius: Up to which distance samples count as near-duplicates.
    """

    pairs: np.ndarray
    distances: np.ndarray
    radius: float

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"Duplicates({len(self)} pairs within {self.radius:.3g})"


def conflicting_duplicates(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    share: float = 0.1,
    k: int = 10,
    metric: Metric = "l2",
    progress: bool = False,
) -> Duplicates:
    """Find near-duplicates with different labels: one of each pair is wrong, or both.

    Args:
        x: Features, `[n, d]`, two samples or more.
        y: Labels, `[n]`.
        share: Near is a distance of at most this share of the median distance to the
            nearest other sample. Equal samples always are.
        k: Number of neighbours of each sample to compare.
        metric: "l2" or "cosine".
        progress: Whether to show a bar.

    Returns:
        The pairs. Costs n² d multiply-adds.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes do not fit, numbers are not finite, or an argument is out
            of range.
    """
    rows = check_features("x", x)
    codes, _ = number_labels(y)
    if len(codes) != len(rows):
        raise ValueError(
            f"x and y must have the same length, got {len(rows)} and {len(codes)}"
        )
    check_positive("share", share, zero=True)
    k = check_count("k", k)
    near = nearest_others(np.asarray(rows), k, metric=metric, progress=progress)
    return conflicts(near, codes, share=share)


def conflicts(near: Near, codes: np.ndarray, *, share: float) -> Duplicates:
    """Return the near-duplicates with different labels among neighbours."""
    lengths = np.sqrt(near.distances) if near.metric == "l2" else near.distances
    radius = share * float(np.median(lengths[:, 0]))
    row, column = np.nonzero(
        (lengths <= radius) & (codes[:, None] != codes[near.indices])
    )
    pairs = np.sort(np.stack([row, near.indices[row, column]], axis=1), axis=1)
    pairs, first = np.unique(pairs, axis=0, return_index=True)
    far = lengths[row, column][first]
    order = np.lexsort((pairs[:, 1], pairs[:, 0], far))
    return Duplicates(pairs=pairs[order], distances=far[order], radius=radius)


def affordable_neighbours(
    x: np.ndarray,
    codes: np.ndarray,
    *,
    k: int,
    metric: Metric | None,
    progress: bool,
) -> Near | None:
    """Find the k nearest others of each sample, unless there are too many samples.

    Args:
        x: Samples on one scale, `[n, ...]`.
        codes: Labels, `[n]`.
        k: Number of neighbours.
        metric: None takes the distance by which neighbours predict labels better.
        progress: Whether to show a bar.
    """
    flat = x.reshape(len(x), -1)
    if float(len(flat)) ** 2 * flat.shape[1] > _SEARCH:
        _LOG.info("too many samples to look for neighbours and duplicates")
        return None
    if metric is None:
        near = likelier_neighbours(flat, codes, int(codes.max()) + 1)
        rows, wide = near.indices.shape
        if rows == len(flat) and wide >= min(k, len(flat) - 1):
            return Near(near.distances[:, :k], near.indices[:, :k], near.metric)
        metric = near.metric
    return nearest_others(flat, k, metric=metric, progress=progress)


def likelier_neighbours(x: np.ndarray, codes: np.ndarray, n_classes: int) -> Near:
    """Find neighbours by the distance that predicts some of the labels better.

    Returns:
        Neighbours of at most 512 samples, evenly spaced; of all where there are fewer.
    """
    rows = np.arange(len(codes))[:: -(-len(codes) // _TRIED)]
    tried: list[tuple[float, Near]] = []
    for metric in METRICS:
        near = nearest_others(x, max(NEIGHBOURS), metric=metric, rows=rows)
        tried.append((best_votes(near, codes, n_classes, rows).loss, near))
    return min(tried, key=itemgetter(0))[1]


def nearest_others(
    x: np.ndarray,
    k: int,
    *,
    metric: Metric = "l2",
    rows: np.ndarray | None = None,
    progress: bool = False,
) -> Near:
    """Find the k nearest other samples of each; fewer where there are fewer.

    The search is by float32 distances. Where their rounding might change the order, or
    a distance by a thousandth, they are computed again in float64.

    Args:
        x: `[n, d]`.
        k: Number of neighbours.
        metric: "l2" or "cosine".
        rows: Rows to find neighbours of, `[m]`; all rows if None.
        progress: Whether to show a bar.
    """
    n = len(x)
    if n < 2:
        raise ValueError(f"x must have two samples or more, got {n}")
    k = min(k, n - 1)
    (points,) = prepare_features(x, metric=metric)
    points = points.astype(jnp.float32)
    norms = squared_norms(points)
    rows = np.arange(n) if rows is None else rows
    size = min(len(rows), max(1, _ENTRIES // n))
    blocks: list[tuple[np.ndarray, ...]] = []
    starts = range(0, len(rows), size)
    if progress:
        starts = track(starts, progress=True, label="neighbours")
    for start in starts:
        first = min(start, len(rows) - size)  # one shape, one compilation
        queries = rows[first : first + size].astype(np.int32)
        near = _search(points, norms, jnp.asarray(queries), k=k, metric=metric)
        far, places, error = jax.device_get(near)
        new = slice(start - first, None)
        blocks.append((far[new], places[new], error[new]))
    rounded, indices, errors = map(np.concatenate, zip(*blocks, strict=True))
    return _settled(x, rows, rounded, indices, errors, metric)


@jit(static_argnames=("k", "metric"))
def _search(
    points: jax.Array, norms: jax.Array, queries: jax.Array, *, k: int, metric: Metric
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the distances of the nearest, their rows, and bounds of the errors."""
    asked = points[queries]
    near = distances(points, asked, metric=metric, norms=norms)
    # No sample is a neighbour of its own.
    near = near.at[jnp.arange(len(queries)), queries].set(jnp.inf)

    def nearest(row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return top_k(row, k)

    far, indices = jax.vmap(nearest)(near)
    error, of_query = error_parts(norms, asked, metric)
    return far, indices, error[indices] + of_query[:, :1]


def _settled(
    x: np.ndarray,
    rows: np.ndarray,
    rounded: np.ndarray,
    indices: np.ndarray,
    errors: np.ndarray,
    metric: Metric,
) -> Near:
    """Put neighbours in order, by distances in float64 where rounding matters."""
    tied = np.diff(rounded) <= errors[:, 1:] + errors[:, :-1]
    doubtful = errors > _ROUNDED * rounded
    doubtful[:, 1:] |= tied
    doubtful[:, :-1] |= tied
    lengths = rounded.astype(np.float64)
    of, place = np.nonzero(doubtful)
    flat = x.reshape(len(x), -1)
    size = max(1, _NUMBERS // flat.shape[1])
    for start in range(0, len(of), size):
        part = of[start : start + size], place[start : start + size]
        a, b = flat[rows[part[0]]], flat[indices[part]]
        lengths[part] = _apart(a.astype(np.float64), b.astype(np.float64), metric)
    order = np.lexsort((indices, lengths))
    return Near(
        np.take_along_axis(lengths, order, 1),
        np.take_along_axis(indices, order, 1),
        metric,
    )


def _apart(a: np.ndarray, b: np.ndarray, metric: Metric) -> np.ndarray:
    """Return the distances of rows `[m, d]` from rows, `[m]`."""
    if metric == "l2":
        offset = a - b
        return np.einsum("id,id->i", offset, offset)
    size = np.linalg.norm(a, axis=1, keepdims=True)
    size_b = np.linalg.norm(b, axis=1, keepdims=True)
    zero = (size == 0) | (size_b == 0)
    # Half the squared difference of unit rows keeps the digits of small distances.
    offset = a / np.where(zero, 1, size) - b / np.where(zero, 1, size_b)
    return np.where(zero[:, 0], 1.0, np.einsum("id,id->i", offset, offset) / 2)


class Votes(NamedTuple):
    """Shares of classes among neighbours.

    Attributes:
        loss: Mean cross-entropy of the labels, in nats.
        k: Number of neighbours.
        sharpness: See `votes`.
        shares: `[m, K]`.
    """

    loss: float
    k: int
    sharpness: float
    shares: np.ndarray


def best_votes(
    near: Near, codes: np.ndarray, n_classes: int, rows: np.ndarray
) -> Votes:
    """Return the votes of the least loss, over `NEIGHBOURS` and `SHARPNESS`.

    Args:
        near: Neighbours of `rows`.
        codes: Labels of all samples, `[n]`.
        n_classes: Number of classes.
        rows: `[m]`.
    """
    right = np.arange(len(rows)), codes[rows]

    def vote(k: int, sharpness: float) -> Votes:
        shares = votes(near, codes, n_classes, k=k, sharpness=sharpness)
        loss = -float(np.mean(np.log(shares[right])))
        return Votes(loss, k, sharpness, shares)

    counts = sorted({min(k, near.indices.shape[1]) for k in NEIGHBOURS})
    # One by one: all of them together may not fit memory.
    tried = (vote(k, sharpness) for k in counts for sharpness in SHARPNESS)
    return min(tried, key=itemgetter(0))


def votes(
    near: Near, codes: np.ndarray, n_classes: int, *, k: int, sharpness: float
) -> np.ndarray:
    """Return the share of each class among samples' neighbours, `[m, K]`.

    Neighbours weigh exp(-sharpness d² / the k-th one's d²), and one more vote goes to
    the classes by their shares of all labels, so that none has probability 0.
    """
    far, who = near.distances[:, :k], codes[near.indices[:, :k]]
    scale = far[:, -1:]
    weight = np.exp(-sharpness * far / np.where(scale > 0, scale, 1))
    place = np.arange(len(who))[:, None] * n_classes + who
    table = np.bincount(
        place.ravel(), weights=weight.ravel(), minlength=len(who) * n_classes
    ).reshape(len(who), n_classes)
    prior = np.bincount(codes, minlength=n_classes) / len(codes)
    return (table + prior) / (weight.sum(1, keepdims=True) + 1)


def as_features(x: npt.ArrayLike) -> np.ndarray:
    """Return samples as rows of numbers, `[n, d]`: images flattened."""
    array = np.asarray(as_array("x", x))
    return array.reshape(len(array), -1)
