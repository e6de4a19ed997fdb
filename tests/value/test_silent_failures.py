"""Failures in a worker's copy, which knows one batch of a run."""

import jax
import numpy as np
import pytest

from jaxsel import value
from jaxsel.value._oob import _Bags
from jaxsel.value._run_options import DEFAULTS

pytest.importorskip("sklearn")
from sklearn.tree import DecisionTreeClassifier

X, Y = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 2


class Refuses(DecisionTreeClassifier):
    """An estimator that fails on every bag."""

    def fit(self, X, y, sample_weight=None):
        raise ValueError("no")


def bags():
    learner = value.SklearnLearner(Refuses())
    return _Bags(learner, X, Y, jax.random.key(0), {**DEFAULTS, "batch_size": 8})


def test_a_batch_of_failures_ends_a_run_but_not_a_workers_copy():
    with pytest.raises(ValueError, match="failed on all of 8: ValueError: no"):
        bags()(0)
    copy = bags()
    copy.failures.silence()
    outside, _ = copy(0)
    assert not outside.any()
    assert copy.failures.drain()[:2] == (8, 8)
