"""KNN-Shapley values as an estimator."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn import model_selection
from sklearn.base import BaseEstimator
from sklearn.utils import multiclass

from jaxsel._results.types import Values
from jaxsel.neighbors import Metric
from jaxsel.value import knn_shapley

from ._checked import check_column, check_samples, check_training


class KNNShapleyValuer(BaseEstimator):
    """Value each row by the nearest-neighbour classifier that it is a part of.

    With validation data, `fit` is `jaxsel.knn_shapley`. Without, each split of `cv`
    values its training rows by those that it holds out, and the values of a row are
    averaged over the validation rows of all splits.

    Args:
        k: Number of neighbours.
        metric: "l2" or "cosine".
        cv: Where no validation data are given: a number of stratified folds, or any
            splitter of scikit-learn. `ShuffleSplit(1, test_size=0.2)` holds out a fifth
            of the rows, whose own values are then NaN.

    Attributes:
        values_: `jaxsel.Values`, `[n]`; higher is better. `np.asarray(values_.values)`
            is an array, and `values_.to_pandas()` has the index of a DataFrame.
        classes_: The distinct labels, in order.
        n_features_in_: Number of features.
        feature_names_in_: Their names, where `X` was a DataFrame with names.

    References:
        Jia et al., Efficient task-specific data valuation for nearest neighbor
        algorithms, VLDB 2019.

    Examples:
        >>> import numpy as np
        >>> from jaxsel.estimators import KNNShapleyValuer
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat(["cat", "dog"], 30)
        >>> x = rng.normal(size=(60, 2)) + 5.0 * (y == "dog")[:, None]
        >>> y[[3, 40]] = "dog", "cat"  # two wrong labels
        >>> valuer = KNNShapleyValuer(k=5).fit(x, y)
        >>> print(np.sort(valuer.values_.bottom(2)))
        [ 3 40]
    """

    def __init__(self, k: int = 5, *, metric: Metric = "l2", cv: Any = 5):
        self.k = k
        self.metric = metric
        self.cv = cv

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> Any:
        """Value the rows of `X`.

        Args:
            X: Finite numbers, `[n, d]`, an array or a DataFrame.
            y: Labels, `[n]`.
            X_val: Validation samples `[m, d]`, or None.
            y_val: Their labels `[m]`, or None.

        Raises:
            ValueError: If data do not fit, or only one of `X_val` and `y_val` is given.
        """
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val must be given together, got one of them")
        samples, labels = check_training(self, X, y)
        multiclass.check_classification_targets(labels)
        self.classes_ = np.unique(labels)
        table = X if hasattr(X, "iloc") else samples
        options: Any = {"k": self.k, "metric": self.metric}
        if X_val is not None:
            held, held_labels = check_samples(self, X_val), check_column(y_val)
            self.values_ = knn_shapley(table, labels, held, held_labels, **options)
        else:
            splitter: Any = model_selection.check_cv(self.cv, labels, classifier=True)
            first, *others = [
                _of_split(samples, labels, *split, **options)
                for split in splitter.split(samples, labels)
            ]
            self.values_ = dataclasses.replace(
                first.merge(*others), index=_row_labels(table)
            )
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _of_split(
    x: np.ndarray, y: np.ndarray, train: np.ndarray, held: np.ndarray, **options: Any
) -> Values:
    """Return values of all rows, NaN and without samples for those held out."""
    part = knn_shapley(x[train], y[train], x[held], y[held], **options)
    values, m2 = np.full(len(x), np.nan), np.zeros(len(x))
    count = np.zeros(len(x), np.int32)
    values[train], m2[train], count[train] = part.values, part.m2, part.count
    return Values(
        values=jnp.asarray(values, part.values.dtype),
        m2=jnp.asarray(m2, part.values.dtype),
        count=jnp.asarray(count),
        method=part.method,
    )


def _row_labels(x: Any) -> tuple[Any, ...] | None:
    labels = x.index.tolist() if hasattr(x, "iloc") else None
    return None if labels in (None, list(range(len(x)))) else tuple(labels)
