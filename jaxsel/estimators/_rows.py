"""Estimators that fit another one on some of the rows."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, cast

import numpy as np
from sklearn import base, utils
from sklearn.utils import metaestimators, validation

from ._checked import check_column, check_samples, check_training


def _has(method: str) -> Any:
    def has(self: FittedOnRows) -> bool:
        return hasattr(getattr(self, "estimator_", self.estimator), method)

    return cast(Any, metaestimators.available_if(has))


class FittedOnRows(base.MetaEstimatorMixin, base.BaseEstimator):
    """Fits `estimator` on the rows that `_choose` returns; delegates all else to it."""

    estimator: Any

    @abstractmethod
    def _choose(
        self, x: Any, samples: np.ndarray, y: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the rows to fit on, and their weights or None.

        Args:
            x: Samples as they were given, if as a data frame; else `samples`.
            samples: As an array, checked.
            y: Labels or targets, checked.
        """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Choose rows, and fit a clone of the estimator on them.

        Args:
            X: Finite numbers, `[n, d]`, an array or a DataFrame.
            y: Labels or targets, `[n]`.
            sample_weight: `[n]`, for the estimator's own `fit`. The choice of rows does
                not depend on them.

        Raises:
            ValueError: If data do not fit, or weights are given and the estimator's
                `fit` takes none.
        """
        samples, labels = check_training(self, X, y)
        weighted = validation.has_fit_parameter(self.estimator, "sample_weight")
        if sample_weight is not None:
            if not weighted:
                raise ValueError(
                    "sample_weight must be None, since the fit of "
                    f"{type(self.estimator).__name__} takes none"
                )
            sample_weight = check_column(sample_weight)
            utils.check_consistent_length(samples, sample_weight)
        framed = hasattr(X, "iloc")
        rows, weights = self._choose(X if framed else samples, samples, labels)
        options: dict[str, Any] = {}
        if sample_weight is not None:
            options["sample_weight"] = sample_weight[rows]
        if weights is not None and weighted:
            options["sample_weight"] = weights * options.get("sample_weight", 1.0)
        part = X.iloc[rows] if framed else samples[rows]
        fresh = cast(Any, base.clone(self.estimator))
        self.estimator_ = fresh.fit(part, labels[rows], **options)
        return self

    def _of_estimator(self, method: str, X: Any, *rest: Any, **options: Any) -> Any:
        validation.check_is_fitted(self)
        samples = check_samples(self, X)
        inputs = X if hasattr(X, "iloc") else samples
        return getattr(self.estimator_, method)(inputs, *rest, **options)

    @_has("predict")
    def predict(self, X: Any) -> np.ndarray:
        """Return the estimator's predictions, `[m]`."""
        return self._of_estimator("predict", X)

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the estimator's probabilities, `[m, C]`."""
        return self._of_estimator("predict_proba", X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the estimator's decision function, `[m]` or `[m, C]`."""
        return self._of_estimator("decision_function", X)

    @_has("score")
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the estimator's score: accuracy, or R² of a regressor."""
        options = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self._of_estimator("score", X, y, **options)

    @property
    def classes_(self) -> np.ndarray:
        """The classes that a classifier has learnt, in order."""
        return self.estimator_.classes_

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), utils.get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.regressor_tags = inner.regressor_tags
        if inner.classifier_tags is not None:
            tags.classifier_tags = dataclasses.replace(
                inner.classifier_tags, multi_label=False
            )
        tags.target_tags.required = True
        return tags
