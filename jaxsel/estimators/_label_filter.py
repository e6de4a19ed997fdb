"""A classifier that is not trained on labels that are probably wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import multiclass

from jaxsel._inputs.checks import show_labels
from jaxsel.labels import find_label_errors

from ._rows import FittedOnRows


class LabelErrorFilter(FittedOnRows):
    """Fit a classifier without the rows that are probably mislabelled.

    A step of a `Pipeline` cannot drop rows, so this wraps the classifier: make it the
    last step. Steps before it see all rows, as they do of a `Pipeline`.
    `jaxsel.find_label_errors` says which labels are suspected. Only `fit` leaves rows
    out: `predict` and `score` judge all that they are given, wrong labels included.

    Args:
        estimator: A classifier, cloned; if its `fit` takes `sample_weight`, so does
            this one.
        learner: Predicts each fold from the others: a classifier with
            `predict_proba`, or a learner of `jaxsel.value`. If None, the default of
            `jaxsel.find_label_errors`.
        folds: How many folds samples are dealt out to.
        filter_by: Which labels to suspect; see `jaxsel.labels.label_issues`.

    Attributes:
        errors_: The `jaxsel.LabelErrors` that were found.
        estimator_: The classifier that was fitted on the other rows.
        classes_: Its classes.
        n_features_in_: Number of features.
        feature_names_in_: Their names, where `X` was a DataFrame with names.

    References:
        Northcutt, Jiang and Chuang, Confident learning: estimating uncertainty in
        dataset labels, JAIR 70, 2021.

    Examples:
        >>> import numpy as np
        >>> from jaxsel.estimators import LabelErrorFilter
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat(["cat", "dog"], 30)
        >>> x = rng.normal(size=(60, 2)) + 5.0 * (y == "dog")[:, None]
        >>> y[[3, 40]] = "dog", "cat"  # two wrong labels
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> model = LabelErrorFilter(KNeighborsClassifier(1)).fit(x, y)
        >>> print(np.sort(model.errors_.indices))  # left out of the training
        [ 3 40]
    """

    def __init__(
        self,
        estimator: Any,
        *,
        learner: Any = None,
        folds: int = 5,
        filter_by: Any = "prune_by_noise_rate",
    ):
        self.estimator = estimator
        self.learner = learner
        self.folds = folds
        self.filter_by = filter_by

    def _choose(
        self, x: Any, samples: np.ndarray, y: np.ndarray
    ) -> tuple[np.ndarray, None]:
        multiclass.check_classification_targets(y)
        if len(np.unique(y)) < 2:
            raise ValueError(
                f"y must have two classes or more, got 1 class: {show_labels(y[:1])}"
            )
        self.errors_ = find_label_errors(
            x, y, learner=self.learner, folds=self.folds, filter_by=self.filter_by
        )
        return np.flatnonzero(~self.errors_.mask), None
