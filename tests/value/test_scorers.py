"""scikit-learn's estimators and scorers in a utility, against scikit-learn alone."""

import pickle

import jax
import numpy as np
import pytest

import jaxsel
from jaxsel import value

from . import retrain_cases as cases

pytest.importorskip("sklearn")
from sklearn import base, dummy, linear_model, metrics, svm, tree
from sklearn.exceptions import UndefinedMetricWarning

pytestmark = pytest.mark.filterwarnings("ignore", category=UndefinedMetricWarning)

N = 12
TREE = tree.DecisionTreeClassifier(max_depth=2, random_state=0)
SVM = svm.LinearSVC(random_state=0)


def named(task, names):
    """A task whose labels have names."""
    names = np.asarray(names)
    return task.x, names[task.y], task.x_val, names[task.y_val]


def with_all_classes(task):
    given = np.concatenate([cases.every_size(N), cases.bags(N, 4)])
    counts = given @ np.eye(task.classes)[task.y]
    return given[(counts > 0).all(1)]


def by_sklearn(estimator, scorer, arrays, masks):
    x, y, x_val, y_val = arrays
    score = scorer if callable(scorer) else metrics.get_scorer(scorer)
    found = []
    for mask in masks:
        rows = np.repeat(np.arange(len(x)), mask.astype(int))
        model = base.clone(estimator).fit(x[rows], y[rows])
        found.append(score(model, x_val, y_val))
    return found


@pytest.mark.parametrize(
    ("estimator", "metric"),
    [
        (TREE, "f1"),
        (TREE, "average_precision"),
        (TREE, "neg_brier_score"),
        (TREE, "matthews_corrcoef"),
        (SVM, "average_precision"),
    ],
)
def test_named_scorers_of_two_classes(estimator, metric):
    task = cases.blobs(2, N)
    utility = value.ModelUtility(estimator, *task.arrays(), metric=metric)
    masks = with_all_classes(task)
    # A bag is repeated rows here, and sample weights there: equal trees.
    masks = (masks > 0).astype(np.float32)
    wanted = by_sklearn(estimator, metric, task.arrays(), masks)
    assert len(masks) > 10
    assert np.ptp(wanted) > 0.01
    np.testing.assert_allclose(utility(masks), wanted, rtol=1e-5)


@pytest.mark.parametrize("metric", ["f1_weighted", "roc_auc_ovr", "top_k_accuracy"])
def test_named_scorers_of_three_classes_with_names(metric):
    arrays = named(cases.blobs(3, N), ["c", "a", "b"])
    utility = value.ModelUtility(TREE, *arrays, metric=metric)
    masks = (with_all_classes(cases.blobs(3, N)) > 0).astype(np.float32)
    wanted = by_sklearn(TREE, metric, arrays, masks)
    np.testing.assert_allclose(utility(masks), wanted, rtol=1e-5)


def test_scorers_see_labels_as_given():
    task = cases.blobs(2, N)
    ones_and_twos = named(task, [1, 2])
    masks = np.ones((1, N))
    for metric, arrays in [
        # "f1" is that of the label 1, which is the first class here.
        ("f1", ones_and_twos),
        (
            metrics.make_scorer(metrics.recall_score, pos_label="ham"),
            named(task, ["spam", "ham"]),
        ),
    ]:
        utility = value.ModelUtility(TREE, *arrays, metric=metric)
        wanted = by_sklearn(TREE, metric, arrays, masks)
        np.testing.assert_allclose(utility(masks), wanted, rtol=1e-6)


def test_other_names_of_labels_are_another_utility():
    task = cases.blobs(2, N)
    about = [
        value.ModelUtility(TREE, *named(task, names), metric="f1_weighted").about
        for names in (["a", "b"], ["a", "b"], ["b", "c"])
    ]
    assert about[0] == about[1]
    assert about[0] != about[2]


def test_a_scorer_may_judge_a_part_of_the_samples():
    task = cases.blobs(2, N)
    positive = task.x_val[:, 0] > 0

    def of_some(estimator, x, y):
        part = x[:, 0] > 0
        return (estimator.predict(x[part]) == y[part]).mean()

    utility = value.ModelUtility(TREE, *task.arrays(), metric=of_some)
    found = utility(np.ones((1, N)))
    model = base.clone(TREE).fit(task.x, task.y)
    right = model.predict(task.x_val) == task.y_val
    np.testing.assert_allclose(found, [right[positive].mean()], rtol=1e-6)


def test_coalitions_that_lack_classes():
    task = cases.blobs(3, N)
    masks = cases.of_classes(task.y, [[1], [0, 2]])
    by_area = value.ModelUtility(TREE, *task.arrays(), metric="roc_auc_ovr")
    share = value.ModelUtility(TREE, *task.arrays(), metric="f1_micro")
    # One class for all samples: no order among them, and right for its share.
    np.testing.assert_allclose(by_area(masks)[0], 0.5)
    np.testing.assert_allclose(share(masks)[0], np.mean(task.y_val == 1), rtol=1e-6)
    rows = task.y != 1
    model = base.clone(TREE).fit(task.x[rows], task.y[rows])
    proba = np.insert(model.predict_proba(task.x_val), 1, 0, axis=1)
    wanted = metrics.roc_auc_score(task.y_val, proba, multi_class="ovr")
    np.testing.assert_allclose(by_area(masks)[1], wanted, rtol=1e-6)


class Numbered(tree.DecisionTreeClassifier):
    """Wants classes 0, 1, ..., as boosted trees do."""

    def fit(self, x, y):
        if len(np.unique(y)) <= y.max():
            raise ValueError("a class is missing")
        return super().fit(x, y)


def test_classes_that_are_numbered_anew():
    task = cases.blobs(3, N)
    arrays = named(task, ["a", "b", "c"])
    masks = cases.of_classes(task.y, [[0, 2], [1, 2]])
    learner = Numbered(max_depth=2, random_state=0)
    for metric in ("f1_weighted", "roc_auc_ovo"):
        numbered, usual = (
            value.ModelUtility(each, *arrays, metric=metric) for each in (learner, TREE)
        )
        np.testing.assert_allclose(numbered(masks), usual(masks), rtol=1e-6)


def test_decisions_are_between_two_classes():
    def decides(estimator, x, y):
        return float(hasattr(estimator, "decision_function"))

    for classes, wanted in ((2, 1.0), (3, 0.0)):
        arrays = cases.blobs(classes, N).arrays()
        utility = value.ModelUtility(SVM, *arrays, metric=decides, empty=0.5)
        assert utility(np.ones((1, N))) == wanted


def test_regressors():
    task, masks = cases.line(N), cases.every_size(N)[2:]
    for metric in ("neg_mean_absolute_error", "explained_variance"):
        ridge = linear_model.Ridge(0.5)
        utility = value.ModelUtility(ridge, *task.arrays(), metric=metric)
        wanted = by_sklearn(ridge, metric, task.arrays(), masks)
        np.testing.assert_allclose(utility(masks), wanted, rtol=1e-3)
    mean = np.abs(task.y_val - task.y.mean()).mean()
    utility = value.ModelUtility(
        linear_model.Ridge(), *task.arrays(), metric="neg_mean_absolute_error"
    )
    np.testing.assert_allclose(utility.empty, -mean, rtol=1e-5)


def test_no_points_are_worth_what_labels_alone_tell():
    task = cases.blobs(2, N)
    y = np.where(np.arange(N) < 8, 1, task.y)
    for metric in ("f1", "average_precision", "accuracy"):
        arrays = task.x, y, task.x_val, task.y_val
        utility = value.ModelUtility(TREE, *arrays, metric=metric)
        model = dummy.DummyClassifier(strategy="prior").fit(task.x, y)
        wanted = metrics.get_scorer(metric)(model, task.x_val, task.y_val)
        if metric == "accuracy":  # of jaxsel: as ever
            wanted = 0.5
        np.testing.assert_allclose(utility(np.zeros((1, N))), [wanted], rtol=1e-6)


@pytest.mark.left_out
def test_an_estimator_as_it_is_equals_a_wrapped_one():
    task, key = cases.blobs(2, N), cases.KEY
    bare, wrapped = (
        value.ModelUtility(learner, *task.arrays())
        for learner in (TREE, value.SklearnLearner(TREE))
    )
    assert bare.about == wrapped.about
    for values in (
        jaxsel.loo,
        lambda u: jaxsel.banzhaf(u, key=key, stop=value.MaxSamples(16)),
        lambda u: jaxsel.tmc_shapley(u, key=key, stop=value.MaxSamples(4)),
    ):
        np.testing.assert_array_equal(values(bare).values, values(wrapped).values)
    stop = value.MaxSamples(16)
    first, second = (
        jaxsel.data_oob(learner, task.x, task.y, key=key, stop=stop).values
        for learner in (TREE, value.SklearnLearner(TREE))
    )
    np.testing.assert_array_equal(first, second)


def test_leave_one_out_by_a_scorer_equals_a_loop():
    task = cases.blobs(2, N)
    utility = value.ModelUtility(TREE, *task.arrays(), metric="average_precision")
    masks = np.concatenate([np.ones((1, N)), 1 - np.eye(N)])
    wanted = by_sklearn(TREE, "average_precision", task.arrays(), masks)
    found = jaxsel.loo(utility).values
    np.testing.assert_allclose(found, wanted[0] - np.array(wanted[1:]), atol=1e-6)


def test_a_scorer_that_fails_is_told():
    task = cases.blobs(2, N)

    def picky(estimator, x, y):
        if estimator.predict(x).sum() == 0:
            raise ArithmeticError("no prediction of class 1")
        return 1.0

    utility = value.ModelUtility(
        TREE, *task.arrays(), metric=picky, empty=0.0, default_score=-1.0
    )
    masks = cases.of_classes(task.y, [[0], [1], [0, 1]])
    with pytest.warns(UserWarning, match="failed on 1 of 3 .* no prediction of class"):
        found = utility(masks)
    np.testing.assert_array_equal(found, [-1, 1, 1])
    strict = value.SklearnLearner(TREE, catch_errors=False)
    utility = value.ModelUtility(strict, *task.arrays(), metric=picky, empty=0.0)
    with pytest.raises(ArithmeticError):
        utility(masks)


def test_a_utility_with_a_scorer_is_pickled():
    task, masks = cases.blobs(2, N), cases.every_size(N)
    utility = value.ModelUtility(TREE, *task.arrays(), metric="f1")
    again = pickle.loads(pickle.dumps(utility))
    np.testing.assert_array_equal(again(masks), utility(masks))


@pytest.mark.parametrize(
    ("learner", "metric", "error", "message"),
    [
        (TREE, "f2", ValueError, r"'accuracy', .*get_scorer_names\(\), .* got 'f2'"),
        (value.KNN(), "f1", ValueError, "'f1': scorers .* judge its estimators only"),
        (TREE, metrics.f1_score, TypeError, "must be a scorer, .* got f1_score: give"),
        (TREE, lambda model, x, y: np.nan, ValueError, "empty must be a finite"),
        (linear_model.Ridge(), "accuracy", ValueError, "for targets use metric='r2'"),
        (TREE, 3, ValueError, "metric must be one of .* got 3"),
    ],
)
def test_what_is_refused(learner, metric, error, message):
    arrays = named(cases.blobs(2, N), ["ham", "spam"])
    if "Ridge" in repr(learner):
        arrays = cases.blobs(2, N).arrays()
    with pytest.raises(error, match=message):
        value.ModelUtility(learner, *arrays, metric=metric)


def test_labels_that_a_scorer_does_not_take_are_told_at_once():
    arrays = named(cases.blobs(2, N), ["ham", "spam"])
    with pytest.raises(ValueError, match="empty must be given.*pos_label=1 is not"):
        value.ModelUtility(TREE, *arrays, metric="f1")


def test_functions_of_scores_are_taken_as_before():
    task = cases.blobs(2, N)

    @jax.jit
    def hits(scores, y):
        return (scores.argmax(-1) == y).mean(-1)

    by_hits = value.ModelUtility(TREE, *task.arrays(), metric=hits, empty=0.5)
    plain = value.ModelUtility(TREE, *task.arrays())
    masks = cases.every_size(N)
    np.testing.assert_allclose(by_hits(masks), plain(masks), rtol=1e-6)
