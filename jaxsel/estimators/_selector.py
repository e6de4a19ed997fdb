"""An estimator that is trained on a small, chosen part of the data."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn import base
from sklearn.utils import multiclass

from jaxsel._results.types import Selection
from jaxsel.match import class_budgets, facility_location

from ._rows import FittedOnRows

Select = Callable[[np.ndarray, np.ndarray, int], Any]


class Selector(FittedOnRows):
    """Fit an estimator on few rows, chosen to stand for all of them.

    By default these are representatives (CRAIG): every row has one near it, of its own
    class where the estimator is a classifier. Each counts as many times as it
    represents rows, where the estimator's `fit` takes `sample_weight`.

    Args:
        estimator: Cloned, and fitted on the rows chosen.
        budget: How many rows to choose: a number, or a share above 0 and up to 1.
        select: Takes `x` `[n, d]`, `y` `[n]` and the number of rows, and returns a
            `jaxsel.Selection`, whose weights count as above, or row numbers, such as
            those of `Values.top`.

    Attributes:
        selection_: The `jaxsel.Selection`: rows of `X`, and weights.
        estimator_: The estimator that was fitted on them.
        classes_: Its classes, where it is a classifier.
        n_features_in_: Number of features.
        feature_names_in_: Their names, where `X` was a DataFrame with names.

    The default costs O(n² d) for each class; see `jaxsel.facility_location`.

    References:
        Mirzasoleiman, Bilmes and Leskovec, Coresets for Data-efficient Training of
        Machine Learning Models (CRAIG), ICML 2020.

    Examples:
        >>> import numpy as np
        >>> from jaxsel.estimators import Selector
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat(["cat", "dog"], 30)
        >>> x = rng.normal(size=(60, 2)) + 5.0 * (y == "dog")[:, None]
        >>> y[[3, 40]] = "dog", "cat"  # two wrong labels
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> model = Selector(KNeighborsClassifier(1), budget=10).fit(x, y)
        >>> print(len(model.selection_))  # rows that represent the others
        10
    """

    def __init__(
        self, estimator: Any, *, budget: float = 0.5, select: Select | None = None
    ):
        self.estimator = estimator
        self.budget = budget
        self.select = select

    def _choose(
        self, x: Any, samples: np.ndarray, y: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        budget = self._count(len(samples))
        if self.select is not None:
            selection = self.select(samples, y, budget)
            if not isinstance(selection, Selection):
                selection = _of_rows(selection, len(samples))
        elif base.is_classifier(self.estimator):
            multiclass.check_classification_targets(y)
            selection = _by_class(samples, y, budget)
        else:
            selection = facility_location(samples, budget)
        self.selection_ = selection
        rows = np.asarray(selection.indices)[: len(selection)]
        weights = np.asarray(selection.weights, np.float64)[: len(selection)]
        return rows, None if (weights == weights[0]).all() else weights

    def _count(self, n: int) -> int:
        if isinstance(self.budget, numbers.Integral) and self.budget >= 1:
            return min(int(self.budget), n)
        if isinstance(self.budget, float) and 0 < self.budget <= 1:
            return max(1, round(self.budget * n))
        raise ValueError(
            "budget must be a number of rows from 1 on, or a share above 0 and up to "
            f"1.0, got {self.budget!r}"
        )


def _by_class(x: np.ndarray, y: np.ndarray, budget: int) -> Selection:
    """Choose representatives of each class, at least one, by its share of the rows."""
    classes, codes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    if budget < len(classes):
        raise ValueError(
            f"budget must be at least the {len(classes)} classes of y, got {budget} "
            f"of {len(y)} rows"
        )
    others = class_budgets(sizes - 1, sizes - 1, budget - len(classes))
    rows: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    for i, count in enumerate(1 + others):
        members = np.flatnonzero(codes == i)
        part = facility_location(x[members], int(count))
        rows.append(members[np.asarray(part.indices)[: len(part)]])
        weights.append(np.asarray(part.weights)[: len(part)])
    indices = np.concatenate(rows)
    return Selection(
        indices=jnp.asarray(indices, jnp.int32),
        weights=jnp.asarray(np.concatenate(weights)),
        n_valid=jnp.asarray(len(indices), jnp.int32),
        method="facility_location, class by class",
    )


def _of_rows(rows: Any, n: int) -> Selection:
    indices = np.asarray(rows)
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or not len(indices):
        raise TypeError(
            "select must return a Selection or row numbers, got an array of shape "
            f"{indices.shape} and dtype {indices.dtype}"
        )
    if indices.min() < 0 or indices.max() >= n:
        raise ValueError(f"select must return rows from 0 to {n - 1}, got {indices}")
    return Selection(
        indices=jnp.asarray(indices, jnp.int32),
        weights=jnp.ones(len(indices)),
        n_valid=jnp.asarray(len(indices), jnp.int32),
        method="select",
    )
