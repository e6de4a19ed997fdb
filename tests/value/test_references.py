"""The references agree with each other: the formulas with the enumeration."""

import numpy as np
import pytest
import references as ref

SIZES = range(1, 9)


def random_points(n, n_val=6, seed=0):
    rng = np.random.default_rng([seed, n])
    distance = rng.permuted(np.tile(np.arange(n, dtype=float), (n_val, 1)), axis=1)
    return distance, rng.normal(size=(n_val, n)), rng


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("weights", "measure"),
    [
        (ref.shapley_weights, ref.uniform),
        (ref.banzhaf_weights, lambda n: ref.point_mass(0.5)),
        (ref.loo_weights, lambda n: ref.point_mass(1.0)),
        (
            lambda n: ref.beta_weights(n, 16, 1),
            lambda n: ref.jacobi(n, 16, 1),
        ),
        (
            lambda n: ref.beta_weights(n, 2.5, 4),
            lambda n: ref.jacobi(n, 2.5, 4),
        ),
    ],
    ids=["shapley", "banzhaf", "loo", "beta16-1", "beta2.5-4"],
)
def test_semivalue_recursion(n, weights, measure):
    distance, gains, _ = random_points(n)
    p = weights(n)
    for k in range(1, n + 4):
        by_definition = ref.enumerate_values(distance, gains, ref.knn_utility(k), p)
        for omega in (
            ref.rank_weights(n, k, measure(n)),
            ref.size_rank_weights(n, k, p),
        ):
            fast = ref.sorted_values(distance, gains, omega)
            np.testing.assert_allclose(fast, by_definition, atol=1e-13)


@pytest.mark.parametrize("n", SIZES)
def test_soft_threshold_regression(n):
    distance, gains, rng = random_points(n)
    p = ref.shapley_weights(n)
    for k in range(1, n + 4):
        utility = ref.soft_utility(k, 3)
        np.testing.assert_allclose(
            ref.soft_values(distance, gains, k, 3),
            ref.enumerate_values(distance, gains, utility, p),
            atol=1e-13,
        )
        targets, t_val = rng.normal(size=n), rng.normal(size=len(gains))
        np.testing.assert_allclose(
            ref.regression_values(distance, targets, t_val, k),
            ref.enumerate_values(
                distance,
                np.tile(targets, (len(gains), 1)),
                ref.regression_utility(k, t_val),
                p,
            ),
            atol=1e-13,
        )
    for radius in range(-1, n + 1):
        utility = ref.threshold_utility(distance, radius, 3)
        np.testing.assert_allclose(
            ref.threshold_values(distance, gains, radius, 3),
            ref.enumerate_values(distance, gains, utility, p),
            atol=1e-13,
        )


@pytest.mark.parametrize("n", range(1, 7))
def test_tie_average(n):
    rng = np.random.default_rng(n)
    distance = np.round(rng.uniform(0, 2, size=(8, n)))
    distance[0] = 1
    gains = rng.normal(size=(8, n))
    p = ref.banzhaf_weights(n)
    for k in range(1, n + 2):
        omega = ref.rank_weights(n, k, ref.point_mass(0.5))
        np.testing.assert_allclose(
            ref.sorted_values(distance, gains, omega, ties="average"),
            ref.enumerate_values(
                distance, gains, ref.knn_utility(k), p, ties="average"
            ),
            atol=1e-13,
        )


@pytest.mark.parametrize("k", [1, 5, 40, 300])
def test_shapley_rank_weights(k):
    omega = ref.rank_weights(200, k, ref.uniform(200))
    np.testing.assert_allclose(omega, 1 / np.maximum(np.arange(200) + 1, k), rtol=1e-10)
