"""Utilities of coalitions that teach little, and what is refused."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import references as ref

import jaxsel
from jaxsel import value

from . import retrain_cases as cases

CHANCE = {
    "accuracy": 1 / 3,
    "balanced_accuracy": 1 / 3,
    "likelihood": 1 / 3,
    "neg_log_loss": -math.log(3),
    "roc_auc": 0.5,
}
CLASSIFIERS = [
    value.LogisticRegression(),
    value.GaussianNB(),
    value.KNN(),
    value.NearestCentroid(),
]


@pytest.mark.every(4)
@pytest.mark.parametrize("metric", CHANCE)
def test_no_points_are_worth_chance(metric):
    task = cases.blobs(3, 9)
    make = lambda **options: value.ModelUtility(
        value.KNN(k=2), *task.arrays(), metric=metric, **options
    )
    utility, other = make(), make(empty=-7.5)
    np.testing.assert_allclose(utility.empty, CHANCE[metric], rtol=1e-6)
    assert other.empty == -7.5
    none = np.zeros((1, 9))
    np.testing.assert_allclose(utility(none, cases.KEY), [CHANCE[metric]], rtol=1e-6)
    np.testing.assert_array_equal(other(none, cases.KEY), [-7.5])


@pytest.mark.parametrize("learner", CLASSIFIERS, ids=lambda each: type(each).__name__)
@pytest.mark.left_out
def test_one_class_predicts_it_always(learner):
    task = cases.blobs(3, 12)
    masks = np.concatenate([np.eye(3)[:, task.y], np.eye(12)])
    share = np.bincount(task.y_val, minlength=3) / len(task.y_val)
    # The mean probability of the right class is then the share of what is right.
    metric = "likelihood" if learner.probabilistic else "accuracy"
    utility = value.ModelUtility(learner, *task.arrays(), metric=metric)
    wanted = np.append(share, share[task.y])
    np.testing.assert_allclose(utility(masks, cases.KEY), wanted, rtol=1e-6)


def test_labels_that_no_training_point_has_are_never_predicted():
    task = cases.blobs(3, 12)
    y_val = np.where(task.y_val == 1, 9, task.y_val)
    arrays = task.x, task.y, task.x_val, y_val
    utility = value.ModelUtility(value.KNN(k=3), *arrays)
    from sklearn.neighbors import KNeighborsClassifier

    theirs = KNeighborsClassifier(3).fit(task.x, task.y).score(task.x_val, y_val)
    found = utility(np.ones((1, 12)), cases.KEY)
    np.testing.assert_allclose(found, [theirs], rtol=1e-6)


@pytest.mark.parametrize("k", [3, 10])
@pytest.mark.every(2)
def test_likelihood_of_neighbours_is_the_soft_utility(k):
    task = cases.blobs(3, 8, m=12)
    utility = value.ModelUtility(value.KNN(k=k), *task.arrays(), metric="likelihood")
    table = np.asarray(utility(ref.coalitions(8), cases.KEY), np.float64)
    found = ref.enumerate_semivalue(table, 8, ref.shapley_weights(8))
    theirs = jaxsel.soft_knn_shapley(*task.arrays(), k=k)
    np.testing.assert_allclose(found, theirs.values, rtol=0, atol=2e-6)


def test_functions_of_ones_own():
    utility = value.as_utility(lambda masks, key: masks.sum(1) ** 2, 5)
    assert utility.n == 5
    found = utility(jnp.asarray(ref.coalitions(5)), cases.KEY)
    np.testing.assert_array_equal(found, ref.coalitions(5).sum(1) ** 2)


# What is refused.


def utility(learner: Any = None, metric: Any = "accuracy", **changed):
    task = dataclasses.asdict(cases.blobs(3, 9, m=6))
    arrays = {name: task[name] for name in ("x", "y", "x_val", "y_val")} | changed
    return value.ModelUtility(learner or value.KNN(), **arrays, metric=metric)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "auc"}, "metric must be one of 'accuracy', .* got 'auc'"),
        ({"x": np.zeros((8, 3))}, "x and y must have the same length, got 8 and 9"),
        ({"x_val": np.zeros((5, 3))}, "x_val and y_val .* same length, got 5 and 6"),
        ({"x_val": np.zeros((6, 4))}, "x and x_val .*3.* and .*4"),
        ({"x": np.full((9, 3), np.nan)}, "x must be finite"),
        ({"y": np.zeros((9, 1), int)}, r"y must be labels .* got \(9, 1\)"),
        ({"y": np.zeros(9, int), "y_val": np.zeros(6, int)}, "two classes or more"),
        ({"metric": "r2"}, "r2.* KNN"),
        ({"metric": "likelihood", "learner": value.NearestCentroid()}, "NearestCent"),
        ({"metric": "roc_auc", "learner": value.RidgeRegression()}, "RidgeRegression"),
        (
            {"metric": "neg_log_loss", "learner": value.NearestCentroid()},
            "neg_log_loss",
        ),
        (
            {
                "metric": "r2",
                "learner": value.RidgeRegression(),
                "y_val": np.ones(6),
            },
            "y_val must vary",
        ),
        ({"metric": "roc_auc", "y_val": np.ones(6, int)}, "y_val"),
        (
            {"learner": value.RidgeRegression(), "y": np.linspace(0, 1, 9)},
            "y must hold class labels, got 0.125.*r2",
        ),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        utility(**options)


@pytest.mark.parametrize("empty", [np.nan, np.inf])
def test_bad_value_of_no_points(empty):
    task = cases.blobs(3, 9)
    with pytest.raises(ValueError, match="empty must be a finite number"):
        value.ModelUtility(value.KNN(), *task.arrays(), empty=empty)


@pytest.mark.parametrize("shape", [(9,), (2, 8), (1, 2, 9)])
def test_bad_masks(shape):
    with pytest.raises(ValueError, match=r"masks must have shape .*9.* got \("):
        utility()(np.ones(shape), cases.KEY)


def test_bad_functions():
    with pytest.raises(TypeError, match="function must be callable, got 3"):
        value.as_utility(3, 5)  # type: ignore
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        value.as_utility(lambda masks, key: masks.sum(1), 0)
