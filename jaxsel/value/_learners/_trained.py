"""A coalition's estimator as scikit-learn's scorers want it: with all classes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import metaestimators

from ._sklearn import SklearnModel, class_numbers, class_scores

available_if = cast(Any, metaestimators.available_if)


def _has_proba(self: TrainedClassifier) -> bool:
    return hasattr(self.like, "predict_proba")


def _decides(self: TrainedClassifier) -> bool:
    return len(self.classes_) == 2 and hasattr(self.like, "decision_function")


class TrainedClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that knows every class by its own label.

    Args:
        model: Of a coalition, which may lack classes, and numbers them.
        classes_: All labels, `[C]`, in order.
        like: The estimator that was cloned: what it cannot do, neither can this one.
    """

    def __init__(self, model: SklearnModel, classes_: np.ndarray, like: Any):
        self.model, self.classes_, self.like = model, classes_, like

    def predict(self, x: Any) -> np.ndarray:
        """Return the label of each sample, `[m]`."""
        if self.model.estimator is None:
            return np.repeat(self.classes_[self.model.classes], len(x))
        return self.classes_[class_numbers(self.model, self.model.estimator.predict(x))]

    @available_if(_has_proba)
    def predict_proba(self, x: Any) -> np.ndarray:
        """Return probabilities, `[m, C]`: 0 for classes that the coalition lacks."""
        return np.exp(class_scores(self.model, x, len(self.classes_)))

    @available_if(_decides)
    def decision_function(self, x: Any) -> np.ndarray:
        """Return how far each sample is on the side of the second class, `[m]`."""
        if self.model.estimator is None:
            return np.zeros(len(x))
        return self.model.estimator.decision_function(x)
