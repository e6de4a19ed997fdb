"""Theorem 2: does the order of values match the order of expected marginal gains?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import jaxsel

VALUES = ("KNN-Shapley", "KNN-LOO")
COUNTS = ("pairs", "tied", "agree", "disagree", "open")
SETTINGS = ("one validation point", "20 validation points")
"""Number of validation points of the values; the theorem is about one."""

_VALIDATION = (1, 20)
_N, _SIZE, _DRAWS, _K = 40, 40, 4000, 5
_SURE = 5.0  # standard errors from which a sign counts as known


class Population(NamedTuple):
    """Points of two classes in the plane, with some wrong labels.

    Attributes:
        x: `[n, 2]`.
        y: `[n]`, 0 or 1.
    """

    x: np.ndarray
    y: np.ndarray


def draw(rng: np.random.Generator, n: int, *, wrong: float = 0.1) -> Population:
    """Draw points from two overlapping normal distributions."""
    y = rng.integers(0, 2, n)
    x = rng.normal(size=(n, 2)) + 1.5 * y[:, None]
    return Population(x, np.where(rng.random(n) < wrong, 1 - y, y))


def gains(
    data: Population, val: Population, others: Population, k: int, draws: int
) -> np.ndarray:
    """Return the marginal gain of each point in the utility of each random set.

    Args:
        data: The points, n of them.
        val: Validation points, m of them.
        others: The members of all sets, one set after the other.
        k: Neighbours.
        draws: Number of sets, of k points or more each.

    Returns:
        `[draws, n]`: U(T + point) - U(T), the mean over validation points. A point
        that is among the k nearest drives out the k-th of T.
    """
    size = len(others.y) // draws
    total = np.zeros((draws, len(data.y)))
    for x, label in zip(val.x, val.y, strict=True):
        near = ((others.x - x) ** 2).sum(1).reshape(draws, size)
        kth = np.argpartition(near, k - 1, axis=1)[:, k - 1 : k]
        edge = np.take_along_axis(near, kth, axis=1)
        match = (others.y == label).reshape(draws, size)
        # A point closer than the k-th neighbour replaces it, and changes U by the
        # difference of their matches over k.
        last = np.take_along_axis(match, kth, axis=1).astype(float)
        distances = ((data.x - x) ** 2).sum(1)
        total += (distances < edge) * ((data.y == label) - last) / k
    return total / len(val.y)


def order_counts(values: np.ndarray, gained: np.ndarray) -> dict[str, int]:
    """Count pairs by agreement of the order of values and of expected gains.

    Args:
        values: `[n]`. Differences below 1e-6 are ties: Definition 1 leaves these out.
        gained: `[draws, n]`, see `gains`.

    Returns:
        By `COUNTS`: all pairs; ties; pairs that agree or disagree where the sign of the
        expected difference is known, by five standard errors; and those where it is
        not.
    """
    draws = len(gained)
    mean = gained.mean(0)
    centred = gained - mean
    both = centred.T @ centred / (draws - 1)
    variances = np.diag(both)
    # Var(a - b) = Var a + Var b - 2 Cov(a, b): both points join the same random sets.
    variance = np.maximum(variances[:, None] + variances - 2 * both, 0) / draws
    i, j = np.triu_indices(len(values), 1)
    gap, difference = values[i] - values[j], mean[i] - mean[j]
    tied = np.abs(gap) < 1e-6
    known = np.abs(difference) > _SURE * np.sqrt(variance[i, j])
    same = np.sign(gap) == np.sign(difference)
    masks = (
        np.ones_like(tied),
        tied,
        ~tied & known & same,
        ~tied & known & ~same,
        ~tied & ~known,
    )
    return dict(zip(COUNTS, (int(part.sum()) for part in masks), strict=True))


def order_seed(seed: int, *, full: bool = False) -> dict[str, np.ndarray]:
    """Count the pairs of one simulation of Theorem 2.

    The set D, the validation points and the random sets T are independent draws from
    one population, whose distances are continuous.

    Returns:
        "counts", `[settings, values, 5]`; "near", the same of pairs both of whose
        points are among the k nearest, which the theorem grants KNN-LOO, with one
        validation point: `[values, 5]`.
    """
    rng = np.random.default_rng((7, seed))
    draws = _DRAWS * (5 if full else 1)
    counts, near = [], []
    for m in _VALIDATION:
        data, val = draw(rng, _N), draw(rng, m, wrong=0.0)
        others = draw(rng, draws * _SIZE)
        gained = gains(data, val, others, _K, draws)
        rows = []
        for function in (jaxsel.knn_shapley, jaxsel.knn_loo):
            exact = function(*data, *val, k=_K).values
            values = np.asarray(exact, np.float64)
            rows.append([*order_counts(values, gained).values()])
            if m == 1:
                nearest = np.argsort(((data.x - val.x) ** 2).sum(1))[:_K]
                near_counts = order_counts(values[nearest], gained[:, nearest])
                near.append([*near_counts.values()])
        counts.append(rows)
    return {"counts": np.array(counts), "near": np.array(near)}
