"""scikit-learn's scorers as metrics of its estimators."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ._examples import Examples, Learner
from ._learners import SklearnLearner
from ._learners._sklearn import in_parallel
from ._metrics import SCORERS


def as_scorer(metric: Any, learner: Learner) -> Callable[..., Any] | None:
    """Return scikit-learn's scorer; None of a metric of jaxsel, or of scores.

    Raises:
        ValueError: If there is no such metric, or a scorer is to judge a learner of
            jaxsel.
        TypeError: If the metric is a function of labels and predictions.
    """
    if isinstance(metric, str) and metric in SCORERS:
        return None
    if callable(metric) and not _takes_an_estimator(metric):
        if str(getattr(metric, "__module__", "")).startswith("sklearn."):
            raise TypeError(
                "metric must be a scorer, not a function of labels and predictions, "
                f"got {getattr(metric, '__name__', metric)}: give the scorer's name, "
                "such as 'f1', or sklearn.metrics.make_scorer(...)"
            )
        return None
    known = ", ".join(map(repr, SCORERS))
    if not isinstance(learner, SklearnLearner):
        raise ValueError(
            f"metric must be one of {known}, or a function of scores and classes, got "
            f"{metric!r}: scorers of scikit-learn judge its estimators only"
        )
    if callable(metric):
        return metric
    import sklearn.metrics

    theirs: Any = sklearn.metrics
    if metric not in theirs.get_scorer_names():
        raise ValueError(
            f"metric must be one of {known}, another name in sklearn.metrics."
            f"get_scorer_names(), or a function, got {metric!r}"
        )
    return theirs.get_scorer(metric)


def _takes_an_estimator(metric: Callable[..., Any]) -> bool:
    """Return whether a function wants an estimator, x and y: not scores and y."""
    try:
        parameters = inspect.signature(metric).parameters.values()
    except ValueError:  # of a builtin
        return False
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    needed = [p for p in parameters if p.kind in positional and p.default is p.empty]
    return len(needed) == 3


@dataclasses.dataclass(frozen=True, eq=False)
class Scorer:
    """A scorer of scikit-learn, bound to validation labels or targets.

    Attributes:
        score: Of an estimator, x and y.
        learner: The estimator that is cloned.
        labels: All classes, `[C]`, as they were given; None for targets.
        y_val: `[m]`, likewise.
    """

    score: Callable[..., Any]
    learner: SklearnLearner
    labels: np.ndarray | None
    y_val: np.ndarray

    @classmethod
    def of(
        cls,
        score: Callable[..., Any],
        learner: Any,
        data: Examples,
        y: Any,
        codes: Any,
        y_val: Any,
    ) -> Scorer:
        """Return a scorer that knows the labels of codes.

        Args:
            score: See above.
            learner: See above.
            data: Training data with codes.
            y: Labels of these, `[n]`.
            codes: Of the validation data, `[m]`.
            y_val: Their labels, `[m]`.
        """
        if not data.n_classes:
            return cls(score, learner, None, np.asarray(codes))
        named = np.empty(data.n_classes, object)
        named[np.asarray(data.y)], named[np.asarray(codes)] = (
            np.asarray(y),
            np.asarray(y_val),
        )
        labels = np.array(named.tolist())
        return cls(score, learner, labels, labels[np.asarray(codes)])

    def __call__(self, models: list[Any], x_val: Any) -> np.ndarray:
        """Return the score of each model, `[B]`: NaN, and an `error`, on failure."""
        # A copy, since torch wants what it may write to.
        results = in_parallel(self.learner.n_jobs, self._one, models, np.array(x_val))
        for model, (_, error) in zip(models, results, strict=True):
            model.error = model.error or error
        return np.array([score for score, _ in results], np.float32)

    def of_dummy(self, data: Examples, x_val: Any) -> float:
        """Return the score of a model that knows labels alone.

        Raises:
            ValueError: If it has none.
        """
        from sklearn.dummy import DummyClassifier, DummyRegressor

        y = np.asarray(data.y)
        dummy: Any = DummyRegressor()
        if self.labels is not None:
            dummy, y = DummyClassifier(strategy="prior"), self.labels[y]
        dummy.fit(np.zeros((len(y), 1)), y)
        try:
            score = float(self.score(dummy, np.asarray(x_val), self.y_val))
        except Exception as error:
            raise ValueError(
                "empty must be given, what no points are worth, as this metric fails "
                f"for {dummy!r}: {error}"
            ) from error
        return score

    def _one(self, model: Any, x_val: np.ndarray) -> tuple[float, str | None]:
        from ._learners._trained import TrainedClassifier

        if model.error is not None:
            return np.nan, model.error
        judged = model.estimator
        if judged is None and not len(model.classes):
            return 0.0, None  # no points, which are worth `empty`
        if self.labels is not None:
            judged = TrainedClassifier(model, self.labels, self.learner.estimator)
        try:
            score = float(self.score(judged, x_val, self.y_val))
        except MemoryError:
            raise
        except Exception as error:
            if not self.learner.catch_errors:
                raise
            return np.nan, f"{type(error).__name__}: {error}"
        return score, "its score is NaN" if np.isnan(score) else None
