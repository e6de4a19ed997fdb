"""Inputs, reference results and peers for the retrieval benchmarks."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel.data import open_rows
from jaxsel.retrieve import binning_distance, nearest
from jaxsel.retrieve._nearest import Nearest


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """Candidates and hard samples. Compared by identity, so that results are cached.

    Attributes:
        x: Candidates, `[n, d]`, float32; float64 for tables.
        hard: Hard samples, `[m, d]`.
        k: Neighbours of each hard sample.
    """

    x: np.ndarray
    hard: np.ndarray
    k: int = 20

    @property
    def budget(self) -> int:
        return self.k * len(self.hard)


def clusters(n: int, m: int, d: int, *, k: int = 20, seed: int = 0) -> Pool:
    """Draw a thousand clusters; the hard samples are from a tenth of them."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((1000, d), np.float32)

    def draw(count: int, kinds: int) -> np.ndarray:
        points = rng.standard_normal((count, d), np.float32)
        kind = rng.integers(kinds, size=count)
        for start in range(0, count, 4096):  # no temporary array of the size of x
            points[start : start + 4096] += centres[kind[start : start + 4096]]
        return points

    return Pool(draw(n, 1000), draw(m, 100), k)


@functools.cache
def _folder() -> Path:
    """Return a folder that goes with this process."""
    folder = tempfile.mkdtemp(prefix="jaxsel-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def from_disk(pool: Pool, kind: str) -> Callable[[], Nearest]:
    """Return a search of candidates in files, which are in the page cache.

    The array in memory stays, so that all contenders' inputs are alike.
    """
    path = _folder() / f"{kind}-{len(pool.x)}"
    if kind == "npy" and not path.exists():
        path.mkdir()
        for i, part in enumerate(np.array_split(pool.x, 4)):
            np.save(path / f"{i}.npy", part)
    elif kind == "parquet" and not path.exists():
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.FixedSizeListArray.from_arrays(
            pa.array(pool.x.reshape(-1)), pool.x.shape[1]
        )
        path.mkdir()
        pq.write_table(pa.table({"x": rows}), path / "x.parquet", row_group_size=16_384)
    elif kind == "zarr" and not path.exists():
        import zarr

        shape, chunks = pool.x.shape, (4096, pool.x.shape[1])
        zarr.create_array(path, shape=shape, dtype="f4", chunks=chunks)[:] = pool.x
    elif kind == "memmap" and not path.exists():
        np.save(path.with_suffix(".npy"), pool.x)
    if kind == "memory":
        features: Any = pool.x
    elif kind == "memmap":
        features = np.load(path.with_suffix(".npy"), mmap_mode="r")
    else:
        features = open_rows(path)
    return lambda: nearest(features, pool.hard, pool.k, metric="l2")


def binning_rows(pool: Pool) -> Callable[[], Any]:
    """Return the binning distance of a table in a file, in the page cache."""
    path = _folder() / f"table-{len(pool.x)}.npy"
    if not path.exists():
        np.save(path, pool.x)
    rows = open_rows(path)
    return lambda: binning_distance(rows, pool.hard)


def table(n: int, m: int, columns: int, *, seed: int = 0) -> Pool:
    """Draw a table of log-normal columns, some with longer tails than others."""
    rng = np.random.default_rng(seed)
    shape = np.linspace(0.1, 2, columns)
    x = np.exp(rng.standard_normal((n, columns)) * shape)
    return Pool(x, np.exp(rng.standard_normal((m, columns)) * shape))


@functools.cache
def neighbours(pool: Pool, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return squared distances and indices, `[m, k]` each: float64, nearest first."""
    hard = pool.hard.astype(np.float64)
    near = np.empty((len(hard), 0))
    index = np.empty((len(hard), 0), np.int64)
    for start in range(0, len(pool.x), 8192):
        x = pool.x[start : start + 8192].astype(np.float64)
        norms = np.einsum("nd,nd->n", x, x)
        squared = norms - 2 * (hard @ x.T) + np.einsum("md,md->m", hard, hard)[:, None]
        best = np.argpartition(squared, min(k, len(x)) - 1, axis=1)[:, :k]
        near = np.hstack([near, np.take_along_axis(squared, best, axis=1)])
        index = np.hstack([index, best + start])
        order = np.argsort(near, axis=1, kind="stable")[:, :k]
        near, index = (np.take_along_axis(a, order, axis=1) for a in (near, index))
    return near, index


@functools.cache
def coverage(pool: Pool) -> frozenset[int]:
    """Return which candidates Algorithm 3 chooses."""
    n = len(pool.x)
    near, index = neighbours(pool, n if n < 20_000 else 10 * pool.k)
    chosen: set[int] = set()
    for rank in range(near.shape[1]):
        for h in np.argsort(near[:, rank], kind="stable"):
            chosen.add(int(index[h, rank]))
            if len(chosen) == pool.budget:
                return frozenset(chosen)
    raise ValueError("the lists are too short for the budget")


def histogram_bins(pool: Pool) -> tuple[np.ndarray, np.ndarray]:
    """Return the bins of both tables, as `numpy.histogram` cuts each column.

    Their number is the first of 200, 100, 50, 20, 10, 5 with at most 6 not empty.
    """
    both = np.concatenate([pool.x, pool.hard])
    codes = np.empty(both.shape, np.int64)
    for j, column in enumerate(both.T):
        for bins in (200, 100, 50, 20, 10, 5):
            counts, edges = np.histogram(column, bins)
            if np.count_nonzero(counts) <= 6:
                break
        codes[:, j] = np.minimum(np.digitize(column, edges) - 1, bins - 1)
    return codes[: len(pool.x)], codes[len(pool.x) :]


def hamming_loop(pool: Pool) -> Callable[[], np.ndarray]:
    """Return the binning distance in NumPy, one hard sample after the other."""

    def call() -> np.ndarray:
        codes, hard_codes = histogram_bins(pool)
        fewest = np.full(len(codes), codes.shape[1])
        for hard in hard_codes:
            np.minimum(fewest, (codes != hard).sum(axis=1), out=fewest)
        return fewest

    return call


@functools.cache
def binning(pool: Pool, mode: str) -> np.ndarray:
    """Return the binning distance of each row, `[n]`."""
    if mode == "hamming":
        return hamming_loop(pool)()
    codes, hard_codes = histogram_bins(pool)
    apart = [
        np.abs(column[:, None] - np.unique(hard)).min(axis=1)
        for column, hard in zip(codes.T, hard_codes.T, strict=True)
    ]
    return np.sum(apart, axis=0)


def faiss_flat(pool: Pool) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Return a search of faiss's exact index, built before the clock starts."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatL2(pool.x.shape[1])
    index.add(pool.x)
    return lambda: index.search(pool.hard, pool.k)


def sklearn_brute(pool: Pool) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Return a search of scikit-learn's brute-force neighbours."""
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=pool.k, algorithm="brute").fit(pool.x)

    def call() -> tuple[np.ndarray, np.ndarray]:
        lengths, index = model.kneighbors(pool.hard)
        return lengths**2, index

    return call
