"""Values that retrain models are the same where JAX has float64 enabled."""

import os
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest
from flax import linen
from waits import PATIENCE

from jaxsel import value
from jaxsel.value import MaxSamples, data_oob
from jaxsel.value._retrained import ESTIMATORS

from . import retrain_cases as cases
from .games import Compiled

KEY, N = jax.random.key(3), 24
FLAX = value.FlaxLearner(linen.Dense(3), optax.adam(3e-2), steps=3, batch_size=8)
# By name: the learner, how many classes, how many features, and the metric.
LEARNERS = {
    "newton": (value.LogisticRegression(), 2, 3, "likelihood"),
    "softmax": (value.LogisticRegression(), 3, 3, "likelihood"),
    "wide": (value.LogisticRegression(), 2, 20, "likelihood"),
    "ridge": (value.RidgeRegression(), 3, 3, "balanced_accuracy"),
    "bayes": (value.GaussianNB(), 3, 3, "neg_log_loss"),
    "knn": (value.KNN(3), 3, 3, "roc_auc"),
    "cosine": (value.KNN(3, metric="cosine"), 3, 3, "likelihood"),
    "centroid": (value.NearestCentroid(), 3, 3, "f1_macro"),
    "flax": (FLAX, 3, 3, "likelihood"),
}


def both(call, atol=2e-5):
    """The results are alike, and their arrays of the same types."""
    narrow = call()
    with jax.enable_x64(True):
        wide = call()
    pairs = zip(jax.tree.leaves(narrow), jax.tree.leaves(wide), strict=True)
    for one, two in pairs:
        assert one.dtype == two.dtype
        np.testing.assert_allclose(one, two, rtol=0, atol=atol)


@pytest.mark.left_out
def test_samples_are_the_same():
    chance = np.linspace(0.2, 1, 5, dtype=np.float32)
    both(
        lambda: (
            value._sampling.permutation_ranks(KEY, 2, count=4, n=N),
            value._sampling.random_coalitions(KEY, 2, 3, count=4, n=N),
            value._sampling.sized_coalitions(KEY, 2, 3, chance, count=4, n=N),
            value._sampling.bootstrap_counts(KEY, 2, count=4, n=N),
        ),
        atol=0,
    )


def make(name):
    learner, classes, d, metric = LEARNERS[name]
    task = cases.blobs(classes, N, d=d)
    return value.ModelUtility(learner, *task.arrays(), metric=metric)


@pytest.mark.slow
def test_many_classes():
    both(lambda: make("softmax")(cases.every_size(N)), atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_learners_and_metrics(name):
    def call():
        utility, masks = make(name), cases.every_size(N)
        found, params = utility.evaluate(masks, KEY)
        warm = utility.learner.warm
        return found, utility.evaluate(masks, KEY, params)[0] if warm else found

    both(call, atol=2e-4)


@pytest.mark.slow
def test_targets():
    task, masks = cases.line(N), cases.every_size(N)[4:]
    learner = value.RidgeRegression()
    both(lambda: value.ModelUtility(learner, *task.arrays(), metric="r2")(masks))


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name):
    task = cases.blobs(2, N)
    names = "x", "y", "x_val", "y_val"
    given = dict(zip(names, task.arrays(), strict=True))
    given |= {"key": KEY, "stop": MaxSamples(9), "learner": value.LogisticRegression()}
    given |= {"trainings": 20, "method": "plain"}
    both(lambda: ESTIMATORS[name].bound(utility=Compiled(5), **given)())


@pytest.mark.slow
@pytest.mark.parametrize(
    "learner", [value.NearestCentroid(), value.RidgeRegression()], ids=repr
)
def test_bags(learner):
    task = cases.blobs(3, N) if learner == value.NearestCentroid() else cases.line(N)
    both(lambda: data_oob(learner, task.x, task.y, key=KEY, stop=MaxSamples(9)))


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_gradient_steps_and_influence(classes):
    task, options = cases.blobs(classes, N), {"key": KEY, "stop": MaxSamples(4)}
    logistic = value.LogisticRegression()
    both(lambda: value.g_shapley(logistic, *task.arrays(), **options))
    both(lambda: value.influence(*task.arrays()))


_GLOBAL = """
import jax, numpy as np
from jaxsel import value
assert jax.numpy.zeros(1).dtype == np.float64
x = np.random.default_rng(0).normal(size=(20, 4))
y = np.arange(20) % 3
learner = value.LogisticRegression()
utility = value.ModelUtility(learner, x[:12], y[:12], x[12:], y[12:])
options = {"key": jax.random.key(0), "stop": value.MaxSamples(4)}
for found in (value.tmc_shapley(utility, **options),
              value.data_oob(learner, x, y, **options)):
    assert found.values.dtype == np.float32, found.values.dtype
print("fine")
"""


@pytest.mark.slow
def test_enabled_for_a_whole_process():
    done = subprocess.run(
        [sys.executable, "-c", _GLOBAL],
        env=os.environ | {"JAX_ENABLE_X64": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout == "fine\n", done.stderr
