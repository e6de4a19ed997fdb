"""Retraining is measured without scikit-learn too: SciPy checks it then."""

import sys

import numpy as np
import pytest

from benchmarks import _retrain


@pytest.mark.parametrize(
    ("task", "size"), [(_retrain.gaussians(60, 5), 40), (_retrain.digits(60), 50)]
)
def test_scipy_fits_what_scikit_learn_fits(task, size):
    mask = np.arange(60) < size
    right = _retrain._accuracy(task, mask, solver="newton-cg")
    # A prediction in 200 may lie within rounding of the border.
    assert abs(_retrain.scipy_accuracy(task, mask) - right) <= 0.0051
    assert right > 0.6


def test_without_scikit_learn_there_are_gaussians_and_no_peer(monkeypatch):
    pixels = _retrain.digits(20)
    for name in ("sklearn", "sklearn.datasets", "sklearn.linear_model"):
        monkeypatch.setitem(sys.modules, name, None)
    assert not _retrain.has_digits()
    task = _retrain.digits(40)
    assert task.x.shape[1] == pixels.x.shape[1] == 64
    assert task.x.min() < 0 <= pixels.x.min()
    with pytest.raises(ImportError):
        _retrain.sklearn_loo(task, 2)
    found = _retrain.losses_of_leaving(task, 2)
    assert found.shape == (2,)
    assert np.all(np.abs(found) <= 0.1)
