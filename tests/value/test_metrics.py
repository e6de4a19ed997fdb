"""Metrics against scikit-learn's."""

import dataclasses
import warnings
from typing import ClassVar

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import special

from jaxsel import value
from jaxsel.value._metrics import SCORERS

from . import retrain_cases as cases

sklearn_metrics = pytest.importorskip("sklearn.metrics")

B, M = 2, 20
LABELS = ("accuracy", "balanced_accuracy", "f1_macro")
CLASSES = (*LABELS, "likelihood", "neg_log_loss", "roc_auc")


def expected(metric, p, y):
    """Return scikit-learn's metric of probabilities `[m, C]`; all classes are known."""
    guess, every = p.argmax(-1), range(p.shape[1])
    with warnings.catch_warnings():
        # Classes that are predicted but do not occur.
        warnings.filterwarnings("ignore", message="y_pred contains classes not in")
        warnings.filterwarnings("ignore", message="A single label was found")
        if metric == "accuracy":
            return sklearn_metrics.accuracy_score(y, guess)
        if metric == "balanced_accuracy":
            return sklearn_metrics.balanced_accuracy_score(y, guess)
        if metric == "f1_macro":
            return sklearn_metrics.f1_score(y, guess, average="macro", zero_division=0)
        if metric == "neg_log_loss":
            return -sklearn_metrics.log_loss(y, p, labels=list(every))
        if metric == "likelihood":
            return p[np.arange(len(y)), y].mean()
        if p.shape[1] == 2:
            return sklearn_metrics.roc_auc_score(y, p[:, 1])
        # It refuses classes that do not occur: the mean over those that do.
        areas = [sklearn_metrics.roc_auc_score(y == c, p[:, c]) for c in np.unique(y)]
        return np.mean(areas)


def agree(metric, scores, y):
    # Rounded, so that what is equal is.
    p = special.softmax(scores.astype(np.float64), axis=-1).round(10)
    found = _JITTED[metric](scores.astype(np.float32), y.astype(np.int32))
    assert found.shape == (len(scores),)
    wanted = [expected(metric, each, y) for each in p]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


_JITTED = {name: jax.jit(function) for name, function in SCORERS.items()}
each_metric = pytest.mark.parametrize("metric", CLASSES)


def draw(classes, seed, absent=False):
    """Scores on a grid, so that they tie within rows and between them, and labels."""
    rng = np.random.default_rng([classes, seed])
    scores = rng.integers(-2, 3, (B, M, classes)) / 2
    if classes > 2:
        # Rows with the same scores in another order: their probabilities tie exactly.
        scores = np.sort(scores, axis=-1)[:, rng.integers(0, 4, M)]
        scores = rng.permuted(scores, axis=-1)
    y = np.append(np.arange(classes), rng.integers(0, classes, M - classes))
    return scores, np.where(y == classes - 1, 0, y) if absent else y


@each_metric
@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.every(6)
def test_random_scores(metric, classes):
    for seed in range(5):
        agree(metric, *draw(classes, seed))


@each_metric
def test_classes_that_do_not_occur(metric):
    for seed in range(5):
        agree(metric, *draw(4, seed, absent=True))


@each_metric
def test_classes_that_a_coalition_lacks(metric):
    for seed in range(5):
        scores, y = draw(3, seed)
        scores[0, :, 1] = -np.inf
        agree(metric, scores, y)


@pytest.mark.parametrize("metric", [*LABELS, "roc_auc"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    hnp.arrays(np.float32, (1, 12), elements=st.sampled_from([-3, -0.5, 0, 0.5, 3])),
    hnp.arrays(np.int32, 10, elements=st.integers(0, 1)),
)
@pytest.mark.every(4)
def test_two_classes(metric, margin, rest):
    y = np.append([0, 1], rest)
    agree(metric, np.stack([np.zeros_like(margin), margin], axis=-1), y)


def test_area_of_votes_counts_ties_by_half():
    # Shares such as 2/7 tie, however the other five votes are spread.
    from sklearn.neighbors import KNeighborsClassifier

    task = cases.blobs(4, 60, m=200, distance=0.7)
    utility = value.ModelUtility(value.KNN(k=7), *task.arrays(), metric="roc_auc")
    votes = KNeighborsClassifier(7).fit(task.x, task.y).predict_proba(task.x_val)
    theirs = sklearn_metrics.roc_auc_score(task.y_val, votes, multi_class="ovr")
    found = utility(np.ones((1, 60)), cases.KEY)
    np.testing.assert_allclose(found, [theirs], rtol=0, atol=2e-6)


def test_r2():
    rng = np.random.default_rng(0)
    y = rng.normal(size=M).astype(np.float32) + 3
    scores = (y + rng.normal(size=(4, M)) * [[0], [0.1], [1], [10]]).astype(np.float32)
    wanted = [sklearn_metrics.r2_score(y, each) for each in scores]
    found = _JITTED["r2"](scores[..., None], y)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


@dataclasses.dataclass(frozen=True)
class Echo:
    """A learner of one's own: features are the scores, whatever it is trained on."""

    probabilistic: ClassVar[bool] = True
    regression: ClassVar[bool] = True
    warm: ClassVar[bool] = False
    host: ClassVar[bool] = False

    def prepare(self, data):
        return data

    def fit(self, data, weights, key, start=None):
        return jnp.asarray(weights)

    def predict(self, params, x):
        return jnp.broadcast_to(x, (len(params), *x.shape))


@each_metric
def test_utility_measures_validation_data(metric):
    scores, y = draw(3, 0)
    names = np.array(["a", "b", "c"])
    utility = value.ModelUtility(
        Echo(),
        np.zeros((4, 3)),
        names[[0, 1, 2, 0]],
        scores[0],
        names[y],
        metric=metric,
    )
    assert utility.n == 4
    found = utility(np.ones((2, 4)), cases.KEY)
    p = special.softmax(scores[0], axis=-1).round(10)
    np.testing.assert_allclose(found, [expected(metric, p, y)] * 2, rtol=1e-5)


def test_utility_measures_targets():
    rng = np.random.default_rng(0)
    x_val, t = rng.normal(size=(2, M, 1))
    t = x_val[:, 0] + 0.3 * t[:, 0]
    utility = value.ModelUtility(
        Echo(), np.zeros((4, 1)), np.arange(4.0), x_val, t, metric="r2"
    )
    found = utility(np.ones((2, 4)), cases.KEY)
    wanted = sklearn_metrics.r2_score(t, x_val[:, 0])
    np.testing.assert_allclose(found, [wanted] * 2, rtol=1e-5)
    assert utility.empty == 0


@pytest.mark.parametrize(
    "learner",
    [value.LogisticRegression(), value.GaussianNB(), value.KNN()],
    ids=lambda learner: type(learner).__name__,
)
@pytest.mark.every(3)
def test_what_learners_say_of_any_coalition_is_finite(learner):
    task = cases.blobs(3, 12, m=M, distance=12)
    weights = np.concatenate([np.eye(12), cases.every_size(12)])
    scores = cases.scores(learner, task, weights)[0].astype(np.float32)
    for metric in CLASSES:
        for some in scores.reshape(-1, B, M, 3):
            assert np.isfinite(_JITTED[metric](some, task.y_val)).all(), metric


def test_area_of_probabilities_that_float64_does_not_tell_apart():
    odds = np.array([-900.0, -800, -700, -30, -3, 0, 5, 20, 34, 36, 38, 50, 300])
    rng, p = np.random.default_rng(0), special.expit(odds)
    with np.errstate(divide="ignore"):
        logs = np.log(np.stack([special.expit(-odds), p], -1))
    for _ in range(20):
        y = rng.permutation(np.arange(len(odds)) % 2)
        wanted = sklearn_metrics.roc_auc_score(y, p)
        for scores in (np.stack([np.zeros_like(odds), odds], -1), logs):
            found = _JITTED["roc_auc"](scores[None].astype(np.float32), y)
            np.testing.assert_allclose(found, [wanted], rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_area_of_estimators_of_scikit_learn(classes):
    # Of raw columns and few points most probabilities are 0 or 1.
    from sklearn.naive_bayes import GaussianNB

    task = cases.blobs(classes, 12, m=40, distance=1)
    scale = 10.0 ** np.arange(task.x.shape[1])
    x, x_val = (np.asarray(a * scale, np.float32) for a in (task.x, task.x_val))
    utility = value.ModelUtility(
        GaussianNB(), x, task.y, x_val, task.y_val, metric="roc_auc"
    )
    rng = np.random.default_rng(0)
    for size in (6, 7, 8, 12):
        mask = np.isin(np.arange(12), rng.permutation(12)[:size])
        p = np.zeros((40, classes))
        model = GaussianNB().fit(x[mask], task.y[mask])
        p[:, model.classes_] = model.predict_proba(x_val)
        wanted = expected("roc_auc", p, task.y_val)
        np.testing.assert_allclose(utility(mask[None]), [wanted], rtol=1e-6)


@pytest.mark.parametrize("seed", [4, 9, 59])
def test_naive_bayes_where_classes_have_no_variance(seed):
    """Log odds of 6 or 7 whole numbers, some near 1e9, as float64 has them."""
    from sklearn.naive_bayes import GaussianNB

    rng = np.random.default_rng(seed)
    x, x_val = rng.integers(0, 4, (6 + seed % 2, 3)), rng.integers(0, 4, (20, 3))
    y = np.append([0, 1], rng.integers(0, 2, len(x) - 2))
    wanted = GaussianNB().fit(x, y).predict_joint_log_proba(x_val)
    task = cases.Task(np.float32(x), y, np.float32(x_val), np.zeros(20, int), 2)
    scores, _ = cases.scores(value.GaussianNB(), task, np.ones((1, len(x))))
    scores, odds = scores[0], wanted[:, 1] - wanted[:, 0]
    np.testing.assert_allclose(scores[:, 1] - scores[:, 0], odds, rtol=1e-7, atol=2e-7)


def test_naive_bayes_where_all_classes_are_equally_far():
    # The second feature has no variance but the smoothing, 1e-9: only the sizes of
    # classes tell them apart, beside distances of 1e11.
    from sklearn.naive_bayes import GaussianNB

    x = np.array([[0.0, 0], [0, 0], [1, 0], [1, 0], [1, 0]])
    y, x_val = np.array([0, 0, 1, 1, 1]), np.array([[0.5, 7.0], [0.5, 3]])
    utility = value.ModelUtility(
        value.GaussianNB(), x, y, x_val, [1, 1], metric="likelihood"
    )
    wanted = GaussianNB().fit(x, y).predict_proba(x_val)[:, 1].mean()
    np.testing.assert_allclose(wanted, 0.6, rtol=1e-5)  # float64 has few digits left
    np.testing.assert_allclose(utility(np.ones((1, 5))), [0.6], rtol=1e-6)
