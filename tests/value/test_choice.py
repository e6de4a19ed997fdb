"""Which estimator a number of trainings calls for, and that it is called as such."""

import jax
import numpy as np
import pytest

from jaxsel import value

KEY = jax.random.key(3)


def game_of(n):
    worth = np.linspace(0.1, 1, n)
    return value.as_utility(lambda masks, key: 1 - np.exp(-(masks @ worth)), n)


def estimate(n, trainings, **options):
    return value.estimate_semivalue(game_of(n), trainings, key=KEY, **options)


@pytest.mark.parametrize(
    ("n", "trainings", "kind", "name"),
    [
        (6, 64, "shapley", "exact_semivalue"),
        (6, 63, "shapley", "tmc_shapley"),
        (12, 96, "shapley", "adjusted_semivalue"),
        (12, 95, "shapley", "tmc_shapley"),
        (12, 95, "banzhaf", "banzhaf"),
        (12, 95, "beta", "beta_shapley"),
        (12, 4096, "beta", "exact_semivalue"),
        (40, 160, "banzhaf", "adjusted_semivalue"),
        (40, 159, "banzhaf", "banzhaf"),
        (128, 512, "shapley", "adjusted_semivalue"),
        (129, 2000, "shapley", "tmc_shapley"),
    ],
)
@pytest.mark.every(4)
def test_which(n, trainings, kind, name):
    found = estimate(n, trainings, kind=kind)
    assert found.method.startswith(name)
    assert found.values.shape == (n,)


def identical(a, b):
    for one, two in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(one, two)
    assert a.method == b.method


def test_it_is_what_the_estimator_returns():
    game, n = game_of(12), 12
    beta = {"kind": "beta", "alpha": 4, "beta": 2}
    calls = [
        ({"method": "exact"} | beta, value.exact_semivalue, None, beta),
        ({}, value.adjusted_semivalue, 60, {}),
        (beta, value.adjusted_semivalue, 120, beta),
        ({"method": "plain"}, value.tmc_shapley, 120 // (n - 1), {}),
        ({"method": "plain", "kind": "banzhaf"}, value.banzhaf, 120, {}),
        (
            {"method": "plain"} | beta,
            value.beta_shapley,
            120 // (n - 1),
            {"alpha": 4, "beta": 2},
        ),
    ]
    for options, estimator, samples, own in calls:
        stop = {} if samples is None else {"stop": value.MaxSamples(samples)}
        expected = estimator(game, key=KEY, **own, **stop)
        identical(value.estimate_semivalue(game, 120, key=KEY, **options), expected)


def test_owners_are_the_players():
    """Twelve points of three owners: eight coalitions are all there are."""
    owners = np.array(["a", "b", "c"]).repeat(4)
    found = estimate(12, 8, owners=owners)
    assert found.method.startswith("exact_semivalue")
    assert list(found.index) == ["a", "b", "c"]


def test_a_training_or_two_are_enough_for_a_sample():
    assert int(estimate(12, 1, method="adjusted").count.max()) == 1
    assert int(estimate(12, 1).count.max()) == 1


def test_refusals(tmp_path):
    def refused(match, n=5, trainings=9, **options):
        with pytest.raises(ValueError, match=match):
            estimate(n, trainings, **options)

    refused("trainings must be at least 1, got 0", trainings=0)
    refused("method must be one of 'auto', 'exact', .* got 'best'", method="best")
    refused("kind must be one of", kind="loo")
    refused("must be left out with method='exact'", method="exact", checkpoint=tmp_path)
    refused("at most 20 points", n=21, method="exact")
