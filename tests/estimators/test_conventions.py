"""scikit-learn's own checks of estimators."""

import pytest

pytest.importorskip("sklearn")
from sklearn import linear_model, naive_bayes
from sklearn.utils.estimator_checks import parametrize_with_checks

from jaxsel import estimators

LOGISTIC = linear_model.LogisticRegression()

UNWEIGHTED = {
    "check_sample_weight_equivalence_on_dense_data": "weights are for the estimator "
    "alone: which rows it gets does not depend on them"
}


def expected(estimator):
    return {} if isinstance(estimator, estimators.KNNShapleyValuer) else UNWEIGHTED


@pytest.mark.every(4)
@parametrize_with_checks(
    [
        estimators.KNNShapleyValuer(k=3),
        # A learner of its own: the default one compiles programs for each check.
        estimators.LabelErrorFilter(LOGISTIC, learner=naive_bayes.GaussianNB()),
    ],
    expected_failed_checks=expected,
)
def test_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        estimators.LabelErrorFilter(LOGISTIC),
        estimators.Selector(LOGISTIC),
        estimators.Selector(linear_model.Ridge()),
    ],
    expected_failed_checks=expected,
)
def test_slow_checks(estimator, check):
    check(estimator)
