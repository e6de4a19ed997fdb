"""Means of kernels over a target sample and over the data, chunk by chunk."""

from __future__ import annotations

import abc
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from jaxsel._devices.typed import jit
from jaxsel._inputs.chunk import chunk_slices, entries
from jaxsel.neighbors import distances

Kernel = Literal["gaussian", "linear"]
KERNELS = ("gaussian", "linear")

_FAR = 30  # bandwidths, beyond which float32 distances are off by 1e-3 of one
_PAIRED = 500  # rows of each table from which the median distance is taken


class Means(NamedTuple):
    """Kernel means of a chunk, each `[b]` float64; see `_mmd._influences`."""

    to_target: np.ndarray
    among: np.ndarray
    itself: np.ndarray
    squares: np.ndarray


class KernelMeans(abc.ABC):
    """A kernel with a target sample `[m, d]`, less a centre `[d]`."""

    def __init__(self, target: np.ndarray, centre: np.ndarray):
        self.centre = centre
        self.target = self.centred(target)

    def centred(self, x: np.ndarray) -> np.ndarray:
        """Return rows less the centre, subtracted in float64, as float32."""
        return (x - self.centre).astype(np.float32)

    @abc.abstractmethod
    def of_target(self, x: np.ndarray) -> np.ndarray:
        """Return the kernel of centred rows and all target samples, `[b, m]`."""

    @abc.abstractmethod
    def refer_to(self, x: np.ndarray, size: int | None) -> None:
        """Take the samples `[n, d]` that stand for the data in their mean kernel."""

    @abc.abstractmethod
    def means(self, x: np.ndarray, rows: slice) -> Means:
        """Return the means of rows of x, `[b, d]`, and where they stand in x."""

    def regress(self, codes: np.ndarray, n_classes: int, *, l2: float) -> None:
        """Fit kernel ridge regression of the indicators of the target's classes."""
        size = max(1, entries() // len(self.target))
        gram = np.concatenate(
            [
                self.of_target(self.target[part])
                for part in chunk_slices(len(self.target), size)
            ]
        ).astype(np.float64)
        # Chunks of a float32 product are symmetric only up to their last bits.
        gram = (gram + gram.T) / 2
        # A linear kernel of equal rows is 0, all at their centre: 1 then keeps the
        # ridge, and with it the factorisation, above 0.
        scale = gram.diagonal().mean() or 1.0
        gram[np.diag_indices(len(gram))] += l2 * len(gram) * scale
        indicators = np.eye(n_classes)[codes]
        factor = cast(Any, linalg.cho_factor(gram, lower=True, overwrite_a=True))
        self.weights = cast(np.ndarray, linalg.cho_solve(factor, indicators))

    def misfit(self, x: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the squared distance of labels from their regression, `[b]`."""
        near = self.of_target(self.centred(x)).astype(np.float64)
        offsets = near @ self.weights
        offsets[np.arange(len(codes)), codes] -= 1
        return np.einsum("bc,bc->b", offsets, offsets)


class LinearMeans(KernelMeans):
    """The inner product: its means are inner products with means, and exact."""

    def of_target(self, x: np.ndarray) -> np.ndarray:
        return x @ self.target.T

    def refer_to(self, x: np.ndarray, size: int | None) -> None:
        del size  # no sample is needed
        self.mean = x.mean(axis=0, dtype=np.float64) - self.centre
        # |factor (x_i - mean)|² is the sum of squared deviations over the target.
        offsets = self.target.astype(np.float64)
        offsets -= offsets.mean(axis=0)
        if len(offsets) > offsets.shape[1]:
            # The factor Q leaves norms as they are: R has d rows in place of m.
            offsets = cast(np.ndarray, np.linalg.qr(offsets, mode="r"))
        self.factor = offsets.astype(np.float32)
        self.to_target = self.target.mean(axis=0, dtype=np.float64)

    def means(self, x: np.ndarray, rows: slice) -> Means:
        wide = x - self.centre
        offsets = (wide - self.mean).astype(np.float32) @ self.factor.T
        return Means(
            wide @ self.to_target,
            wide @ self.mean,
            np.einsum("bd,bd->b", wide, wide),
            np.einsum("bm,bm->b", offsets, offsets, dtype=np.float64),
        )


class GaussianMeans(KernelMeans):
    """`exp(-|u - v|² / (2 h²))`, with the bandwidth h.

    In float32, but in float64 on the host where rows lie so many bandwidths from the
    centre that their distances cancel.
    """

    def __init__(self, target: np.ndarray, centre: np.ndarray, bandwidth: float):
        self.bandwidth, self.wide = bandwidth, False
        super().__init__(target, centre)

    def centred(self, x: np.ndarray) -> np.ndarray:
        offsets = (x - self.centre) / self.bandwidth
        return offsets if self.wide else offsets.astype(np.float32)

    def of_target(self, x: np.ndarray) -> np.ndarray:
        if self.wide:
            return _gaussian_wide(x, self.target)
        return np.asarray(_gaussian(jnp.asarray(x), jnp.asarray(self.target)))

    def widen(self, x: np.ndarray, target: np.ndarray) -> None:
        """Go over to float64 if distances of rows of x or target need it."""
        size = max(1, entries() // x.shape[1])
        peak = max(
            float(np.einsum("nd,nd->n", part, part, dtype=np.float64).max())
            for rows in (x, target)
            for part in (self.centred(rows[i]) for i in chunk_slices(len(rows), size))
        )
        if peak > _FAR**2:
            self.wide = True
            self.target = self.centred(target)

    def refer_to(self, x: np.ndarray, size: int | None) -> None:
        self.n = len(x)
        if size is None or size >= self.n:
            self.chosen = np.arange(self.n)
        else:
            # One seed for all calls: the same samples at each.
            draw = np.random.default_rng(0).choice(self.n, size, replace=False)
            self.chosen = np.sort(draw)
        size = max(1, entries() // len(self.target))
        total = np.zeros(len(self.target))
        for part in chunk_slices(len(self.chosen), size):
            near = self.of_target(self.centred(x[self.chosen[part]]))
            total += near.sum(axis=0, dtype=np.float64)
        self.column = total / len(self.chosen)
        self.x = x
        # A drawn sample is kept; all of x would be a second copy.
        self.kept = self.centred(x[self.chosen]) if len(self.chosen) < self.n else None

    def means(self, x: np.ndarray, rows: slice) -> Means:
        points = self.centred(x)
        to_target, squares = self._of_chunk(points)
        total = np.zeros(len(x))
        for part in chunk_slices(len(self.chosen), max(1, entries() // len(x))):
            kept = self.kept
            others = self.centred(self.x[part]) if kept is None else kept[part]
            total += self._row_sums(points, others)
        # Without itself, as one of the chosen, and then with its share of 1 / n.
        numbers = cast(np.ndarray, np.arange(rows.start, rows.stop))
        is_chosen = np.isin(numbers, self.chosen)
        mean = (total - is_chosen) / np.maximum(len(self.chosen) - is_chosen, 1)
        among = 1 / self.n + (self.n - 1) / self.n * mean
        return Means(to_target, among, np.ones(len(x)), squares)

    def _of_chunk(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean kernels with the target, and squared deviations; see `Means`."""
        if self.wide:
            near = _gaussian_wide(points, self.target)
            offsets = near - self.column
            offsets -= offsets.mean(axis=1, keepdims=True)
            return near.mean(axis=1), np.einsum("bm,bm->b", offsets, offsets)
        column = jnp.asarray(self.column, jnp.float32)
        both = _of_chunk(jnp.asarray(points), jnp.asarray(self.target), column)
        return np.asarray(both[0], np.float64), np.asarray(both[1], np.float64)

    def _row_sums(self, x: np.ndarray, points: np.ndarray) -> np.ndarray:
        if self.wide:
            return _gaussian_wide(x, points).sum(axis=1)
        return np.asarray(_row_sums(jnp.asarray(x), jnp.asarray(points)), np.float64)


@jit()
def _gaussian(x: jax.Array, points: jax.Array) -> jax.Array:
    return jnp.exp(-0.5 * distances(points, x))


@jit()
def _row_sums(x: jax.Array, points: jax.Array) -> jax.Array:
    return _gaussian(x, points).sum(axis=1)


@jit()
def _of_chunk(
    x: jax.Array, points: jax.Array, column: jax.Array
) -> tuple[jax.Array, jax.Array]:
    near = _gaussian(x, points)
    # Less the mean over x, to which values are relative: a shift that all samples share
    # has no part in the standard error.
    offsets = near - column[None]
    offsets = offsets - offsets.mean(axis=1, keepdims=True)
    return near.mean(axis=1), jnp.sum(offsets * offsets, axis=1)


def _gaussian_wide(x: np.ndarray, points: np.ndarray) -> np.ndarray:
    squares = -2 * x @ points.T
    for rows, axis in ((x, 1), (points, 0)):
        squares += np.expand_dims(np.einsum("nd,nd->n", rows, rows), axis)
    # Cancellation may leave less than 0, and so a kernel above 1.
    return np.exp(-0.5 * np.maximum(squares, 0))


def median_length(x: np.ndarray, x_val: np.ndarray) -> float:
    """Return the median distance of pairs among some rows of two tables.

    Of pairs that are apart where most are equal, and 1 where all are.
    """
    few = [rows[:: -(-len(rows) // _PAIRED)].astype(np.float64) for rows in (x, x_val)]
    points = np.concatenate(few)
    points -= points.mean(axis=0)
    norms = np.einsum("nd,nd->n", points, points)
    squares = norms[:, None] + norms - 2 * points @ points.T
    squares = squares[np.triu_indices(len(points), 1)]
    # What cancellation leaves of equal rows is no distance.
    squares = squares[squares > 1e-12 * norms.max(initial=0)]
    return float(np.sqrt(np.median(squares))) if squares.size else 1.0
