"""The trainers of the tabular experiments: fit again with received rows, score."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .kinds import KindTable
from .market import TableMarket

Settings = Mapping[str, float]


def _grid(leaves: str, sizes: Sequence[float], columns: str) -> tuple[Settings, ...]:
    """Cross sizes of leaves, shares of columns that a split sees, and weights."""
    return tuple(
        {leaves: size, columns: share, "balanced": balanced}
        for balanced in (False, True)
        for share in (1.0, 0.5)
        for size in sizes
    )


_SCIKIT = _grid("min_samples_leaf", (1, 4, 8, 16), "max_features")

GRID: Mapping[str, tuple[Settings, ...]] = {
    "decision tree": _SCIKIT,
    "random forest": _SCIKIT,
    "gradient boosting": _SCIKIT,
    "XGBoost": _grid("min_child_weight", (1, 0.1, 10, 40), "colsample_bynode"),
}
"""Settings that are tried for each classifier, as many for each; see `search`.

"balanced" gives both classes the same weight: there are few positives.
"""

CLASSIFIERS = (*GRID,)
"""The last one if it is installed; see `classifiers_here`."""

Model = tuple[str, Settings]
"""The name of a classifier, and its settings."""

TREE: Model = CLASSIFIERS[0], GRID[CLASSIFIERS[0]][0]
"""A tree of scikit-learn's defaults: it judges every choice of samples."""


@functools.cache
def classifiers_here() -> tuple[str, ...]:
    """Return the `CLASSIFIERS` that can be trained here.

    XGBoost is in no extra: `pip install xgboost-cpu` brings it.
    """
    known = importlib.util.find_spec("xgboost") is not None
    return CLASSIFIERS if known else CLASSIFIERS[:-1]


def first_models() -> list[Model]:
    """List the classifiers that can be trained here, by their first settings."""
    return [(name, GRID[name][0]) for name in classifiers_here()]


def in_words(model: Model) -> str:
    """Name the settings of a classifier."""
    return ", ".join(f"{name} {value:g}" for name, value in model[1].items())


class Retrainer:
    """Trains trainers' models again, with the rows they receive."""

    def __init__(self, table: KindTable, market: TableMarket, seed: int):
        self._table, self._market, self._seed = table, market, seed

    def __call__(self, jobs: Iterable[tuple[int, np.ndarray, Model]]) -> list[float]:
        """Compute F1 for each trainer, rows received and classifier.

        Trees are fitted in threads while `jobs` still produces more, the others one
        after the other: a forest replaces the process's filters of warnings for a
        while, and must not do so in two threads at once.
        """
        with ThreadPoolExecutor(os.cpu_count()) as pool:

            def score(job: tuple[int, np.ndarray, Model]) -> Callable[[], float]:
                run = functools.partial(self._score, *job)
                return pool.submit(run).result if job[2][0] == TREE[0] else run

            return [wait() for wait in [score(job) for job in jobs]]

    def with_all_pairs(self) -> np.ndarray:
        """Return F1 with all that an owner has, by a decision tree, `[P, O]`."""
        market = self._market
        shape = (len(market.hard), len(market.offered))
        jobs = [(p, market.everything(o), TREE) for p, o in np.ndindex(shape)]
        return np.reshape(self(jobs), shape)

    def _score(self, trainer: int, received: np.ndarray, model: Model) -> float:
        rows = np.concatenate([self._market.own[trainer], received])
        test = self._market.test[trainer]
        x, y = self._table.x, self._table.positive
        untrained, balanced = _new(*model, self._seed)
        # As scikit-learn's class_weight="balanced", which boosting does not have.
        share = np.where(y[rows], y[rows].mean(), 1 - y[rows].mean())
        weights = 0.5 / share if balanced else None
        fitted = untrained.fit(x[rows], y[rows], sample_weight=weights)
        return _f1(y[test], fitted.predict(x[test]))


def _new(name: str, settings: Settings, seed: int) -> tuple[Any, bool]:
    """Make an untrained classifier, and tell whether its classes weigh the same."""
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    options = {**settings, "random_state": seed}
    balanced = options.pop("balanced")
    boosted = {"n_estimators": 20, "learning_rate": 0.3}
    if name == "decision tree":
        return DecisionTreeClassifier(**options), balanced
    if name == "random forest":
        return RandomForestClassifier(20, **options), balanced
    if name == "gradient boosting":
        return GradientBoostingClassifier(**boosted, **options), balanced
    from xgboost import XGBClassifier  # pyright: ignore

    return XGBClassifier(**boosted, n_jobs=1, **options), balanced


def _f1(true: np.ndarray, predicted: np.ndarray) -> float:
    """Return F1 of the positives; 0 where none is found.

    scikit-learn's took 1 ms in a single measurement.
    """
    true_positives = np.sum(true & predicted)
    return float(2 * true_positives / (true.sum() + predicted.sum()))
