"""Flax models and scikit-learn's estimators as learners."""

import dataclasses

import jax
import joblib
import numpy as np
import optax
import pytest
from flax import linen, nnx

from jaxsel import models, value

from . import retrain_cases as cases

pytest.importorskip("sklearn")
from sklearn import (
    datasets,
    ensemble,
    linear_model,
    neighbors,
    pipeline,
    preprocessing,
    svm,
    tree,
)

pytestmark = pytest.mark.slow

N = 12


def mlp(*sizes, **options):
    options = {"steps": 20, "batch_size": 8, **options}
    make = lambda rngs: models.MLP(*sizes, rngs=rngs)
    return value.FlaxLearner(make, optax.adam(3e-2), **options)


SMALL = mlp(3, 8, 3)


def weights():
    return np.concatenate([cases.every_size(N)[2:], cases.bags(N, 4)])


# Flax.


def test_flax_coalitions_alone_and_in_a_batch():
    task, given = cases.blobs(3, N), weights()
    given[:2] = np.stack([np.zeros(N), task.y == 1])
    utility = value.ModelUtility(SMALL, *task.arrays(), metric="likelihood")
    together = np.asarray(utility(given, cases.KEY))
    share = np.mean(task.y_val == 1)
    np.testing.assert_allclose(together[:2], [1 / 3, share], rtol=1e-6)
    backwards = np.asarray(utility(given[::-1].copy(), cases.KEY))[::-1]
    np.testing.assert_allclose(backwards, together, rtol=0, atol=1e-5)
    for row in (0, 1, 5, 12):
        alone = utility(given[[row]], cases.KEY)
        np.testing.assert_allclose(alone, together[[row]], rtol=0, atol=1e-5)


def test_flax_key_sets_the_result():
    task = cases.blobs(3, N)
    found = cases.probabilities(SMALL, task, weights())
    again = cases.probabilities(SMALL, task, weights())
    np.testing.assert_array_equal(again, found)
    other = cases.probabilities(SMALL, task, weights(), key=jax.random.key(1))
    assert np.abs(other - found).max() > 0.01


def test_flax_points_outside_a_coalition_have_no_influence():
    task, given = cases.blobs(3, N), weights()
    found = cases.probabilities(SMALL, task, given)
    for row in (0, 4, 8, 11):
        out = given[row] == 0
        x, y = task.x.copy(), task.y.copy()
        x[out] = 1e6
        y[out] = y[~out][0]
        other = cases.Task(x, y, task.x_val, task.y_val, 3)
        again = cases.probabilities(SMALL, other, given)
        np.testing.assert_array_equal(again[row], found[row])


def test_flax_counts_are_relative():
    task, given = cases.blobs(3, N), weights()
    found = cases.probabilities(SMALL, task, given)
    np.testing.assert_array_equal(cases.probabilities(SMALL, task, given * 4), found)


def test_flax_classes_that_a_coalition_lacks():
    task, given = cases.blobs(3, N), weights()
    given[:4] = cases.of_classes(task.y, [[0], [2], [0, 2], [1, 2]])
    found = cases.probabilities(SMALL, task, given)
    present = given @ np.eye(3)[task.y] > 0
    np.testing.assert_array_equal((found > 0).any(1), present)
    np.testing.assert_array_equal(found[1, :, 2], 1)


def test_flax_learns_digits_as_well_as_logistic_regression():
    x, y = datasets.load_digits(return_X_y=True)
    x, order = x.astype(np.float32) / 16, np.random.default_rng(0).permutation(len(x))
    fit, held = order[:300], order[300:1000]
    learner = mlp(64, 32, 10, steps=150, batch_size=32)
    utility = value.ModelUtility(learner, x[fit], y[fit], x[held], y[held])
    masks = np.arange(300) < np.array([[300], [100]])
    found = np.asarray(utility(masks, cases.KEY))
    for size, ours in zip((300, 100), found, strict=True):
        rows, model = fit[:size], linear_model.LogisticRegression(max_iter=1000)
        theirs = cases.fit(model, x[rows], y[rows]).score(x[held], y[held])
        # Two binomial standard errors of the difference are 0.03.
        assert ours > theirs - 0.04


def test_flax_targets_and_linen_modules():
    task = cases.line(40)
    learner = value.FlaxLearner(linen.Dense(1), optax.adam(3e-2), steps=300)
    utility = value.ModelUtility(learner, *task.arrays(), metric="r2")
    found = float(utility(np.ones((1, 40)), cases.KEY)[0])
    theirs = linear_model.LinearRegression().fit(task.x, task.y)
    assert found > theirs.score(task.x_val, task.y_val) - 0.05


def test_flax_loss_of_ones_own():
    task, given = cases.blobs(3, N), weights()
    zero = lambda outputs, y: outputs[:, 0] * 0
    learner = dataclasses.replace(SMALL, loss=zero)
    # Nothing is learnt: all coalitions keep the same initial parameters.
    found, _ = cases.scores(learner, task, given)
    full = found[np.isfinite(found).all((1, 2))]
    assert len(full) > 2
    assert np.ptp(full, axis=0).max() == 0


def test_flax_bad_input():
    task = cases.blobs(3, N)
    with pytest.raises(ValueError, match=r"model must map .*\(1, 3\), got \(1, 2\)"):
        value.ModelUtility(mlp(3, 8, 2), *task.arrays())
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        mlp(3, 3, steps=0)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        mlp(3, 3, batch_size=0)
    with pytest.raises(TypeError, match="model must be"):
        value.FlaxLearner(3, optax.adam(1e-2))
    # A module, not a function that makes one.
    module = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match="model must be"):
        value.ModelUtility(value.FlaxLearner(module, optax.adam(1e-2)), *task.arrays())


# scikit-learn.


TREE = tree.DecisionTreeClassifier(max_depth=3, random_state=0)
NEAREST = neighbors.KNeighborsClassifier(1)
PIPELINE = pipeline.make_pipeline(
    preprocessing.StandardScaler(), linear_model.LogisticRegression()
)
SVM = svm.LinearSVC(random_state=0)
each_estimator = pytest.mark.parametrize(
    "estimator", [TREE, NEAREST, PIPELINE, SVM], ids=lambda e: type(e).__name__
)


@each_estimator
def test_sklearn_equals_a_loop(estimator):
    task, given = cases.blobs(3, N), weights()
    given[:3] = cases.of_classes(task.y, [[1], [2], [0, 2]])
    utility = value.ModelUtility(value.SklearnLearner(estimator), *task.arrays())
    wanted = cases.expected_predictions(lambda n: estimator, task, given)
    accuracy = np.mean(wanted == task.y_val, axis=1)
    found = utility(given, cases.KEY)
    np.testing.assert_allclose(found, accuracy, rtol=1e-6)
    np.testing.assert_array_equal(utility(given[::-1], cases.KEY), found[::-1])
    np.testing.assert_allclose(utility(np.zeros((1, N)), cases.KEY), [1 / 3], rtol=1e-6)


def test_sklearn_begins_with_the_coefficients_of_the_last_subset():
    task, prefixes = cases.blobs(3, 40), np.tri(41, 40, -1)[10:]
    data = value.Examples(x=task.x, y=task.y, n_classes=3)

    def fit(**options):
        estimator = linear_model.LogisticRegression(C=10.0, tol=1e-6, **options)
        learner = value.SklearnLearner(estimator)
        models = learner.fit(data, prefixes)
        steps = sum(model.estimator.n_iter_[0] for model in models.models)
        assert not hasattr(estimator, "coef_")
        return learner.predict(models, task.x_val), steps

    (warm, few), (cold, many) = fit(warm_start=True), fit()
    np.testing.assert_allclose(warm, cold, atol=0.02)
    assert few < 0.8 * many


def test_a_forest_of_sklearn_begins_with_no_trees():
    task, given = cases.blobs(3, N), weights()
    found = []
    for warm in (False, True):
        forest = ensemble.RandomForestClassifier(3, random_state=0, warm_start=warm)
        learner = value.SklearnLearner(forest)
        found.append(value.ModelUtility(learner, *task.arrays())(given, cases.KEY))
    np.testing.assert_array_equal(*found)


def test_sklearn_in_parallel():
    task, given = cases.blobs(3, N), weights()
    one, two = (
        value.ModelUtility(value.SklearnLearner(TREE, n_jobs=jobs), *task.arrays())
        for jobs in (1, 2)
    )
    with joblib.parallel_config(backend="threading"):
        found = two(given, cases.KEY)
    np.testing.assert_array_equal(found, one(given, cases.KEY))


def test_sklearn_in_processes():
    task, given = cases.blobs(3, N), weights()
    one, two = (
        value.ModelUtility(value.SklearnLearner(TREE, n_jobs=jobs), *task.arrays())
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(two(given, cases.KEY), one(given, cases.KEY))


def test_sklearn_probabilities():
    task, given = cases.blobs(3, N), weights()
    learner = value.SklearnLearner(TREE)
    utility = value.ModelUtility(learner, *task.arrays(), metric="likelihood")
    p = cases.expected_probabilities(lambda n: TREE, task, given)
    wanted = p[:, np.arange(len(task.y_val)), task.y_val].mean(1)
    np.testing.assert_allclose(utility(given, cases.KEY), wanted, rtol=1e-5)


def test_sklearn_fractional_weights():
    task, given = cases.blobs(3, N), (cases.bags(N, 3) + 0.25) / 2
    utility = value.ModelUtility(value.SklearnLearner(TREE), *task.arrays())
    for some, found in zip(given, utility(given, cases.KEY), strict=True):
        # Trained on float32, as the learner is, lest splits differ.
        model = TREE.fit(task.x, task.y, sample_weight=some)
        np.testing.assert_allclose(
            found, model.score(task.x_val, task.y_val), rtol=1e-6
        )
    utility = value.ModelUtility(value.SklearnLearner(NEAREST), *task.arrays())
    with pytest.raises(
        ValueError, match="weights must be whole .*KNeighborsClassifier"
    ):
        utility(given, cases.KEY)


def test_sklearn_targets():
    task, given = cases.line(N), weights()
    ridge = value.SklearnLearner(linear_model.Ridge(0.7))
    ours = value.RidgeRegression(l2=0.7)
    theirs, found = (
        value.ModelUtility(learner, *task.arrays(), metric="r2")(given, cases.KEY)
        for learner in (ridge, ours)
    )
    np.testing.assert_allclose(found, theirs, rtol=1e-3, atol=1e-4)


def test_sklearn_leaves_the_estimator_as_it_was():
    estimator = tree.DecisionTreeClassifier(random_state=0)
    task = cases.blobs(3, N)
    value.ModelUtility(value.SklearnLearner(estimator), *task.arrays())(
        np.ones((1, N)), cases.KEY
    )
    assert not hasattr(estimator, "tree_")


@pytest.mark.parametrize(
    ("estimator", "metric", "message"),
    [
        (SVM, "likelihood", "'likelihood' needs probabilities, which .*(SVC|Sklearn)"),
        (SVM, "roc_auc", "'roc_auc' needs probabilities"),
        (TREE, "r2", "r2"),
        (linear_model.Ridge(), "accuracy", "Ridge"),
    ],
)
def test_sklearn_bad_metrics(estimator, metric, message):
    task = cases.blobs(3, N)
    with pytest.raises(ValueError, match=message):
        value.ModelUtility(
            value.SklearnLearner(estimator), *task.arrays(), metric=metric
        )


class Picky(neighbors.KNeighborsClassifier):
    """Wants what torch wants: classes of int64, and features that may be written to."""

    def fit(self, x, y):
        assert (y.dtype, x.dtype) == (np.int64, np.float32)
        assert x.flags.writeable
        return super().fit(x, y)

    def predict_proba(self, x):
        assert x.flags.writeable
        return super().predict_proba(x)


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc_ovr"])
def test_sklearn_estimators_get_what_torch_wants(metric):
    task = cases.blobs(3, N)
    learner = value.SklearnLearner(Picky(1), catch_errors=False)
    utility = value.ModelUtility(learner, *task.arrays(), metric=metric)
    assert utility(np.ones((1, N)))[0] > 0.5


def test_sklearn_bad_estimators():
    with pytest.raises(TypeError, match="estimator must .* got 3"):
        value.SklearnLearner(3)
