"""Inputs and peers of the benchmark of values that retrain models."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[], np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """Training and validation data. Compared by identity.

    Attributes:
        x: `[n, d]` float32.
        y: `[n]`.
        x_val: `[m, d]`.
        y_val: `[m]`.
        orders: Permutations; their prefixes are the masks, `[30, n]`.
    """

    x: np.ndarray
    y: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    orders: np.ndarray


def gaussians(n: int, d: int, m: int = 200) -> Task:
    """Return two overlapping classes, one label in ten wrong."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n + m)
    x = rng.normal(size=(n + m, d)) + np.where(y[:, None] == 1, 0.5, -0.5) * (
        np.arange(d) < (d + 1) // 2
    )
    wrong = rng.random(n + m) < 0.1
    return _split(x, np.where(wrong, 1 - y, y), n, rng)


def has_digits() -> bool:
    """Return whether scikit-learn, which brings the digits, is there."""
    try:
        import sklearn.datasets
    except ImportError:
        return False
    return bool(sklearn.datasets)


def digits(n: int, m: int = 200) -> Task:
    """Return handwritten digits of 8x8 pixels between 0 and 1.

    Without scikit-learn, ten Gaussian classes of as many features.
    """
    rng = np.random.default_rng(0)
    if not has_digits():
        y = rng.integers(10, size=n + m)
        centres = rng.normal(size=(10, 64))
        return _split(centres[y] + 2 * rng.normal(size=(n + m, 64)), y, n, rng)
    from sklearn.datasets import load_digits

    x, y = (np.asarray(a) for a in load_digits(return_X_y=True))
    rows = rng.permutation(len(x))[: n + m]
    return _split(x[rows] / 16, y[rows], n, rng)


def images(n: int, m: int = 200) -> Task:
    """Return noise of 784 features in ten classes, for a network of that size."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n + m)
    centres = rng.normal(size=(10, 784))
    return _split(centres[y] + 4 * rng.normal(size=(n + m, 784)), y, n, rng)


def _split(x: np.ndarray, y: np.ndarray, n: int, rng: np.random.Generator) -> Task:
    x = x.astype(np.float32)
    orders = np.stack([rng.permutation(n) for _ in range(30)])
    return Task(x[:n], y[:n], x[n:], y[n:], orders)


def prefix_masks(task: Task) -> np.ndarray:
    """Return a prefix of each order, of all sizes, that has two classes, `[30, n]`."""
    n = len(task.y)
    masks = np.zeros((len(task.orders), n), bool)
    for row, order in enumerate(task.orders):
        size = max(2, round(n * (row + 1) / len(task.orders)))
        while len(np.unique(task.y[order[:size]])) < 2:
            size += 1
        masks[row, order[:size]] = True
    return masks


@functools.cache
def prefix_accuracies(task: Task) -> np.ndarray:
    """Return the accuracy of exact fits on `prefix_masks`, `[30]`.

    By scikit-learn, or where that is missing by SciPy.
    """
    fit = functools.partial(_accuracy, solver="newton-cg")
    if not has_digits():
        fit = scipy_accuracy
    return np.array([fit(task, mask) for mask in prefix_masks(task)])


def _accuracy(task: Task, mask: np.ndarray, solver: str = "lbfgs") -> float:
    from sklearn.linear_model import LogisticRegression

    exact = {"tol": 1e-10, "max_iter": 1000} if solver == "newton-cg" else {}
    model = LogisticRegression(solver=solver, **exact)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(task.x[mask], task.y[mask])
    return model.score(task.x_val, task.y_val)


def scipy_accuracy(task: Task, mask: np.ndarray) -> float:
    """Return the accuracy at the minimum of `LogisticRegression`'s objective."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    classes, y = np.unique(task.y[mask], return_inverse=True)
    x = np.column_stack([task.x[mask], np.ones(mask.sum())]).astype(np.float64)
    right = np.eye(len(classes))[y]
    # Of two classes scikit-learn has one vector of weights: the difference of these.
    penalty = np.full((len(classes), x.shape[1]), 2.0 if len(classes) == 2 else 1.0)
    penalty[:, -1] = 0

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(penalty.shape)
        logs = log_softmax(x @ weights.T, axis=1)
        value = 0.5 * np.sum(penalty * weights**2) - np.sum(right * logs)
        return value, ((np.exp(logs) - right).T @ x + penalty * weights).ravel()

    options: Any = {"maxiter": 10_000, "gtol": 1e-6, "ftol": 1e-14}
    result = minimize(
        loss, np.zeros(penalty.size), jac=True, method="L-BFGS-B", options=options
    )
    weights = result.x.reshape(penalty.shape)
    scores = task.x_val @ weights[:, :-1].T + weights[:, -1]
    return float(np.mean(classes[scores.argmax(axis=1)] == task.y_val))


def sklearn_loo(task: Task, count: int) -> Call:
    """Return a loop of scikit-learn's fits, each without one of `count` points."""
    import sklearn.linear_model

    del sklearn  # at once, and not when it is timed
    return lambda: _without_each(task, count, _accuracy)


def losses_of_leaving(task: Task, count: int) -> np.ndarray:
    """Return the loss of accuracy from leaving out each of `count` points."""
    return _without_each(task, count, _accuracy if has_digits() else scipy_accuracy)


def _without_each(
    task: Task, count: int, accuracy: Callable[[Task, np.ndarray], float]
) -> np.ndarray:
    whole = np.ones(len(task.y), bool)
    full, losses = accuracy(task, whole), []
    for i in range(min(count, len(task.y))):
        mask = whole.copy()
        mask[i] = False
        losses.append(full - accuracy(task, mask))
    return np.array(losses)


def pydvl_tmc(task: Task) -> Call:
    """Return pyDVL's Shapley values of one permutation, in one process."""
    from joblib import parallel_config
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        from pydvl.valuation.dataset import Dataset
        from pydvl.valuation.methods.shapley import ShapleyValuation
        from pydvl.valuation.samplers import PermutationSampler
        from pydvl.valuation.scorers import SupervisedScorer
        from pydvl.valuation.stopping import MaxUpdates
        from pydvl.valuation.utility import ModelUtility

    train, test = Dataset(task.x, task.y), Dataset(task.x_val, task.y_val)
    seeds = itertools.count()

    def call() -> np.ndarray:
        model: Any = LogisticRegression()
        scorer = SupervisedScorer(model, test, default=0.0, range=(0, 1))
        utility = ModelUtility(model, scorer, show_warnings=False)
        valuation = ShapleyValuation(
            utility,
            PermutationSampler(seed=next(seeds)),
            is_done=MaxUpdates(1),
            show_warnings=False,
        )
        with parallel_config(n_jobs=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return valuation.fit(train).result.values

    return call
