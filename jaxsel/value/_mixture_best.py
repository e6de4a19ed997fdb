"""The best mixture of a fitted response, and the mixtures to run next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ._mixture_design import capped, draw_mixtures

Moments = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From mixtures `[m, D]` to means and variances `[m]`."""

Joint = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""From mixtures `[m, D]` to means `[m]`, their covariance, and their factors of the
runs' metrics `[m, R]`."""

NORMAL_95 = 1.959963984540054

_POOL = 2048
_LIKELY = 384  # candidates that a posterior draw may take as its best
_DRAWS = 1000
_STEPS = 40  # of the search
_LEAST_STEP = 1e-3  # of a weight


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BestMixture:
    """The mixture with the best expected metric, and how sure that is.

    Attributes:
        mixture: Weights `[D]` float64.
        metric: Expected metric there.
        standard_error: Its standard error.
        interval: Ends of a 95 % interval of the expected metric there, widened for the
            choice: the chosen mixture is partly the best by chance. An approximation,
            which can be too short with few runs, or after rounds of `next_design`.
        weight_intervals: Ends of 95 % intervals of the optimum's weights, `[D, 2]`:
            quantiles of the best mixtures of draws of the response.
        without: By how much the best metric without each domain is worse, `[D]`, 0 or
            more; 0 where the mixture has none of it, NaN where the bounds need it.
        without_error: Standard errors of these, `[D]`.
        dispensable: Names of the domains that could be at zero: the metric without
            them is not worse by two standard errors.
        names: Names of the domains.
    """

    mixture: np.ndarray
    metric: float
    standard_error: float
    interval: tuple[float, float]
    weight_intervals: np.ndarray
    without: np.ndarray
    without_error: np.ndarray
    dispensable: tuple[Any, ...]
    names: tuple[Any, ...]

    def __repr__(self) -> str:
        order = np.argsort(-self.mixture, kind="stable")[:5]
        shown = [f"{self.names[i]!s:.20}: {self.mixture[i]:.3f}" for i in order]
        more = ", ..." if len(self.mixture) > 5 else ""
        low, high = self.interval
        return (
            f"BestMixture({{{', '.join(shown)}{more}}}, metric={self.metric:.4g}, "
            f"interval=({low:.4g}, {high:.4g}))"
        )


@dataclasses.dataclass(frozen=True)
class Problem:
    """A response to minimise, in its own units.

    Attributes:
        moments: Means and variances at mixtures.
        joint: Means, covariances and factors of the runs' metrics at mixtures.
        upper: Upper bounds, `[D]`.
        runs: Mixtures that were run, `[R, D]`.
        noise: Variance of a run.
        names: Names of the domains.
    """

    moments: Moments
    joint: Joint
    upper: np.ndarray
    runs: np.ndarray
    noise: float
    names: tuple[Any, ...]

    def candidates(self, rng: np.random.Generator) -> np.ndarray:
        """Return a pool of mixtures and the runs' within the bounds."""
        within = (self.runs <= self.upper + 1e-9).all(1)
        pool = draw_mixtures(rng, _POOL, self.upper)
        return np.concatenate([self.runs[within], pool])


def find_best(problem: Problem, rng: np.random.Generator) -> BestMixture:
    """Minimise the mean, and draw responses for intervals."""
    pool = problem.candidates(rng)
    mean, variance = problem.moments(pool)
    starts = pool[np.argsort(mean, kind="stable")[:2]]
    searched = [_search(problem, start, problem.upper) for start in starts]
    best, least = min(searched, key=lambda pair: pair[1])
    faces, needed = _without(problem, best)
    # What a draw may take as its best: low by what is known, or little known.
    bound = mean - 2.5 * np.sqrt(variance)
    likely = pool[np.argsort(bound, kind="stable")[: _LIKELY - 1 - len(faces)]]
    points = np.concatenate([best[None], faces, likely])
    means, covariance, by_run = problem.joint(np.concatenate([points, problem.runs]))
    draws = _draw(means, covariance, rng)
    optima = points[np.argmin(draws[:, : len(points)], 1)]
    low, high = _selected(problem, by_run[: len(points)], draws, rng)
    error = float(np.sqrt(max(covariance[0, 0], 0)))
    without = np.maximum(means[1 : len(faces) + 1] - means[0], 0)
    spread = [
        np.sqrt(max(covariance[i, i] + covariance[0, 0] - 2 * covariance[i, 0], 0))
        for i in range(1, len(faces) + 1)
    ]
    spread = np.array(spread)
    zero = best == 0
    without, spread = np.where(zero, 0, without), np.where(zero, 0, spread)
    without[needed], spread[needed] = np.nan, np.nan
    could = zero | (without <= NORMAL_95 * spread)
    return BestMixture(
        mixture=best,
        metric=float(least),
        standard_error=error,
        interval=(
            least + min(low, -NORMAL_95 * error),
            least + max(high, NORMAL_95 * error),
        ),
        weight_intervals=np.quantile(optima, [0.025, 0.975], axis=0).T,
        without=without,
        without_error=spread,
        dispensable=tuple(n for n, ok in zip(problem.names, could, strict=True) if ok),
        names=problem.names,
    )


def next_mixtures(
    problem: Problem, count: int, rng: np.random.Generator, improve: bool
) -> np.ndarray:
    """Choose mixtures one after the other, each as if those before had been run.

    A mixture chosen is given its expected metric, so that means stay as they are, and
    variances near it fall as they will whatever the run says.
    """
    from scipy import stats

    pool = problem.candidates(rng)
    # New mixtures only: none within a thousandth of a run's.
    distance = np.abs(pool[:, None] - problem.runs[None]).max(2).min(1)
    pool = pool[distance > _LEAST_STEP]
    means, variances = problem.moments(pool)
    goal = float(problem.moments(problem.runs)[0].min())
    size = min(len(pool), max(_LIKELY, 4 * count))

    def worth(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        error = np.sqrt(np.maximum(variance, 1e-300))
        if not improve:
            return error
        z = (goal - mean) / error
        return error * (z * stats.norm.cdf(z) + stats.norm.pdf(z))

    kept = pool[np.argsort(-worth(means, variances), kind="stable")[:size]]
    means, covariance, _ = problem.joint(kept)
    chosen: list[int] = []
    free = np.ones(len(kept), bool)
    for _ in range(count):
        score = np.where(free, worth(means, np.diagonal(covariance)), -np.inf)
        i = int(np.argmax(score))
        chosen.append(i)
        column = covariance[:, i].copy()
        covariance = covariance - np.outer(column, column) / (column[i] + problem.noise)
        free &= np.abs(kept - kept[i]).max(1) > _LEAST_STEP
        if not free.any():
            break
    return kept[chosen]


def _search(
    problem: Problem, start: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, float]:
    """Move weight between two domains at a time while the mean falls.

    All weight that a domain has, or a step, whose length is halved where none helps: a
    compass search, which reaches weights of exactly 0.
    """
    domains = len(start)
    pairs = np.argwhere(~np.eye(domains, dtype=bool))
    point, step = start, 0.2
    value = float(problem.moments(start[None])[0][0])
    for _ in range(_STEPS):
        room = np.minimum(point[pairs[:, 0]], (upper - point)[pairs[:, 1]])
        amounts = np.concatenate([room, np.minimum(room, step)])
        moves = np.concatenate([pairs, pairs])
        moves, amounts = moves[amounts > 0], amounts[amounts > 0]
        if not len(amounts):
            break
        rows = np.arange(len(amounts))
        points = np.repeat(point[None], len(amounts), 0)
        points[rows, moves[:, 0]] -= amounts
        points[rows, moves[:, 1]] += amounts
        means = problem.moments(points)[0]
        i = int(np.argmin(means))
        if means[i] < value:
            # Rounding must not leave a weight of 1e-17 for 0.
            point = np.where(points[i] < 1e-12, 0, points[i])
            value = float(means[i])
        elif step <= _LEAST_STEP:
            break
        else:
            step /= 2
    return point, value


def _without(problem: Problem, best: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best mixture without each domain, and which domains bounds need."""
    faces, needed = list[np.ndarray](), np.zeros(len(best), bool)
    for domain in range(len(best)):
        upper = problem.upper.copy()
        upper[domain] = 0
        needed[domain] = upper.sum() < 1
        face = best
        if not needed[domain] and best[domain] > 0:
            # The rest keeps its proportions, with a little of all to fill bounds.
            rest = np.where(upper > 0, best + 1e-9, 0)
            face, _ = _search(problem, capped(rest[None], upper)[0], upper)
        faces.append(face)
    return np.array(faces), needed


def _selected(
    problem: Problem, by_run: np.ndarray, draws: np.ndarray, rng: np.random.Generator
) -> tuple[float, float]:
    """Return quantiles of the metric minus its prediction at the mixture chosen.

    The mixture with the least prediction is partly the least by chance. Each draw of
    the response plays the truth: its runs are drawn with noise, predicted from, and a
    mixture is chosen by these predictions.

    Args:
        problem: The response.
        by_run: Factors of the runs' metrics at the points to choose from, `[m, R]`.
        draws: Of the response at the points and at the runs, `[draws, m + R]`.
        rng: Generator of the noise.
    """
    truth, runs = np.split(draws, [len(by_run)], axis=1)
    runs = runs + problem.noise**0.5 * rng.normal(size=runs.shape)
    # Means are linear in the metrics, for scales that stay as they are.
    predicted = runs @ by_run.T
    rows, chosen = np.arange(len(truth)), np.argmin(predicted, 1)
    errors = truth[rows, chosen] - predicted[rows, chosen]
    low, high = np.quantile(errors, [0.025, 0.975])
    return float(low), float(high)


def _draw(
    means: np.ndarray, covariance: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw responses at points, `[draws, m]`."""
    values, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(values, 0))
    return means + rng.normal(size=(_DRAWS, len(means))) @ root.T
