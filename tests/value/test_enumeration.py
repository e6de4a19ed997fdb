"""Every value against the enumeration of every coalition, and of every tied order."""

import dataclasses

import numpy as np
import pytest
import references as ref

import jaxsel

from . import cases

pytestmark = pytest.mark.every(3)

# Float32, and at most a dozen operations on numbers below 4 (regression: below 16).
TOLERANCE = {"rtol": 0, "atol": 2e-6}

each_size = pytest.mark.parametrize(
    "n", [*range(1, 7), *(pytest.param(n, marks=pytest.mark.slow) for n in (7, 8, 9))]
)


@pytest.mark.every(27)
@cases.each_method
@each_size
def test_every_k(method, n):
    data = cases.random(n)
    for k in range(1, n + 4):
        values = method.call(data, k, reduce=None).values
        np.testing.assert_allclose(values, method.enumerate(data, k), **TOLERANCE)


@cases.each_tied
@each_size
@pytest.mark.every(18)
def test_ties(method, n, ties):
    data = cases.grid(n, size=3 if n < 7 else 5)
    for k in (1, 2, n, n + 2):
        values = method.call(data, k, ties=ties, reduce=None).values
        expected = method.enumerate(data, k, ties=ties)
        np.testing.assert_allclose(values, expected, **TOLERANCE)


@cases.each_tied
def test_all_points_identical(method, ties):
    data = cases.grid(6, size=1)
    for k in (1, 3, 8):
        values = method.call(data, k, ties=ties, reduce=None).values
        expected = method.enumerate(data, k, ties=ties)
        np.testing.assert_allclose(values, expected, **TOLERANCE)


@pytest.mark.slow
@cases.each_method
@each_size
def test_cosine(method, n):
    data = cases.random(n, seed=1)
    for k in (1, 3):
        values = method.call(data, k, metric="cosine", reduce=None).values
        expected = method.enumerate(data, k, metric="cosine")
        np.testing.assert_allclose(values, expected, **TOLERANCE)


@cases.each_tied
@pytest.mark.every(5)
def test_cosine_ties_are_parallel_rows(method, ties):
    # Powers of two, which leave all digits as they are, and squares that do not fit.
    data = cases.random(6, seed=2)
    data = dataclasses.replace(data, x=data.x[[0, 1, 0, 2, 1, 0]])
    data.x[2] *= 2.0**80
    data.x[4] *= 2.0**-80
    values = method.call(data, 2, metric="cosine", ties=ties, reduce=None).values
    expected = method.enumerate(data, 2, metric="cosine", ties=ties)
    np.testing.assert_allclose(values, expected, **TOLERANCE)


@cases.each_method
@pytest.mark.parametrize("n", [1, 5])
def test_one_class(method, n):
    data = cases.random(n)
    data = dataclasses.replace(data, y=np.zeros(n, int), t=np.full(n, np.float32(2)))
    for y_val in (0, cases.ABSENT):
        one = dataclasses.replace(data, y_val=np.array([0] + [y_val] * 11))
        values = method.call(one, 3, reduce=None).values
        np.testing.assert_allclose(values, method.enumerate(one, 3), **TOLERANCE)


@pytest.mark.every(18)
@cases.each_how
def test_reduce(method, how):
    data = cases.random(7)
    call = lambda reduce: method.call(data, 3, method=how, reduce=reduce)
    rows = method.enumerate(data, 3)
    mean, largest, each = call("mean"), call("max"), call(None)
    np.testing.assert_allclose(mean.values, rows.mean(0), **TOLERANCE)
    stderr = rows.std(0, ddof=1) / np.sqrt(len(rows))
    np.testing.assert_allclose(mean.stderr, stderr, **TOLERANCE)
    np.testing.assert_allclose(largest.values, rows.max(0), **TOLERANCE)
    np.testing.assert_allclose(each.values, rows, **TOLERANCE)
    assert largest.stderr is None
    assert each.stderr is None
    assert [int(v.count) for v in (mean, largest, each)] == [12, 12, 12]


@cases.each_method
def test_one_validation_point_has_no_standard_error(method):
    values = method.call(cases.random(4, n_val=1), 2)
    assert values.values.shape == (4,)
    assert np.isnan(values.stderr).all()


def test_wrong_base_of_the_paper():
    # Equation (4) divides by K where N < K: 1/4 in place of 1/max(N, K) = 1/7.
    x = np.arange(4.0)[:, None]
    values = jaxsel.knn_shapley(x, np.zeros(4), x[:1], np.zeros(1), k=7)
    np.testing.assert_allclose(values.values, 1 / 7, **TOLERANCE)


@pytest.mark.parametrize("n_classes", [2, 10])
def test_number_of_classes_sets_the_value_of_nothing(n_classes):
    data = cases.random(5, seed=3)
    data = dataclasses.replace(data, y=data.y % 2, y_val=data.y_val % 2)
    distance, gains = ref.distances(data.x, data.x_val), ref.matches(data.y, data.y_val)
    p = ref.shapley_weights(5)
    for call, utility in (
        (
            lambda: jaxsel.soft_knn_shapley(
                *data.classes(), k=3, n_classes=n_classes, reduce=None
            ),
            ref.soft_utility(3, n_classes),
        ),
        (
            lambda: jaxsel.threshold_knn_shapley(
                *data.classes(), radius=2.0, n_classes=n_classes, reduce=None
            ),
            ref.threshold_utility(distance, 2.0, n_classes),
        ),
    ):
        expected = ref.enumerate_values(distance, gains, utility, p)
        np.testing.assert_allclose(call().values, expected, **TOLERANCE)


def test_number_of_classes_beside_class_probabilities():
    data = cases.random(5, seed=3)
    y = np.random.default_rng(0).dirichlet(np.ones(3), 5)
    gains, distance = y[:, data.y_val % 3].T, ref.distances(data.x, data.x_val)
    for n_classes, known in ((10, 10), (3, 3), (None, 3)):
        values = jaxsel.soft_knn_shapley(
            data.x, y, data.x_val, data.y_val % 3, k=3, n_classes=n_classes, reduce=None
        ).values
        expected = ref.enumerate_values(
            distance, gains, ref.soft_utility(3, known), ref.shapley_weights(5)
        )
        np.testing.assert_allclose(values, expected, **TOLERANCE)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("soft", ["y", "y_val", "both"])
def test_soft_labels_and_distance_weights(metric, soft):
    data = cases.random(6, seed=4)
    rng = np.random.default_rng(5)
    y, y_val = data.y % 3, data.y_val % 3
    p_y, p_val = np.eye(3)[y], np.eye(3)[y_val]
    if soft != "y_val":
        y = p_y = rng.dirichlet(np.ones(3), 6).astype(np.float32)
    if soft != "y":
        y_val = p_val = rng.dirichlet(np.ones(3), 12).astype(np.float32)
    distance = ref.distances(data.x, data.x_val, metric)
    weigh = lambda d: 1 / (1 + d)
    gains = p_val @ p_y.T * weigh(distance)
    for function, utility, p in (
        (jaxsel.knn_shapley, ref.knn_utility(2), ref.shapley_weights),
        (jaxsel.knn_banzhaf, ref.knn_utility(2), ref.banzhaf_weights),
        (jaxsel.knn_loo, ref.knn_utility(2), ref.loo_weights),
        (jaxsel.soft_knn_shapley, ref.soft_utility(2, 3), ref.shapley_weights),
    ):
        values = function(
            data.x, y, data.x_val, y_val, k=2, metric=metric, weights=weigh, reduce=None
        ).values
        expected = ref.enumerate_values(distance, gains, utility, p(6))
        np.testing.assert_allclose(values, expected, **TOLERANCE)


@pytest.mark.parametrize("n", [1, 2, 6])
def test_semivalue_restricted_by_size(n):
    data = cases.random(n, seed=6)
    p = np.random.default_rng(n).uniform(size=n)
    expected = ref.enumerate_values(
        ref.distances(data.x, data.x_val),
        ref.matches(data.y, data.y_val),
        ref.knn_utility(2),
        p,
    )
    omega = ref.size_rank_weights(n, 2, p)
    for rank_weights in (omega, lambda n, k: ref.size_rank_weights(n, k, p)):
        values = jaxsel.knn_semivalue(
            *data.classes(), k=2, rank_weights=rank_weights, reduce=None
        ).values
        np.testing.assert_allclose(values, expected, **TOLERANCE)


@pytest.mark.parametrize("ties", ["stable", "average"])
def test_larger_sets_against_the_recursion(ties):
    n, k = 150, 7
    data = cases.grid(n, n_val=20, size=12)
    distance, gains = ref.distances(data.x, data.x_val), ref.matches(data.y, data.y_val)
    for name, measure in (
        ("knn_shapley", ref.uniform(n)),
        ("knn_banzhaf", ref.point_mass(0.5)),
        ("knn_loo", ref.point_mass(1.0)),
        ("knn_beta_shapley", ref.jacobi(n, 16, 1)),
    ):
        values = cases.BY_NAME[name].call(data, k, ties=ties, reduce=None).values
        omega = ref.rank_weights(n, k, measure)
        expected = ref.sorted_values(distance, gains, omega, ties)
        np.testing.assert_allclose(values, expected, **TOLERANCE)


def test_larger_sets_beyond_semivalues():
    n, k = 200, 7
    data = cases.grid(n, n_val=10, size=12)
    distance, gains = ref.distances(data.x, data.x_val), ref.matches(data.y, data.y_val)
    expected = {
        "soft_knn_shapley": ref.soft_values(distance, gains, k, data.n_classes),
        "threshold_knn_shapley": ref.threshold_values(
            distance, gains, cases.RADIUS["l2"], data.n_classes
        ),
        "knn_regression_shapley": ref.regression_values(
            distance, data.t, data.t_val, k
        ),
    }
    for name, rows in expected.items():
        values = cases.BY_NAME[name].call(data, k, reduce=None).values
        np.testing.assert_allclose(values, rows, **TOLERANCE)
