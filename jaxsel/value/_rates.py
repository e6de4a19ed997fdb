"""The learning rate of G-Shapley, found from a few passes at each of several rates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

RATES = tuple(10.0 ** (-k / 2) for k in range(9))
TRIED = 32  # permutations at each rate
_LEARNS = 0.5  # of the best gain over chance


def choose_rate(
    metric_of: Callable[[float], np.ndarray],
    ranks: np.ndarray,
    groups: np.ndarray,
    chance: float,
) -> float:
    """Return the rate of `RATES` that values single points most reliably.

    Among the rates whose passes gain at least half of what the best gains over chance,
    it is the one with the most reliable values, see `reliability`. How a pass ends does
    not tell that rate by itself: a linear model's predictions do not depend on the size
    of its weights, so that passes of the tiniest rates end well, and alike, while most
    of their steps change no prediction. Nor does reliability by itself: a model that
    has diverged, or hardly moves, can change in the same way in every pass.

    Args:
        metric_of: From a rate to the metric before and after each step, `[P, n + 1]`.
        ranks: Place of each point in each permutation, `[P, n]`.
        groups: Groups within which points are compared, `[n]`: classes, or zeros.
        chance: The metric of a model that knows nothing.

    Raises:
        ValueError: If the metric is not finite at any rate.
    """
    gains, known = np.full((2, len(RATES)), -np.inf)
    for i, rate in enumerate(RATES):
        metrics = np.asarray(metric_of(rate), np.float64)
        if np.isfinite(metrics).all():
            gains[i] = metrics[:, -1].mean() - chance
            known[i] = reliability(marginals(metrics, ranks), groups)
    best = gains.max()
    if best == -np.inf:
        raise ValueError(
            f"learning_rate must be given: from {RATES[0]:g} to {RATES[-1]:g} the "
            "metric is not finite"
        )
    if best <= 0:
        return RATES[int(gains.argmax())]
    learns = gains >= _LEARNS * best
    return RATES[int(np.where(learns, known, -np.inf).argmax())]


def marginals(metrics: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return the change of the metric in each point's step, `[P, n]`.

    Args:
        metrics: The metric before and after each step, `[P, n + 1]`.
        ranks: Place of each point in each permutation, `[P, n]`.
    """
    return np.take_along_axis(np.diff(metrics, axis=1), np.asarray(ranks), axis=1)


def reliability(rows: np.ndarray, groups: np.ndarray) -> float:
    """Return the share of the variance of values in groups that is not sampling error.

    1 where every permutation gives the same values; about 0, or below, where values of
    a group differ by chance alone.

    Args:
        rows: Each point's marginal in each permutation, `[P, n]`.
        groups: `[n]`, whole numbers from 0. Groups of one point each count as one.
    """
    count, n = rows.shape
    sizes = np.bincount(groups)
    free = n - np.count_nonzero(sizes)
    if not free:
        groups, sizes, free = np.zeros(n, int), np.array([n]), n - 1
    values = rows.mean(0)
    centre = np.bincount(groups, values) / np.maximum(sizes, 1)
    total = float(np.sum((values - centre[groups]) ** 2)) / max(free, 1)
    if not total:
        return 0.0
    return 1 - float(rows.var(0, ddof=1).mean()) / count / total
