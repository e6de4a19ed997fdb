"""Games of `python -m benchmarks.errors`: all utilities, and exact Shapley values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxsel import value

from . import _retrain


def shapley(table: np.ndarray, n: int) -> np.ndarray:
    """Return the Shapley values of a game by their definition, in float64."""
    index = np.arange(2**n)
    size = np.bitwise_count(index)
    chance = np.array([1.0])
    for s in range(1, n):
        chance = np.append(chance, chance[-1] * s / (n - s))
    values: list[float] = []
    for i in range(n):
        without = index[index >> i & 1 == 0]
        gained = table[without | 1 << i] - table[without]
        values.append(float(gained @ chance[size[without]]) / n)
    return np.array(values)


def _members(n: int) -> np.ndarray:
    return np.arange(2**n)[:, None] >> np.arange(n) & 1


def _scaled(table: np.ndarray) -> np.ndarray:
    table = np.asarray(table, np.float64)
    return table / table.std()


def _airport(n: int) -> np.ndarray:
    cost = np.arange(1, n + 1) ** 1.5
    return _scaled((_members(n) * cost).max(1))


def _voting(n: int) -> np.ndarray:
    votes = np.random.default_rng(0).integers(1, 20, n)
    return _scaled(_members(n) @ votes > votes.sum() / 2)


def _interactions(n: int) -> np.ndarray:
    rng, members = np.random.default_rng(1), _members(n)
    table = np.zeros(2**n)
    for _ in range(5 * n):
        subset = rng.choice(n, min(n, 1 + rng.geometric(0.4)), replace=False)
        table += rng.normal() * members[:, subset].all(1)
    return _scaled(table)


def _noise(n: int) -> np.ndarray:
    return _scaled(np.random.default_rng(2).normal(size=2**n))


def _points(metric: Any) -> Callable[[int], np.ndarray]:
    """Return a game of points: logistic regression on two Gaussian classes."""

    def table(n: int) -> np.ndarray:
        task = _retrain.gaussians(n, 3)
        return _trained(task, np.arange(n), metric)

    return table


def _digits(n: int) -> np.ndarray:
    """Return a game of owners of ten digits each, of ten classes."""
    return _trained(_retrain.digits(10 * n), np.arange(10 * n) % n, "accuracy")


def _trained(task: Any, owners: np.ndarray, metric: Any) -> np.ndarray:
    learner = value.LogisticRegression()
    data = task.x, task.y, task.x_val, task.y_val
    utility = value.by_owner(value.ModelUtility(learner, *data, metric=metric), owners)
    masks = _members(utility.n).astype(bool)
    parts = [
        utility(part, None) for part in np.array_split(masks, max(1, len(masks) >> 10))
    ]
    return _scaled(np.concatenate(parts))


GAMES: dict[str, Callable[[int], np.ndarray]] = {
    "logistic, likelihood": _points("likelihood"),
    "logistic, accuracy": _points("accuracy"),
    "digits by owner": _digits,
    "airport": _airport,
    "voting": _voting,
    "interactions": _interactions,
    "noise": _noise,
}
