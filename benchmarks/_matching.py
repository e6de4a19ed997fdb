"""Inputs for the matching benchmarks, and references: slow, plain, float64.

The reference does what `jaxsel.match.omp` promises with one Cholesky factorisation
after the other, and Lawson and Hanson's active set where weights must not be negative.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

# Where float32 can't tell an objective from zero, relative to the target's length.
FLOOR = 8 * float(np.finfo(np.float32).eps)
_BLOCK = 16_384


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """Candidates' gradients. Compared by identity, so that results are cached.

    Attributes:
        features: Array of shape `[n, H]`, float32.
        errors: Array of shape `[n, C]`: the gradients are outer products of both, and
            the errors, for the bias. If None, the features are the gradients.
        target: `[H + 1, C]`, or `[H]` without errors: the mean gradient of 200 more.
        k: How many to choose.
        folder: Where both are kept, if in files: deleted with the pool.
    """

    features: np.ndarray
    errors: np.ndarray | None
    target: np.ndarray
    k: int
    folder: str | None = None

    @property
    def norm(self) -> float:
        return float(np.sum(self.target.astype(np.float64) ** 2))

    def load(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return errors and features of some rows, from files opened for the purpose.

        Pages of a file that stays open count as this process's memory.
        """
        if self.folder is None:
            raise ValueError("the candidates are not in files")
        errors, features = _open(self.folder, "r")
        return errors[rows], features[rows]


def last_layer(
    n: int,
    n_classes: int,
    width: int,
    *,
    k: int,
    files: bool = False,
    seed: int = 0,
) -> Pool:
    """Draw last-layer gradients of a classifier that is right on most samples.

    Features are rectified mixtures of Gaussian classes; the target is the mean gradient
    of the 200 worst of 4,000 samples.
    """
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_classes, width), np.float32)
    head = centres.T * np.float32(12 / width)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(n_classes, size=count)
        features = rng.standard_normal((count, width), np.float32)
        features *= np.float32(width**0.5 / 4)
        features += centres[y]
        np.maximum(features, 0, out=features)
        logits = features @ head
        errors = np.exp(logits - logits.max(axis=1, keepdims=True))
        errors /= errors.sum(axis=1, keepdims=True)
        errors[np.arange(count), y] -= 1
        return errors, features

    errors, features = draw(4000)
    worst = np.argsort(errors.min(axis=1), kind="stable")[:200]
    errors, features = errors[worst], features[worst]
    target = np.vstack([features.T @ errors, errors.sum(axis=0)]) / np.float32(200)

    folder = tempfile.mkdtemp(prefix="jaxsel-bench-") if files else None
    shapes = (n, n_classes), (n, width)
    if folder is None:
        arrays = tuple(np.empty(shape, np.float32) for shape in shapes)
    else:
        arrays = _open(folder, "w+", shapes)
    for part in _blocks(n):
        arrays[0][part], arrays[1][part] = draw(part.stop - part.start)
    if folder is not None:
        del arrays  # and its pages
        arrays = _open(folder, "r")
    pool = Pool(arrays[1], arrays[0], target, k, folder)
    if folder is not None:
        weakref.finalize(pool, shutil.rmtree, folder)
    return pool


def rows(n: int, d: int, *, k: int, seed: int = 0) -> Pool:
    """Draw gradients of ten Gaussian classes; the target is of three of these."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((10, d), np.float32) / 2
    gradients = rng.standard_normal((n, d), np.float32)
    gradients += centres[rng.integers(10, size=n)]
    hard = rng.standard_normal((200, d), np.float32)
    hard += centres[rng.integers(3, size=200)]
    return Pool(gradients, None, hard.mean(axis=0), k)


def written_out(pool: Pool) -> np.ndarray:
    """Return the gradients, one a row, `[n, p]`: n·p numbers."""
    if pool.errors is None:
        return pool.features
    n, width = pool.features.shape
    out = np.empty((n, width + 1, pool.errors.shape[1]), np.float32)
    np.multiply(pool.features[:, :, None], pool.errors[:, None, :], out=out[:, :-1])
    out[:, -1] = pool.errors
    return out.reshape(n, -1)


# Products in float64, a block of candidates at a time.


def columns(pool: Pool, ids: np.ndarray) -> np.ndarray:
    """Return inner products of some candidates with all, `[m, n]`."""
    atoms = [None if a is None else _wide(a[ids]) for a in (pool.features, pool.errors)]
    out = np.empty((len(ids), len(pool.features)))
    for part in _blocks(out.shape[1]):
        block = atoms[0] @ _wide(pool.features[part]).T
        if pool.errors is not None:
            block = (block + 1) * (atoms[1] @ _wide(pool.errors[part]).T)
        out[:, part] = block
    return out


def correlations(pool: Pool, gradient: np.ndarray) -> np.ndarray:
    """Return all candidates' inner products with a gradient, `[n]`."""
    gradient, out = _wide(gradient), np.empty(len(pool.features))
    for part in _blocks(len(out)):
        features = _wide(pool.features[part])
        if pool.errors is None:
            out[part] = features @ gradient
        else:
            through = features @ gradient[:-1] + gradient[-1]
            out[part] = np.einsum("nc,nc->n", through, _wide(pool.errors[part]))
    return out


def lengths(pool: Pool) -> np.ndarray:
    """Return the candidates' squared lengths, `[n]`."""
    out = np.empty(len(pool.features))
    for part in _blocks(len(out)):
        out[part] = np.sum(_wide(pool.features[part]) ** 2, axis=1)
        if pool.errors is not None:
            out[part] = (out[part] + 1) * np.sum(_wide(pool.errors[part]) ** 2, axis=1)
    return out


# What is right.


@dataclasses.dataclass(frozen=True)
class Answer:
    """Expected result of matching: candidates with a weight, and the objective."""

    indices: np.ndarray
    objective: float


@functools.cache
def reference(pool: Pool, *, l2: float, positive: bool) -> Answer:
    """Return orthogonal matching pursuit's choice, in float64.

    Columns are computed 32 at a time, for the candidates that are best at that moment.
    """
    start, diag = correlations(pool, pool.target), lengths(pool)
    known: dict[int, np.ndarray] = {}
    chosen: list[int] = []
    corr, weights, objective = start, np.empty(0), pool.norm
    free = diag > 0
    while len(chosen) < pool.k and objective > FLOOR * pool.norm:
        score = np.where(free, corr if positive else np.abs(corr), 0)
        best = int(np.argmax(score))
        # Below the second bound a correlation is but float32's rounding.
        if score[best] <= FLOOR / 2 * np.sqrt(diag[best] * pool.norm):
            break
        if best not in known:
            ids = np.argsort(-score, kind="stable")[:32]
            known |= dict(zip(ids.tolist(), columns(pool, ids), strict=True))
        chosen.append(best)
        free[best] = False
        across = np.stack([known[j] for j in chosen])
        gram = across[:, chosen] + l2 * np.eye(len(chosen))
        weights = np.append(weights, 0.0)
        b = start[chosen]
        weights = _fit(gram, b, weights) if positive else np.linalg.solve(gram, b)
        corr = start - weights @ across
        objective = pool.norm + weights @ (gram @ weights - 2 * b)
    return Answer(np.array(chosen, int)[weights != 0], float(objective))


def _fit(gram: np.ndarray, b: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Minimise w'Kw/2 - b'w over w >= 0, from weights that were right a step ago."""
    slack = 1e-10 * np.abs(b).max()
    while True:
        dual = b - gram @ weights
        dual[weights > 0] = 0
        worst = int(np.argmax(dual))
        if dual[worst] <= slack:
            return weights
        basic = weights > 0
        basic[worst] = True
        while True:
            fit = np.zeros_like(weights)
            fit[basic] = np.linalg.solve(gram[np.ix_(basic, basic)], b[basic])
            if np.all(fit[basic] > 0):
                break
            falling = basic & (fit <= 0)
            part = weights[falling] / (weights[falling] - fit[falling])
            weights = weights + part.min() * (fit - weights)
            basic &= weights > 1e-14 * weights.max()
            weights[~basic] = 0
        weights = fit


def figures(
    pool: Pool,
    indices: Any,
    weights: Any,
    *,
    l2: float,
    positive: bool,
) -> dict[str, float]:
    """Return how far a choice is from right, with its weights taken to float64.

    `behind`: by how much its objective is above the reference's, over the target's
    squared length. `kkt`: the largest violation of the conditions for its weights to be
    the best for what is chosen: derivatives by them over the lengths of gradient and
    target, negative weights over the largest. `missed`: the share of the reference's
    choice that is not in it.
    """
    indices, weights = np.asarray(indices), np.asarray(weights, np.float64)
    answer = reference(pool, l2=l2, positive=positive)
    gram = _gram(pool, indices) + l2 * np.eye(len(indices))
    atoms = dataclasses.replace(
        pool,
        features=pool.features[indices],
        errors=None if pool.errors is None else pool.errors[indices],
    )
    b = correlations(atoms, pool.target)
    objective = pool.norm + weights @ (gram @ weights - 2 * b)
    size = np.sqrt((np.diagonal(gram) - l2) * pool.norm)
    kkt = np.abs(gram @ weights - b) / size
    if positive:
        kkt = np.append(kkt, -weights.min() / np.abs(weights).max())
    missed = np.setdiff1d(answer.indices, indices)
    return {
        "behind": (objective - answer.objective) / pool.norm,
        "kkt": float(np.max(kkt)),
        "missed": len(missed) / len(answer.indices),
    }


def _gram(pool: Pool, ids: np.ndarray) -> np.ndarray:
    """Return the inner products of some candidates with each other, `[m, m]`."""
    gram = _wide(pool.features[ids])
    gram = gram @ gram.T
    if pool.errors is None:
        return gram
    errors = _wide(pool.errors[ids])
    return (gram + 1) * (errors @ errors.T)


def _wide(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, np.float64)


def _blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, _BLOCK):
        yield slice(start, min(start + _BLOCK, n))


def _open(folder: str, mode: Any, shapes: Any = (None, None)) -> Any:
    return tuple(
        np.lib.format.open_memmap(
            Path(folder, f"{name}.npy"), mode, dtype=np.float32, shape=shape
        )
        for name, shape in zip(("errors", "features"), shapes, strict=True)
    )
