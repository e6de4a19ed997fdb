"""scikit-learn's estimators behind the same interface: one fit after the other."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import numpy as np

from jaxsel.value._examples import Examples


@dataclasses.dataclass(frozen=True)
class SklearnLearner:
    """Any estimator of scikit-learn, or what behaves like one.

    The slow path: every subset is a fit of its own, on the host, spread over processes
    by joblib. Examples that count more than once are sample weights, or repeated rows
    where `fit` takes none.

    Args:
        estimator: Cloned for each subset. A classifier with `predict_proba` gives
            probabilities; others give their predictions alone. One that draws needs a
            `random_state`, for a subset to have one utility only.
        n_jobs: Processes at once, as joblib counts them: -1 for all cores.
    """

    estimator: Any
    _: dataclasses.KW_ONLY
    n_jobs: int = 1

    warm = False
    host = True

    def __post_init__(self) -> None:
        for name in ("fit", "predict", "get_params"):
            if not hasattr(self.estimator, name):
                raise TypeError(
                    f"estimator must have a method {name!r}, got {self.estimator!r}"
                )

    @property
    def probabilistic(self) -> bool:
        """Whether the estimator has `predict_proba`."""
        return hasattr(self.estimator, "predict_proba")

    @property
    def regression(self) -> bool:
        """Whether the estimator is a regressor."""
        from sklearn.base import is_regressor

        return is_regressor(self.estimator)

    def prepare(self, data: Examples) -> Examples:
        """Return the examples as they are.

        Raises:
            ValueError: If a regressor gets classes, or a classifier targets.
        """
        if self.regression == bool(data.classes):
            given = "class labels" if data.classes else "targets"
            raise ValueError(f"estimator must fit {given}, got {self.estimator!r}")
        return data

    def fit(
        self,
        data: Examples,
        weights: Any,
        key: Any = None,
        start: Any = None,
    ) -> list[Any]:
        """Train on each subset: see `Learner.fit`.

        Returns:
            For each subset, the estimator and how many classes there are, or the one
            class that it has.

        Raises:
            ValueError: If weights are no whole numbers and `fit` takes no weights.
        """
        from joblib import Parallel, delayed

        del key, start
        x, y = np.asarray(data.x), np.asarray(data.y)
        weighted = "sample_weight" in inspect.signature(self.estimator.fit).parameters
        jobs = (
            delayed(_fit)(self.estimator, x, y, np.asarray(w), data.classes, weighted)
            for w in np.asarray(weights)
        )
        return list(Parallel(n_jobs=self.n_jobs)(jobs))

    def predict(self, params: list[Any], x: Any) -> np.ndarray:
        """Return scores, `[B, m, classes]` or `[B, m, 1]`: see `Learner.predict`."""
        from joblib import Parallel, delayed

        x = np.asarray(x)
        jobs = (delayed(_predict)(*each, x) for each in params)
        found: Any = Parallel(n_jobs=self.n_jobs)(jobs)
        return np.stack(found)


def _fit(
    estimator: Any,
    x: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    classes: int,
    weighted: bool,
) -> tuple[Any, int]:
    from sklearn.base import clone

    rows = np.flatnonzero(w)
    w = w[rows]
    found = np.unique(y[rows])
    if not len(rows):
        return None, classes
    if classes and len(found) == 1:
        return int(found[0]), classes
    model: Any = clone(estimator)
    if weighted and (w != 1).any():
        return model.fit(x[rows], y[rows], sample_weight=w), classes
    if (w != w.round()).any():
        raise ValueError(
            f"weights must be whole numbers, as {type(estimator).__name__} takes no "
            f"sample weights, got {w[w != w.round()][0]}"
        )
    rows = np.repeat(rows, w.astype(int))
    return model.fit(x[rows], y[rows]), classes


def _predict(model: Any, classes: int, x: np.ndarray) -> np.ndarray:
    if not classes:
        predicted = np.zeros(len(x)) if model is None else model.predict(x)
        return predicted[:, None].astype(np.float32)
    scores = np.full((len(x), classes), -np.inf, np.float32)
    if model is None:
        scores[:] = 0
    elif isinstance(model, int):
        scores[:, model] = 0
    elif hasattr(model, "predict_proba"):
        with np.errstate(divide="ignore"):
            scores[:, model.classes_] = np.log(model.predict_proba(x))
    else:
        scores[np.arange(len(x)), model.predict(x)] = 0
    return scores
