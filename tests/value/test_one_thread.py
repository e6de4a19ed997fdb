"""Threads of BLAS while small tables are fitted on the host."""

import jax
import numpy as np
import pytest
import threadpoolctl
from sklearn.linear_model import LogisticRegression

from jaxsel import find_label_errors, market, value
from jaxsel._devices import platform
from jaxsel._devices.platform import one_thread

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), np.arange(40) % 2
MASKS = RNG.random((3, 40)) < 0.7


def threads():
    """Threads of the libraries of NumPy and SciPy; others may not heed limits."""
    return [
        library["num_threads"]
        for library in threadpoolctl.threadpool_info()
        if library["user_api"] == "blas" and "scipy_openblas" in library["prefix"]
    ]


class Watched(LogisticRegression):
    seen: list[int] = []  # noqa: RUF012 (of all clones)

    def fit(self, x, y):
        self.seen.extend(threads())
        return super().fit(x, y)

    def predict_proba(self, x):
        self.seen.extend(threads())
        return super().predict_proba(x)


@pytest.mark.parametrize("small", [True, False])
def test_small_tables_are_fitted_by_one_thread(small, monkeypatch):
    if not small:
        monkeypatch.setattr(platform, "_SMALL", X.size - 1)
    monkeypatch.setattr(Watched, "seen", [])
    with threadpoolctl.threadpool_limits(2, "blas"):
        utility = value.ModelUtility(Watched(), X, Y, X, Y)
        utility.evaluate(MASKS)
        assert set(threads()) == {2}
    assert set(Watched.seen) == ({1} if small else {2})


def test_threads_that_overlap_leave_no_limit():
    first, second = one_thread(), one_thread()
    with threadpoolctl.threadpool_limits(2, "blas"):
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(threads()) == {1}
        second.__exit__(None, None, None)
        assert set(threads()) == {2}


def _calls():
    key = jax.random.key(0)
    logistic = value.LogisticRegression()
    vectors, targets = RNG.normal(size=(4, 3)), RNG.normal(size=(2, 3))
    utility = value.ModelUtility(logistic, X, Y, X, Y)
    few = value.MaxSamples(2)
    return {
        "utility": lambda: utility.evaluate(MASKS),
        "influence": lambda: value.influence(X, Y, X, Y),
        "data_oob": lambda: value.data_oob(logistic, X, Y, key=key, stop=few),
        "find_label_errors": lambda: find_label_errors(X, Y),
        "value_datasets": lambda: market.value_datasets(vectors, targets),
    }


@pytest.mark.parametrize("name", _calls())
def test_small_decompositions_have_one_thread(name, monkeypatch):
    call, entered = _calls()[name], []
    enter = platform._OneThread.__enter__
    monkeypatch.setattr(
        platform._OneThread, "__enter__", lambda self: entered.append(enter(self))
    )
    call()
    assert entered
