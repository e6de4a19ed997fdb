"""Estimators that refuse some coalitions: what these are worth, and what is told."""

import jax
import numpy as np
import pytest

from jaxsel import value

from . import retrain_cases as cases

pytest.importorskip("sklearn")
from sklearn import calibration, ensemble, linear_model, neighbors, svm, tree
from sklearn.base import clone

KEY, N = jax.random.key(0), 12


class FromZero(ensemble.GradientBoostingClassifier):
    """Boosted trees that want classes 0, 1, ... as XGBoost's do."""

    def fit(self, X, y, sample_weight=None):
        if (np.unique(y) != np.arange(len(np.unique(y)))).any():
            raise ValueError(f"Invalid classes: {np.unique(y)}")
        return super().fit(X, y, sample_weight)


TREE = tree.DecisionTreeClassifier(max_depth=3, random_state=0)
NEAREST = neighbors.KNeighborsClassifier()
CALIBRATED = calibration.CalibratedClassifierCV(svm.LinearSVC(random_state=0), cv=2)
ESTIMATORS = {
    "nearest": NEAREST,
    "calibrated": CALIBRATED,
    "boosted": ensemble.GradientBoostingClassifier(n_estimators=3, random_state=0),
    "histograms": ensemble.HistGradientBoostingClassifier(
        max_iter=3, min_samples_leaf=1, random_state=0
    ),
    "from_zero": FromZero(n_estimators=3, random_state=0),
}


def make(estimator, task, *, catch=True, **options):
    learner = value.SklearnLearner(estimator, catch_errors=catch)
    return value.ModelUtility(learner, *task.arrays(), **options)


def loop(estimator, task, masks, metric, default):
    """Each coalition by itself, and on how many of them the estimator fails."""
    found, failed = [], 0
    share = np.bincount(task.y_val, minlength=task.classes) / len(task.y_val)
    for mask in masks:
        rows = np.flatnonzero(mask)
        classes, y = np.unique(task.y[rows], return_inverse=True)
        if len(classes) < 2:
            found.append(share[classes[0]] if len(classes) else 1 / task.classes)
            continue
        try:
            # On float32, as the learner is, lest splits differ.
            model = clone(estimator).fit(task.x[rows], y)
            p = np.zeros((len(task.y_val), task.classes))
            p[:, classes] = model.predict_proba(task.x_val)
        except ValueError:
            failed += 1
            found.append(default)
            continue
        right = p[np.arange(len(p)), task.y_val]
        hit = p.argmax(1) == task.y_val
        found.append((right if metric == "likelihood" else hit).mean())
    return np.array(found), failed


@pytest.mark.filterwarnings("ignore:the learner failed")
@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("nearest", "accuracy"),
        pytest.param("calibrated", "accuracy", marks=pytest.mark.slow),
        # Of few points boosted trees give classes all but equal probabilities.
        *(pytest.param(n, "likelihood", marks=pytest.mark.slow) for n in ESTIMATORS),
    ],
)
def test_equals_a_loop_that_catches(name, metric):
    task = cases.blobs(3, N)
    masks = np.concatenate(
        [np.zeros((1, N)), cases.every_size(N), cases.of_classes(task.y, [[0, 2], [2]])]
    )
    utility = make(ESTIMATORS[name], task, metric=metric, default_score=0.125)
    expected, failed = loop(ESTIMATORS[name], task, masks, metric, 0.125)
    assert (failed > 0) == (name in ("nearest", "calibrated"))
    np.testing.assert_allclose(utility(masks), expected, rtol=1e-5)
    assert (utility.failures.failed, utility.failures.coalitions) == (
        failed,
        len(masks),
    )
    if not failed:
        return
    assert utility.failures.first.startswith("ValueError: ")
    # What fails is worth what no points are, if nothing else is said.
    found = np.asarray(make(ESTIMATORS[name], task, metric=metric)(masks))
    wanted, _ = loop(ESTIMATORS[name], task, masks, metric, 1 / 3)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.left_out
def test_runs_tell_how_many_failed():
    task = cases.blobs(2, N)
    utility = make(NEAREST, task)
    options = {"key": KEY, "stop": value.MaxSamples(3), "batch_size": 8}
    with pytest.warns(UserWarning, match="the learner failed") as told:
        found = value.tmc_shapley(utility, tolerance=0, **options)
    messages = [str(each.message) for each in told]
    assert len(messages) == 2
    # Of one point there is one class; of two to four some have two.
    failed = utility.failures.failed
    assert 3 < failed < 12
    assert (
        "which count as 0.5; the first error was: ValueError: Expected" in messages[0]
    )
    assert f"failed on {failed} of " in messages[1]
    sum_of = np.asarray(found.values, np.float64).sum()
    ends = utility(np.array([[0] * N, [1] * N]))
    np.testing.assert_allclose(sum_of, ends[1] - ends[0], atol=1e-5)


@pytest.mark.parametrize("catch", [True, False])
def test_errors_end_the_run_on_demand(catch):
    task = cases.blobs(2, N)
    utility, masks = make(NEAREST, task, catch=catch), np.zeros((1, N))
    masks[0, [np.argmin(task.y), np.argmax(task.y)]] = 1
    if catch:
        with pytest.warns(UserWarning, match="failed on 1 of 1 coalitions so far"):
            assert utility(masks)[0] == 0.5
    else:
        with pytest.raises(ValueError, match="Expected n_neighbors"):
            utility(masks)


@pytest.mark.filterwarnings("ignore:the learner failed")
def test_failing_on_all_points_is_an_error():
    task = cases.blobs(2, N)
    utility = make(neighbors.KNeighborsClassifier(N + 1), task)
    with pytest.raises(ValueError, match="learn from all 12 points.*n_neighbors = 13"):
        utility(np.ones((1, N)))
    learner = value.SklearnLearner(neighbors.KNeighborsClassifier(N + 1))
    with pytest.raises(ValueError, match="bags of 12 points, but failed on all of 16"):
        value.data_oob(
            learner, task.x, task.y, key=KEY, stop=value.MaxSamples(16), batch_size=16
        )


@pytest.mark.left_out
def test_bags_on_which_it_fails_are_left_out():
    task, count = cases.blobs(2, N), 24
    learner = value.SklearnLearner(CALIBRATED)
    # Of four points of each class half the bags have too few distinct ones for folds.
    x, y = np.concatenate([task.x[:8]]), np.array([0, 1, 1, 1, 1, 1, 1, 1])
    with pytest.warns(UserWarning, match="bags so far, which are left out.*ValueError"):
        found = value.data_oob(learner, x, y, key=KEY, stop=value.MaxSamples(count))
    sampling, _ = jax.random.split(KEY)
    told = [[] for _ in x]
    bags = value._sampling.bootstrap_counts(sampling, 0, count=count, n=8)
    for bag in np.asarray(bags):
        rows, out = np.repeat(np.arange(8), bag.astype(int)), np.flatnonzero(bag == 0)
        if len(np.unique(y[rows])) == 1:
            predicted = np.full(8, y[rows][0])
        else:
            weights = {"sample_weight": bag[bag > 0]}
            try:
                model = cases.fit(CALIBRATED, x[bag > 0], y[bag > 0], **weights)
            except ValueError:
                continue
            predicted = model.predict(x.astype(np.float64))
        for i in out:
            told[i].append(predicted[i] == y[i])
    np.testing.assert_array_equal(found.count, [len(some) for some in told])
    np.testing.assert_allclose(
        found.values, [np.mean(some) for some in told], rtol=1e-5
    )


def test_predictions_that_are_not_numbers_are_failures():
    class Lost(linear_model.LogisticRegression):
        def predict_proba(self, X):
            return np.full((len(X), 2), np.nan)

    utility = make(Lost(), cases.blobs(2, N))
    masks = np.ones((1, N))
    masks[0, 0] = 0
    with pytest.warns(UserWarning, match="predictions are NaN"):
        np.testing.assert_allclose(utility(masks), 0.5)


# Metrics of one's own.


def f1_of_class_one(scores, y):
    given = scores.argmax(-1) == 1
    both = (given & (y == 1)).sum(-1)
    return 2 * both / (given.sum(-1) + (y == 1).sum())


@pytest.mark.parametrize(
    ("learner", "estimator"),
    [
        (value.NearestCentroid(), neighbors.NearestCentroid()),
        (value.SklearnLearner(TREE), TREE),
    ],
    ids=["jax", "host"],
)
@pytest.mark.every(2)
def test_metrics_of_ones_own(learner, estimator):
    from sklearn.metrics import f1_score

    task, masks = cases.blobs(3, N), cases.every_size(N)[3:]
    utility = value.ModelUtility(
        learner, *task.arrays(), metric=f1_of_class_one, empty=0.0
    )
    predicted = cases.expected_predictions(lambda n: estimator, task, masks)
    wanted = [f1_score(task.y_val == 1, each == 1) for each in predicted]
    np.testing.assert_allclose(utility(masks), wanted, rtol=1e-5)
    assert "f1_of_class_one" in repr(utility)


def test_metrics_of_ones_own_for_targets():
    task, masks = cases.line(N), np.ones((1, N))
    utility = value.ModelUtility(
        value.RidgeRegression(),
        *task.arrays(),
        metric=lambda scores, y: -abs(scores[..., 0] - y).mean(-1),
        empty=-10.0,
    )
    model = linear_model.Ridge(alpha=1.0).fit(task.x, task.y)
    wanted = -np.abs(model.predict(task.x_val) - task.y_val).mean()
    np.testing.assert_allclose(utility(masks), [wanted], rtol=1e-3)


def test_what_is_refused():
    task = cases.blobs(2, N)
    with pytest.raises(ValueError, match="empty must be given with a metric of your"):
        value.ModelUtility(value.KNN(), *task.arrays(), metric=f1_of_class_one)
    with pytest.raises(ValueError, match="default_score must be a finite number"):
        make(NEAREST, task, default_score=np.nan)
    for call in (
        lambda: value.ModelUtility("knn", *task.arrays()),
        lambda: value.data_oob("knn", task.x, task.y, key=KEY),
    ):
        with pytest.raises(TypeError, match="learner must be .* got 'knn'"):
            call()
    with pytest.raises(TypeError, match=r"got the class KNN: write KNN\(\)"):
        value.ModelUtility(value.KNN, *task.arrays())
