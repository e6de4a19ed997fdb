"""Cross-validated probabilities beside scikit-learn's, fold by fold."""

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from benchmarks import _raw_learners as raw
from jaxsel import labels, value
from jaxsel.labels import _folds, _logistic, _two_classes
from jaxsel.labels._folds import deal_folds


def samples(n=90, d=5, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    x = rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(classes, d))[y]
    return x.astype(np.float32), y


def theirs(estimator, x, y, fold):
    split = PredefinedSplit(fold)
    return cross_val_predict(estimator, x, y, cv=split, method="predict_proba")


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("d", [5, 20])
@pytest.mark.every(4)
def test_logistic_regression(classes, d):
    """Few features and two classes take another program than all else."""
    x, y = samples(d=d, classes=classes)
    learner = value.LogisticRegression(l2=0.5, tol=1e-6)
    found = labels.cross_val_probs(learner, x, y, folds=4)
    fold = deal_folds(y, folds=4)
    model = LogisticRegression(C=2, tol=1e-8, max_iter=1000)
    wanted = theirs(model, x.astype(np.float64), y, fold)  # in float32 it stops early
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("rotated", [60, 20])
def test_more_columns_than_samples(rotated, monkeypatch):
    """Rotated to the directions in which samples differ, or left as they are."""
    monkeypatch.setattr(_logistic, "_ROTATED", rotated)
    x, y = samples(n=60, d=80)
    learner = value.LogisticRegression(l2=0.5, tol=1e-6)
    probs = labels.cross_val_probs(learner, x, y)
    model = LogisticRegression(C=2, tol=1e-8, max_iter=1000)
    expected = theirs(model, x.astype(np.float64), y, deal_folds(y))
    np.testing.assert_allclose(probs, expected, atol=1e-5)


@pytest.mark.left_out
def test_categories_of_few_samples():
    """A column that one class alone has moves far, and holds up no other."""
    rng = np.random.default_rng(0)
    codes = rng.choice(40, 400, p=np.arange(40, 0, -1) / 820)
    x = np.eye(40, dtype=np.float32)[codes]
    y = (rng.uniform(size=400) < codes / 80).astype(int)
    found = labels.cross_val_probs(value.LogisticRegression(l2=0.01), x, y)
    fold = deal_folds(y)
    x = x - x.mean(axis=0, dtype=np.float64)
    model = LogisticRegression(C=100, solver="newton-cg", tol=1e-9, max_iter=10_000)
    np.testing.assert_allclose(found, theirs(model, x, y, fold), atol=2.5e-3)


@pytest.mark.left_out
def test_steps_that_are_too_long_are_shortened():
    """Of two subsets, one whose step is right and one whose step is far too long."""
    x, y = samples(classes=2)
    x = np.append(x, np.ones((len(x), 1), np.float32), axis=1)
    penalty, heavy = np.full(6, 0.1, np.float32), np.arange(3)
    problem = _two_classes._Problem(x, y.astype(np.float32), penalty, heavy, x[heavy])
    w, zeros = np.ones((2, len(x)), np.float32), np.zeros((2, 6), np.float32)
    state = problem.start(zeros, zeros @ x.T, w)
    hessian = x.T @ x / 4 + 0.1 * np.eye(6)
    slope = np.asarray(state.gradient)
    delta = np.linalg.solve(hessian, slope[0])[None] * np.array([[1.0], [40.0]])
    found = problem.moved(state, delta.astype(np.float32), w)
    np.testing.assert_allclose(found.theta[0], -delta[0], rtol=1e-5)
    length = np.asarray(found.theta[1] / -delta[1])
    np.testing.assert_allclose(length, length[0], rtol=1e-4)
    assert 1 / 80 < length[0] < 1
    # The loss hardly rises there, and has not risen on the whole.
    rise = -np.sum(np.asarray(found.gradient) * delta, axis=1)[1]
    assert rise <= 0.011 * np.sum(slope * delta, axis=1)[1]
    signed = np.where(y, -1, 1) * np.asarray(found.z[1])
    loss = np.logaddexp(0, signed).sum() + 0.05 * np.sum(found.theta[1] ** 2)
    assert loss < len(x) * np.log(2)
    np.testing.assert_allclose(found.z, found.theta @ x.T, atol=1e-3)
    np.testing.assert_allclose(found.last_step, found.theta, rtol=1e-6)
    np.testing.assert_allclose(found.gradient_change, found.gradient - slope, atol=1e-4)
    chance = 1 / (1 + np.exp(-np.asarray(found.z)))
    wanted = (chance - y) @ x + 0.1 * np.asarray(found.theta)
    np.testing.assert_allclose(found.gradient, wanted, atol=1e-3)


def one_hot(n, size, seed):
    """Categories, ever rarer, standardised as tables are."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, size + 1) ** -1.5
    codes = rng.choice(size, n, p=shares / shares.sum())
    z = rng.normal(0, 1.5, size)[codes] + rng.logistic(size=n)
    x = np.eye(size)[codes]
    x = x[:, x.any(axis=0)]
    return (x - x.mean(0)) / x.std(0), z > 0


def normal(n, d, scale=1.0, noise=1.0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    z = scale * x @ rng.normal(size=d) / np.sqrt(d)
    return x, z + noise * rng.logistic(size=n) > 0


HARD = {
    "rare categories": (*one_hot(3000, 60, 0), 1.0),
    "separable": (*normal(600, 10, 30, 0.01), 0.01),
    "fewer samples than features": (*normal(60, 100), 0.01),
    "more samples than are heavy": (*normal(2000, 100, 3), 1.0),
    "four samples a column": (*normal(1100, 270, 3), 1.0),
    "duplicated rows": tuple(np.repeat(each, 10, axis=0) for each in normal(80, 9)),
}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.left_out
def test_two_classes_near_the_optimum(case):
    x, y, *penalty = HARD[case]
    l2 = penalty[0] if penalty else 1.0
    found = labels.cross_val_probs(value.LogisticRegression(l2=l2), x, y)
    model = LogisticRegression(C=1 / l2, solver="newton-cholesky", tol=1e-10)
    wanted = theirs(model, x - x.mean(axis=0), y, deal_folds(y))
    assert np.abs(found - wanted).mean() < 5e-5
    np.testing.assert_allclose(found, wanted, atol=1e-2)


def test_wide_tables_of_two_classes_take_either_way(monkeypatch):
    x, y = normal(1100, 270, 3)
    learner, found = value.LogisticRegression(), []
    for columns in (1024, 0):  # by Hessians, and by conjugate gradients
        monkeypatch.setattr(_logistic, "_ONCE", columns)
        found.append(labels.cross_val_probs(learner, x, y))
    assert (found[0] != found[1]).any()
    np.testing.assert_allclose(*found, atol=1e-3)


@pytest.mark.left_out
def test_scales_and_constant_columns_of_two_classes():
    """Far apart; the penalty is that of the columns as they are."""
    x, y = normal(500, 8)
    x = np.column_stack([x * np.logspace(-4, 4, 8) + 1e3 * np.arange(8), np.ones(500)])
    found = labels.cross_val_probs(value.LogisticRegression(l2=0.01), x, y)
    x = np.float32(x).astype(np.float64)
    model = LogisticRegression(C=100, solver="newton-cholesky", tol=1e-10)
    wanted = theirs(model, x - x.mean(axis=0), y, deal_folds(y))
    np.testing.assert_allclose(found, wanted, atol=1e-3)


@pytest.mark.left_out
def test_many_folds_share_their_curvature(monkeypatch):
    x, y = one_hot(300, 12, 1)
    learner = value.LogisticRegression(tol=1e-8)
    wanted = labels.cross_val_probs(learner, x, y, folds=7)
    monkeypatch.setattr(_two_classes, "_MEMORY", 1)
    _logistic._two.clear_cache()
    found = labels.cross_val_probs(learner, x, y, folds=7)
    _logistic._two.clear_cache()
    np.testing.assert_allclose(found, wanted, atol=1e-3)


@pytest.mark.left_out
def test_other_learners():
    x, y = samples()
    fold = deal_folds(y, folds=5)
    for learner, estimator in (
        (value.KNN(k=7), KNeighborsClassifier(7)),
        (value.GaussianNB(), GaussianNB()),
        (value.SklearnLearner(GaussianNB()), GaussianNB()),
        (GaussianNB(), GaussianNB()),
    ):
        found = labels.cross_val_probs(learner, x, y, folds=5)
        np.testing.assert_allclose(found, theirs(estimator, x, y, fold), atol=1e-4)


def test_rows_at_once_change_nothing(monkeypatch):
    x, y = samples()
    learner = value.GaussianNB()
    wanted = labels.cross_val_probs(learner, x, y)
    monkeypatch.setattr(_folds, "_ENTRIES", 1)
    monkeypatch.setattr(_folds, "_ROWS", 7)  # 90 is no multiple
    found = labels.cross_val_probs(learner, x, y)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-9)


def test_folds_are_even_in_every_class():
    y = np.random.default_rng(0).choice(["a", "b", "c"], 101, p=[0.7, 0.2, 0.1])
    for key in (None, jax.random.key(0)):
        fold = deal_folds(y, folds=4, key=key)
        for part in (fold, *(fold[y == label] for label in "abc")):
            counts = np.bincount(part, minlength=4)
            assert counts.max() - counts.min() <= 1
    again = deal_folds(y, folds=4, key=jax.random.key(0))
    np.testing.assert_array_equal(fold, again)
    assert (fold != deal_folds(y, folds=4)).any()


@pytest.mark.left_out
def test_a_class_of_one_sample_has_no_probability_where_it_is_held_out():
    x, y = samples()
    y[10] = 3
    few = "1 of 4 classes have fewer samples than the 5 folds, the smallest 1"
    with pytest.warns(UserWarning, match=few):
        found = labels.cross_val_probs(value.LogisticRegression(), x, y)
    assert found[10, 3] == 0
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    with pytest.warns(UserWarning, match=few):
        errors = labels.find_label_errors(x, y)
    assert np.isfinite(errors.scores).all()


@pytest.mark.left_out
@pytest.mark.parametrize("classes", [2, 3])
def test_the_tuned_penalty_is_that_of_the_greatest_likelihood(classes):
    """Against scikit-learn with the penalty that was chosen, and the others."""
    x, y = samples(classes=classes, d=6)
    x = x + 100  # it centres
    fold = deal_folds(y)
    found = _logistic.tuned_logistic(x, y, classes, fold)
    assert len(found.loss) == len(_logistic.GRID)
    for l2, loss in found.loss.items():
        probs = theirs(
            LogisticRegression(C=1 / l2, tol=1e-8, max_iter=5000), x - 100, y, fold
        )
        wanted = -np.log(probs[np.arange(len(y)), y]).mean()
        assert loss == pytest.approx(wanted, abs=2e-3)
        if l2 == found.l2:
            np.testing.assert_allclose(np.exp(found.log_probs), probs, atol=5e-3)
    assert found.l2 == min(found.loss, key=found.loss.get)


def test_two_classes_fall_back_where_they_do_not_converge(monkeypatch):
    x, y = samples(classes=2, d=6)
    fold = deal_folds(y)
    found = _logistic.tuned_logistic(x, y, 2, fold)
    fit = _logistic._two
    monkeypatch.setattr(
        _logistic,
        "_two",
        lambda *args, tol: (fit(*args, tol=tol)[0], np.zeros(5, bool)),
    )
    other = _logistic.tuned_logistic(x, y, 2, fold)
    assert other.l2 == found.l2
    np.testing.assert_allclose(other.log_probs, found.log_probs, atol=0.05)
    assert not np.array_equal(other.log_probs, found.log_probs)


def test_the_penalty_may_be_chosen_on_a_part(monkeypatch):
    x, y = samples(n=300)
    fold = deal_folds(y)
    whole = _logistic.tuned_logistic(x, y, 3, fold)
    monkeypatch.setattr(_logistic, "_ENTRIES", 150 * 3)
    part = _logistic.tuned_logistic(x, y, 3, fold)
    assert part.loss != whole.loss
    even = np.arange(300) % 2 == 0
    model = LogisticRegression(C=1 / part.l2, tol=1e-8, max_iter=5000)
    some = theirs(model, x[even], y[even], fold[even])
    loss = -np.log(some[np.arange(150), y[even]]).mean()
    assert part.loss[part.l2] == pytest.approx(loss, abs=2e-4)
    if part.l2 == whole.l2:
        np.testing.assert_allclose(part.log_probs, whole.log_probs, atol=0.05)
    probs = theirs(
        LogisticRegression(C=1 / part.l2, tol=1e-8, max_iter=5000), x, y, fold
    )
    np.testing.assert_allclose(np.exp(part.log_probs), probs, atol=5e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "folds must be at least 2"),
        ({"folds": 91}, "folds must be at most the 90 samples"),
        ({"folds": 2.5}, "folds must be a whole number"),
        ({"learner": value.RidgeRegression()}, "must give probabilities"),
        ({"learner": 3}, "such as value.LogisticRegression"),
        ({"y": np.zeros(90, int)}, "y must have two classes or more"),
        ({"y": np.zeros(89, int)}, "same length"),
        ({"x": np.zeros((90, 0))}, "x must not be empty, got shape"),
        ({"x": np.full((90, 2), np.nan)}, "x must be finite"),
        ({"x": np.full((90, 2), 1e300)}, "x must be finite"),
        ({"x": np.full((90, 2), "a")}, "x must be numeric"),
    ],
)
def test_what_is_refused(change, message):
    x, y = samples()
    given = {"learner": value.GaussianNB(), "x": x, "y": y} | change
    with pytest.raises((ValueError, TypeError), match=message):
        labels.cross_val_probs(
            given.pop("learner"), given.pop("x"), given.pop("y"), **given
        )


def test_a_learner_that_fails_is_named():
    x, y = samples(n=20)
    learner = value.SklearnLearner(KNeighborsClassifier(500))
    with pytest.raises(ValueError, match="learn from each fold, but: ValueError"):
        labels.cross_val_probs(learner, x, y)


@pytest.mark.parametrize(
    "name",
    ["income, 3 classes", "income, 5 classes", "collinear columns", "a column of 1e9"],
)
@pytest.mark.left_out
def test_logistic_regression_of_raw_tables(name):
    """Beside the optimum in float64: they used to be .25 off."""
    table = raw.table(name)
    x, y = table.x[:200], table.y[:200]
    found = labels.cross_val_probs(value.LogisticRegression(), x, y)
    fold = deal_folds(y)
    for held in range(5):
        kept, held = fold != held, fold == held
        count = found.shape[1]
        logs = raw.log_probs(x[kept], y[kept], x[held], l2=1.0, n_classes=count)
        np.testing.assert_allclose(found[held], np.exp(logs), rtol=0, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.left_out
def test_folds_that_do_not_converge_are_told(classes, scale, monkeypatch):
    from jaxsel.value._learners import _double, _softmax

    for module, name in (
        (_softmax, "STEPS"),
        (_double, "STEPS"),
        (_two_classes, "_STEPS"),  # of rounds of several
    ):
        monkeypatch.setattr(module, name, 0 if module is _two_classes else 1)
    x, y = samples(classes=classes, d=4)
    learner = value.LogisticRegression(l2=0.137 + classes)  # compiled for itself
    _logistic._two.clear_cache()
    _logistic._held_out.clear_cache()
    with pytest.warns(UserWarning, match="did not converge on all folds"):
        labels.cross_val_probs(learner, scale * x, y)
    _logistic._two.clear_cache()
    _logistic._held_out.clear_cache()
