"""Long runs of scikit-learn's estimators, which go on in processes of their own."""

import logging
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import jax
import joblib
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from jaxsel import value
from jaxsel._runs import processes
from jaxsel.value import _executor
from jaxsel.value._evaluator import Evaluator
from jaxsel.value._run_options import DEFAULTS

KEY = jax.random.key(3)
X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
Y = np.arange(24) % 2
DATA = X[:12], Y[:12], X[12:], Y[12:]
TREE = DecisionTreeClassifier(max_depth=2, random_state=0)


class Elsewhere:
    """Another process in this one: all that is sent is pickled."""

    _max_workers = 2

    def __init__(self, last=None):
        self.calls, self.last = 0, last

    def submit(self, fn, /, *args):
        if self.calls == self.last:
            raise BrokenProcessPool("killed")
        self.calls += 1
        future = Future()
        future.set_result(fn(*pickle.loads(pickle.dumps(args))))
        return future


def calls(learner=TREE):
    utility = value.ModelUtility(learner, *DATA)
    return {
        "shapley": lambda: value.tmc_shapley(
            utility, key=KEY, stop=value.MaxSamples(40), tolerance=0
        ),
        "banzhaf": lambda: value.banzhaf(utility, key=KEY, stop=value.MaxSamples(300)),
        "owners": lambda: value.banzhaf(
            utility, key=KEY, stop=value.MaxSamples(300), owners=np.arange(12) // 3
        ),
        "bags": lambda: value.data_oob(
            learner, X, Y, key=KEY, stop=value.MaxSamples(300)
        ),
    }


@pytest.fixture
def impatient(monkeypatch):
    """Make runs go on elsewhere at once, and return what they go on in."""

    def make(executor):
        monkeypatch.setattr(_executor, "PATIENCE", 0.0)
        monkeypatch.setattr(_executor, "local_processes", lambda: executor)
        return executor

    return make


@pytest.mark.parametrize("name", calls())
def test_values_are_those_of_one_process(name, impatient):
    here = calls(value.SklearnLearner(TREE, n_jobs=1))[name]()
    executor = impatient(Elsewhere())
    there = calls()[name]()
    assert executor.calls > 1
    np.testing.assert_array_equal(there.values, here.values)
    np.testing.assert_array_equal(there.m2, here.m2)


@pytest.mark.parametrize("name", calls())
def test_quick_runs_stay_here(name, monkeypatch):
    def never():
        raise AssertionError

    monkeypatch.setattr(_executor, "local_processes", never)
    calls()[name]()


def test_processes_start_in_the_midst_of_a_run(impatient, monkeypatch):
    executor = impatient(Elsewhere())
    monkeypatch.setattr(_executor, "PATIENCE", 3.5)
    ticks = iter(range(1000))
    monkeypatch.setattr(_executor, "_clock", lambda: next(ticks))
    there = calls()["bags"]()
    assert executor.calls
    monkeypatch.setattr(_executor, "PATIENCE", np.inf)
    np.testing.assert_array_equal(there.values, calls()["bags"]().values)


@pytest.mark.parametrize("last", [0, 1, 2])
def test_a_run_that_loses_its_processes_goes_on_here(last, impatient, caplog):
    here = calls(value.SklearnLearner(TREE, n_jobs=1))["banzhaf"]()
    executor = impatient(Elsewhere(last))
    there = calls()["banzhaf"]()
    assert executor.calls == last
    np.testing.assert_array_equal(there.values, here.values)
    assert "processes were lost" in caplog.text


def test_a_resumed_run_completes_its_batch_here(impatient, tmp_path):
    utility = value.ModelUtility(TREE, *DATA)
    options = {"key": KEY, "checkpoint": tmp_path}
    value.banzhaf(utility, stop=value.MaxSamples(100), **options)
    executor = impatient(Elsewhere())
    more = value.banzhaf(utility, stop=value.MaxSamples(300), **options)
    assert executor.calls
    once = value.banzhaf(
        value.ModelUtility(value.SklearnLearner(TREE, n_jobs=1), *DATA),
        key=KEY,
        stop=value.MaxSamples(300),
    )
    np.testing.assert_array_equal(more.values, once.values)


class Locked(DecisionTreeClassifier):
    """An estimator that cannot be pickled, as one that holds a connection."""

    def __getstate__(self):
        raise TypeError("cannot pickle a connection")


def test_what_cannot_be_pickled_stays_here(impatient, caplog):
    executor = impatient(Elsewhere())
    caplog.set_level(logging.INFO, logger="jaxsel")
    tree = Locked(max_depth=2, random_state=0)
    there = calls(tree)["shapley"]()
    assert not executor.calls
    assert "no processes" in caplog.text
    np.testing.assert_array_equal(there.values, calls()["shapley"]().values)


@pytest.mark.parametrize(
    ("learner", "spreads"),
    [
        (value.SklearnLearner(TREE), True),
        (value.SklearnLearner(TREE, n_jobs=1), False),
        (value.SklearnLearner(TREE, n_jobs=2), False),
        (value.SklearnLearner(RandomForestClassifier(n_jobs=2)), False),
        (value.SklearnLearner(LogisticRegression(warm_start=True)), False),
        (value.LogisticRegression(), False),
    ],
)
def test_who_goes_on_in_processes(learner, spreads):
    utility = value.ModelUtility(learner, *DATA)
    assert Evaluator(utility, KEY, DEFAULTS).spreads is spreads


@pytest.mark.parametrize(("load", "free"), [(0.2, 8), (1.0, 8), (4.4, 5), (30.0, 1)])
def test_free_cores(load, free, monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    monkeypatch.setattr(processes.os, "getloadavg", lambda: (load, 0, 0))
    assert processes.free_cores() == free


def test_no_processes_beside_a_busy_machine_or_an_accelerator(monkeypatch):
    monkeypatch.setattr(processes, "free_cores", lambda: 1)
    assert processes.local_processes() is None
    monkeypatch.setattr(processes, "free_cores", lambda: 2)
    monkeypatch.setattr(processes.jax, "default_backend", lambda: "gpu")
    assert processes.local_processes() is None


SCRIPT = """
    import logging

    import jax
    import numpy as np
    from sklearn.tree import DecisionTreeClassifier

    from jaxsel import value
    from jaxsel._runs import processes
    from jaxsel.value import _executor
from jaxsel.value._evaluator import Evaluator
from jaxsel.value._run_options import DEFAULTS

    class Tree(DecisionTreeClassifier):  # known to this script alone
        pass

    def right(estimator, x, y):
        return float(np.mean(estimator.predict(x) == y))

    logging.basicConfig(level=logging.INFO)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 3)), np.arange(24) % 2
    tree = Tree(max_depth=2, random_state=0)
    results = []
    for patience in (np.inf, 0.0):
        _executor.PATIENCE = patience
        processes.free_cores = lambda: 2
        utility = value.ModelUtility(tree, x, y, x, y, metric=right)
        stop, key = value.MaxSamples(64), jax.random.key(0)
        results.append(value.banzhaf(utility, key=key, stop=stop).values)
    assert (results[0] == results[1]).all()
    print("same")
"""


@pytest.mark.slow
def test_a_script_without_a_guard_goes_on_in_processes(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, path]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout == "same\n", ran.stderr
    assert ran.stderr.count("going on in 2 processes") == 1
