"""Theorems 3 and 4: bounds on the difference of values for stable learners.

Both are tried on learners whose values have a closed form, so that nothing is sampled:
a private majority vote, a mean, and a sum that is cut off. Bounds are taken as they are
printed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

SIZES = (4, 8, 16, 32, 64, 128, 256)
"""Training points, N."""
SHARES = (0.55, 0.65, 0.8, 1.0)
"""Of training points whose label is that of the validation points."""
SCALES = (0.05, 0.2, 1.0)
"""Of the Laplace noise on the share of votes."""
PRIVACY = (0.1, 1.0)
"""Privacy losses that are the same for every number of points."""
STABLE = ("mean", "clipped")
"""Learners of uniform stability: see `stable_differences`."""


@dataclasses.dataclass(frozen=True)
class Differences:
    """The largest difference between the values of two points, and its bounds.

    Attributes:
        n: Training points, `[cases]`.
        loo: Difference of leave-one-out values, `[cases]`.
        shapley: Difference of Shapley values, `[cases]`.
        loo_bound: `[cases]`.
        shapley_bound: `[cases]`.
    """

    n: np.ndarray
    loo: np.ndarray
    shapley: np.ndarray
    loo_bound: np.ndarray
    shapley_bound: np.ndarray


def vote_utility(votes: np.ndarray, n: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the probability that a private vote is right, less 1.

    The vote is the majority of n labels, after Laplace noise was added to the share of
    right ones. A changed label moves that share by 1 / n, so that the vote is
    (1 / (n scale), 0)-differentially private.

    Args:
        votes: Number of right labels.
        n: Number of labels; 1 or more.
        scale: Scale of the noise.
    """
    lead = votes / n - 0.5
    tail = np.exp(-np.abs(lead) / scale) / 2
    return np.where(lead > 0, 1 - tail, tail) - 1


def private_differences(
    n: int, share: float, *, scale: float | None = None, epsilon: float | None = None
) -> tuple[float, float, float, float]:
    """Return differences and Theorem 3's bounds for a private vote of n points.

    Sums run over the number of right labels in a set of each size, which is
    hypergeometric: O(n²).

    Args:
        n: Training points; two or more, both kinds of them.
        share: Share of right labels; one point at least is wrong, and one right.
        scale: Scale of the noise for all sizes, so that privacy is lost on small sets.
        epsilon: Privacy loss for all sizes, in place of `scale`.

    Returns:
        The difference of a right and a wrong point in leave-one-out and in Shapley
        value, and the bounds ε'(n - 1) and mean ε' of these.
    """
    right = min(max(round(share * n), 1), n - 1)

    def noise(size: np.ndarray) -> np.ndarray:
        return 1 / (size * epsilon) if epsilon else np.full(size.shape, scale)

    # A set T of k of the other n - 2 points has `votes` right labels. The values of a
    # right and a wrong point differ by U(T + right) - U(T + wrong), averaged over T:
    # leave-one-out takes k = n - 2 alone, Shapley the mean over all k.
    others = np.arange(n - 1)
    k, votes = others[:, None], others[None]
    chance = _hypergeometric(n - 2, right - 1, k, votes)
    size = k + 1
    gap = vote_utility(votes + 1, size, noise(size)) - vote_utility(
        votes, size, noise(size)
    )
    by_size = (chance * gap).sum(1)
    sizes = np.arange(1, n)
    allowed = np.exp(1 / (sizes * noise(sizes))) - 1
    return (
        float(by_size[-1]),
        float(by_size.mean()),
        float(allowed[-1]),
        float(allowed.mean()),
    )


def stable_differences(n: int, learner: str) -> tuple[float, float, float, float]:
    """Return differences and Theorem 4's printed bounds for a learner of `STABLE`.

    Points are -1 or 1, half of each, and a model is a number. The loss is its distance
    to a validation point, here 1. The mean of a set of m has a uniform stability of
    2 / m at most. So has "clipped", the sum cut off at -1 and 1 and divided by m + 1,
    of 1 / m: a point moves the sum by one step or none. Replacing a point moves it by
    two.

    Args:
        n: Training points, even.
        learner: "mean" or "clipped".

    Returns:
        As `private_differences`: the bounds are C / (n - 1) and that times
        1 + log(n - 1), with C = 2 for the mean and 1 for the clipped sum.
    """
    others = np.arange(n - 1)
    if learner == "mean":
        constant, by_size = 2.0, 2 / (others + 1)
    else:
        k, positive = others[:, None], others[None]
        chance = _hypergeometric(n - 2, n // 2 - 1, k, positive)
        total = 2 * positive - k
        steps = np.clip(total + 1, -1, 1) - np.clip(total - 1, -1, 1)
        constant, by_size = 1.0, (chance * steps).sum(1) / (others + 2)
    bound = constant / (n - 1)
    return (
        float(by_size[-1]),
        float(by_size.mean()),
        bound,
        bound * (1 + float(np.log(n - 1))),
    )


def constant_learner(n: int) -> tuple[float, float]:
    """Return a leave-one-out value and Theorem 3's bound, for a data-free learner.

    Its model depends on the number of points only, and is wrong for odd ones. So it is
    (0, 0)-private, and the theorem's bound on every value is 0.
    """
    utility = lambda size: 0.0 if size % 2 == 0 else -1.0
    return utility(n) - utility(n - 1), 0.0


def private_cases() -> dict[str, Differences]:
    """Return `private_differences` with noise of one scale, and with one privacy."""
    return {
        "scale": _cases(
            [
                (n, functools.partial(private_differences, n, share, scale=scale))
                for share in SHARES
                for scale in SCALES
                for n in SIZES
            ]
        ),
        "epsilon": _cases(
            [
                (n, functools.partial(private_differences, n, share, epsilon=epsilon))
                for share in SHARES
                for epsilon in PRIVACY
                for n in SIZES
            ]
        ),
    }


def stable_cases() -> Differences:
    """Return `stable_differences` for all learners and sizes."""
    return _cases(
        [
            (n, functools.partial(stable_differences, n, learner))
            for learner in STABLE
            for n in SIZES
        ]
    )


def _cases(
    cases: Sequence[tuple[int, Callable[[], tuple[float, float, float, float]]]],
) -> Differences:
    n = np.array([size for size, _ in cases])
    return Differences(n, *np.array([run() for _, run in cases]).T)


def _hypergeometric(
    points: int, right: int, drawn: np.ndarray, among: np.ndarray
) -> np.ndarray:
    """Return hypergeometric probabilities; `drawn` and `among` broadcast."""
    # logs[n] = log n!; products of factorials would overflow.
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, points + 1)))])

    def choose(n: int, k: np.ndarray) -> np.ndarray:
        inside = (k >= 0) & (k <= n)
        # Outside the support any valid index serves: the result is masked below.
        index = np.where(inside, k, 0)
        return np.where(inside, logs[n] - logs[index] - logs[n - index], -np.inf)

    log = choose(right, among) + choose(points - right, drawn - among)
    return np.exp(log - choose(points, drawn))
