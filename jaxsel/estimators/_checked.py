"""Data as scikit-learn checks them, with the types that they then have."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from sklearn.utils import validation


def check_training(estimator: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Validate samples and labels, and record their form on the estimator."""
    return cast(
        tuple[np.ndarray, np.ndarray], validation.validate_data(estimator, X, y)
    )


def check_samples(estimator: Any, X: Any) -> np.ndarray:
    """Validate samples against the form that the estimator was fitted on."""
    return cast(np.ndarray, validation.validate_data(estimator, X, reset=False))


def check_column(y: Any) -> np.ndarray:
    """Return one number or label a row, `[n]`."""
    return cast(np.ndarray, validation.column_or_1d(y))
