"""Estimators of scikit-learn's kind: what they find, and where they stand."""

import pickle

import jax
import numpy as np
import pandas as pd
import pytest

import jaxsel
from jaxsel import estimators, labels

pytest.importorskip("sklearn")
from sklearn import (
    base,
    datasets,
    linear_model,
    model_selection,
    naive_bayes,
    neighbors,
    pipeline,
    preprocessing,
)
from sklearn.utils import get_tags

BAYES = naive_bayes.GaussianNB()
LOGISTIC = linear_model.LogisticRegression()


def blobs(n=120, seed=0, flipped=12):
    """Three clouds of named classes, some of whose labels are those of the next."""
    x, codes = datasets.make_blobs(n, centers=3, n_features=4, random_state=seed)
    wrong = np.random.default_rng(seed).choice(n, flipped, replace=False)
    true = np.array(["a", "b", "c"])[codes]
    given = true.copy()
    given[wrong] = np.array(["b", "c", "a"])[codes[wrong]]
    return preprocessing.scale(x), given, true, wrong


def named(x, start=100):
    return pd.DataFrame(x, columns=list("pqrs"), index=np.arange(len(x)) + start)


def by_bayes(estimator=LOGISTIC):
    return estimators.LabelErrorFilter(estimator, learner=BAYES)


# KNNShapleyValuer.


def test_values_on_validation_data_are_those_of_the_function():
    x, y, _, _ = blobs()
    frame, held = named(x[:80]), named(x[80:])
    found = estimators.KNNShapleyValuer(3, metric="cosine").fit(
        frame, y[:80], X_val=held, y_val=y[80:]
    )
    wanted = jaxsel.knn_shapley(x[:80], y[:80], x[80:], y[80:], k=3, metric="cosine")
    np.testing.assert_array_equal(found.values_.values, wanted.values)
    assert found.values_.index == tuple(range(100, 180))
    assert found.n_features_in_ == 4
    assert found.feature_names_in_.tolist() == list("pqrs")
    assert found.classes_.tolist() == ["a", "b", "c"]


@pytest.mark.left_out
def test_values_without_validation_data_are_means_over_the_other_folds():
    x, y, _, wrong = blobs()
    cv = model_selection.StratifiedKFold(4, shuffle=True, random_state=0)
    found = estimators.KNNShapleyValuer(cv=cv).fit(named(x), y).values_
    total = np.zeros((3, len(x)))
    for train, held in cv.split(x, y):
        own = jaxsel.knn_shapley(x[train], y[train], x[held], y[held], reduce=None)
        total[:, train] += [
            np.sum(own.values, 0),
            np.square(own.values).sum(0),
            np.full(len(train), len(held)),
        ]
    mean = total[0] / total[2]
    np.testing.assert_allclose(found.values, mean, rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(found.count, total[2])
    variance = (total[1] - total[2] * mean**2) / (total[2] - 1)
    np.testing.assert_allclose(
        found.stderr, np.sqrt(variance / total[2]), rtol=1e-3, atol=1e-7
    )
    assert found.index == tuple(range(100, 220))
    assert len({*found.bottom(12)} & {*wrong}) >= 11


def test_rows_that_are_never_trained_on_have_no_value():
    x, y, _, _ = blobs()
    cv = model_selection.ShuffleSplit(1, test_size=0.25, random_state=0)
    found = estimators.KNNShapleyValuer(cv=cv).fit(x, y).values_
    (_, held), *_ = cv.split(x)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(found.values)), sorted(held))
    np.testing.assert_array_equal(found.count == 0, np.isnan(found.values))


def test_a_valuer_ends_a_pipeline():
    x, y, _, _ = blobs()
    steps = pipeline.make_pipeline(
        preprocessing.StandardScaler(), estimators.KNNShapleyValuer()
    ).fit(x * [1, 10, 100, 1000], y)
    scaled = preprocessing.StandardScaler().fit_transform(x * [1, 10, 100, 1000])
    wanted = estimators.KNNShapleyValuer().fit(scaled, y)
    np.testing.assert_array_equal(steps[-1].values_.values, wanted.values_.values)


def test_validation_data_come_in_pairs():
    x, y, _, _ = blobs()
    with pytest.raises(ValueError, match="X_val and y_val must be given together"):
        estimators.KNNShapleyValuer().fit(x, y, X_val=x)
    with pytest.raises(ValueError, match="3 features, but .* expecting 4"):
        estimators.KNNShapleyValuer().fit(x, y, X_val=x[:, :3], y_val=y)


# LabelErrorFilter.


def test_wrong_labels_are_left_out():
    x, y, true, wrong = blobs()
    weights = np.random.default_rng(0).uniform(0.5, 2, len(x))
    found = by_bayes().fit(named(x), y, sample_weight=weights)
    errors = jaxsel.find_label_errors(x, y, learner=BAYES)
    np.testing.assert_array_equal(found.errors_.indices, errors.indices)
    assert found.errors_.index == tuple(range(100, 220))
    assert len({*found.errors_.indices} & {*wrong}) >= 10
    kept = ~errors.mask
    wanted = base.clone(LOGISTIC).fit(x[kept], y[kept], sample_weight=weights[kept])
    np.testing.assert_allclose(
        found.predict_proba(named(x)), wanted.predict_proba(x), rtol=1e-6
    )
    np.testing.assert_allclose(
        found.decision_function(named(x)), wanted.decision_function(x), rtol=1e-6
    )
    assert found.score(named(x), true) == wanted.score(x, true)
    assert found.classes_.tolist() == ["a", "b", "c"]
    assert found.estimator_.feature_names_in_.tolist() == list("pqrs")


@pytest.mark.left_out
def test_the_default_learner_is_that_of_the_function():
    x, y, _, _ = blobs()
    found = estimators.LabelErrorFilter(BAYES, folds=4, filter_by="both").fit(x, y)
    wanted = jaxsel.find_label_errors(x, y, folds=4, filter_by="both")
    np.testing.assert_array_equal(found.errors_.indices, wanted.indices)


def test_other_filters_and_estimators_without_weights():
    x, y, _, _ = blobs()
    found = estimators.LabelErrorFilter(
        neighbors.KNeighborsClassifier(1),
        learner=BAYES,
        filter_by="predicted_neq_given",
    ).fit(x, y)
    probs = labels.cross_val_probs(BAYES, x, y)
    mask = labels.label_issues(probs, y, filter_by="predicted_neq_given")
    np.testing.assert_array_equal(found.errors_.mask, mask)
    assert found.estimator_.n_samples_fit_ == (~mask).sum()
    assert not hasattr(found, "decision_function")
    assert get_tags(neighbors.KNeighborsClassifier()).classifier_tags.multi_label
    assert not get_tags(found).classifier_tags.multi_label
    with pytest.raises(ValueError, match="fit of KNeighborsClassifier takes none"):
        found.fit(x, y, sample_weight=np.ones(len(x)))


def test_what_the_filter_refuses():
    x, y, _, _ = blobs()
    with pytest.raises(ValueError, match="y must have two classes or more, got 1"):
        by_bayes().fit(x[y == "a"], y[y == "a"])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        by_bayes().fit(x, x[:, 0])
    with pytest.raises(ValueError, match="filter_by must be one of"):
        estimators.LabelErrorFilter(LOGISTIC, filter_by="some").fit(x, y)
    with pytest.raises(ValueError, match="feature names should match"):
        by_bayes().fit(named(x), y).predict(named(x)[list("qprs")])


# Selector.


@pytest.mark.left_out
def test_representatives_of_each_class():
    x, y, _, _ = blobs()
    found = estimators.Selector(LOGISTIC, budget=12).fit(x, y)
    rows, weights = (
        np.asarray(part)
        for part in (found.selection_.indices, found.selection_.weights)
    )
    assert len({*rows}) == 12
    for label in "abc":
        own = np.flatnonzero(y == label)
        mine = y[rows] == label
        part = jaxsel.facility_location(x[own], int(mine.sum()))
        np.testing.assert_array_equal(rows[mine], own[np.asarray(part.indices)])
        assert weights[mine].sum() == len(own)
    wanted = base.clone(LOGISTIC).fit(x[rows], y[rows], sample_weight=weights)
    np.testing.assert_allclose(found.predict_proba(x), wanted.predict_proba(x))


@pytest.mark.left_out
def test_rare_classes_have_a_representative():
    x, y, _, _ = blobs()
    y = np.where(np.arange(len(y)) < 2, "rare", "usual")
    found = estimators.Selector(LOGISTIC, budget=5).fit(x, y)
    assert np.sum(y[np.asarray(found.selection_.indices)] == "rare") == 1


def test_targets_and_weights_of_ones_own():
    x, y, _, _ = blobs()
    targets, own = x[:, 0], np.random.default_rng(0).uniform(0.5, 2, len(x))
    ridge = linear_model.Ridge()
    found = estimators.Selector(ridge, budget=0.25).fit(
        x[:, 1:], targets, sample_weight=own
    )
    wanted = jaxsel.facility_location(x[:, 1:].astype(float), 30)
    rows = np.asarray(wanted.indices)
    np.testing.assert_array_equal(found.selection_.indices, rows)
    weights = np.asarray(wanted.weights) * own[rows]
    ridge = ridge.fit(x[rows, 1:], targets[rows], sample_weight=weights)
    np.testing.assert_allclose(found.predict(x[:, 1:]), ridge.predict(x[:, 1:]))
    assert base.is_regressor(found)


def most_valuable(x, y, budget):
    return estimators.KNNShapleyValuer().fit(x, y).values_.top(budget)


def of_large_volume(x, y, budget):
    return jaxsel.log_det(x, budget)


def test_choices_of_ones_own():
    x, y, _, wrong = blobs()
    nearest = neighbors.KNeighborsClassifier(1)
    found = estimators.Selector(nearest, budget=60, select=most_valuable).fit(x, y)
    rows = estimators.KNNShapleyValuer().fit(x, y).values_.top(60)
    np.testing.assert_array_equal(found.selection_.indices, rows)
    assert not {*wrong} & {*rows}
    wanted = base.clone(nearest).fit(x[rows], y[rows])
    np.testing.assert_array_equal(found.predict(x), wanted.predict(x))
    by_volume = estimators.Selector(BAYES, budget=30, select=of_large_volume).fit(x, y)
    wanted = jaxsel.log_det(x, 30)
    np.testing.assert_array_equal(by_volume.selection_.indices, wanted.indices)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"budget": 0}, ValueError, "budget must be .* got 0"),
        ({"budget": 1.5}, ValueError, "budget must be .* got 1.5"),
        ({"budget": 2}, ValueError, "at least the 3 classes of y, got 2 of 120 rows"),
        ({"select": lambda x, y, n: x}, TypeError, r"shape \(120, 4\)"),
        ({"select": lambda x, y, n: [120]}, ValueError, r"from 0 to 119, got \[120\]"),
    ],
)
def test_what_the_selector_refuses(options, error, message):
    x, y, _, _ = blobs()
    with pytest.raises(error, match=message):
        estimators.Selector(LOGISTIC, **options).fit(x, y)


# In scikit-learn.


def test_in_pipelines_and_cross_validation():
    x, y, true, _ = blobs()
    steps = pipeline.make_pipeline(preprocessing.StandardScaler(), by_bayes())
    found = model_selection.cross_val_score(steps, named(x), y, cv=3)
    parts = model_selection.StratifiedKFold(3).split(x, y)
    for score, (train, test) in zip(found, parts, strict=True):
        scaler = preprocessing.StandardScaler().fit(x[train])
        mask = jaxsel.find_label_errors(
            scaler.transform(x[train]), y[train], learner=BAYES
        ).mask
        rows = train[~mask]
        wanted = base.clone(LOGISTIC).fit(scaler.transform(x[rows]), y[rows])
        assert score == wanted.score(scaler.transform(x[test]), y[test])


@pytest.mark.left_out
def test_grid_search_reaches_the_estimator_within():
    x, y, _, _ = blobs()
    search = model_selection.GridSearchCV(
        estimators.Selector(neighbors.KNeighborsClassifier(), select=most_valuable),
        {"budget": [10, 0.5], "estimator__n_neighbors": [1, 3]},
        cv=3,
    ).fit(x, y)
    assert len(search.cv_results_["params"]) == 4
    best = search.best_estimator_
    assert best.estimator_.n_neighbors == search.best_params_["estimator__n_neighbors"]
    assert best.score(x, y) == search.score(x, y)


@pytest.mark.parametrize(
    "estimator",
    [
        by_bayes(),
        estimators.Selector(LOGISTIC, budget=0.2, select=most_valuable),
        estimators.KNNShapleyValuer(7, cv=3),
    ],
    ids=lambda e: type(e).__name__,
)
def test_clones_and_pickles(estimator):
    x, y, _, _ = blobs()
    again = base.clone(estimator)
    assert again is not estimator
    assert repr(again) == repr(estimator)
    fitted = pickle.loads(pickle.dumps(again.fit(x, y)))
    assert not hasattr(estimator, "n_features_in_")
    if hasattr(fitted, "predict"):
        np.testing.assert_array_equal(fitted.predict(x), again.predict(x))
    else:
        jax.tree.map(np.testing.assert_array_equal, fitted.values_, again.values_)
