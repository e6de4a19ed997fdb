"""Inputs, reference results and peers for the filtering benchmarks."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, eq=False)
class Losses:
    """Losses to filter.

    Attributes:
        benchmark: Those of clean samples, `[m]`, float32.
        losses: The others, `[n]`, float32: half of them noise.
    """

    benchmark: np.ndarray
    losses: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class LossFile:
    """The same, in a file of n float32.

    Attributes:
        benchmark: `[m]`.
        path: The file, removed with this.
    """

    benchmark: np.ndarray
    path: Path

    def chunks(self) -> Iterator[np.ndarray]:
        """Yield all losses, a million at a time."""
        with self.path.open("rb") as file:
            while len(part := np.fromfile(file, np.float32, _CHUNK)):
                yield part


def draw(n: int, m: int, *, seed: int = 0) -> Losses:
    """Draw losses of clean samples and of noise, three times as large on average."""
    rng = np.random.default_rng(seed)
    clean = lambda size: rng.standard_exponential(size, np.float32)
    losses = clean(n)
    losses[: n // 2] = 3 * losses[: n // 2] + 1
    return Losses(clean(m), rng.permutation(losses))


def write(n: int, m: int, *, seed: int = 0) -> LossFile:
    """Write such losses to a temporary file."""
    rng = np.random.default_rng(seed)
    path = Path(tempfile.mkdtemp()) / "losses.bin"
    with path.open("wb") as file:
        for start in range(0, n, _CHUNK):
            part = rng.standard_exponential(min(_CHUNK, n - start), np.float32)
            part[::2] = 3 * part[::2] + 1
            part.tofile(file)
    data = LossFile(rng.standard_exponential(m, np.float32), path)
    weakref.finalize(data, shutil.rmtree, path.parent)
    return data


def distance(benchmark: np.ndarray, kept: np.ndarray) -> float:
    """Return the KS distance, by SciPy."""
    from scipy.stats import ks_2samp

    result: Any = ks_2samp(benchmark, kept, method="asymp")
    return float(result.statistic)


def histograms(data: Losses, share: float) -> Callable[[], float]:
    """Return a loop over thresholds that compares histograms.

    As the public implementation does it: 100 bins on [0, 30], and every hundredth loss
    for a threshold. Not exact.

    Args:
        data: The losses.
        share: Of the thresholds, evenly spread, to try.
    """
    edges = np.linspace(0, 30, 101)
    step = round(100 / share)

    def search() -> float:
        ordered = np.sort(data.losses)
        wanted = np.histogram(data.benchmark, edges)[0].cumsum() / len(data.benchmark)
        best, value = np.inf, np.nan
        for i in range(step - 1, len(ordered), step):
            counts = np.histogram(ordered[: i + 1], edges)[0].cumsum()
            gap = np.abs(counts / (i + 1) - wanted).max()
            if gap < best:
                best, value = gap, ordered[i]
        return float(value)

    return search
