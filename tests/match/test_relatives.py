"""Herding, log-determinant, facility location and influence, against references."""

import jax
import match_cases as cases
import numpy as np
import pytest
import references_matching as ref
from match_cases import K, N, P

from jaxsel import gradients, match

pytestmark = pytest.mark.every(2)

CHOICES = {
    "herding": lambda a, b, k: match.herding(a, b, k),
    "log_det": lambda a, b, k: match.log_det(a, k),
    "facility": lambda a, b, k: match.facility_location(a, k),
    "influence": lambda a, b, k: match.influence_topk(a, b, k),
}
each_choice = pytest.mark.parametrize("name", CHOICES)


def streamed(a):
    return gradients.streamed(lambda i: gradients.dense(a[i]), len(a), chunk_size=16)


@each_choice
@pytest.mark.left_out
def test_form_and_streams_and_second_calls(name):
    a, b = cases.pool()
    choose = CHOICES[name]
    found = choose(a, b, K)
    assert found.indices.shape == found.weights.shape == (K,)
    assert found.indices.dtype == np.int32
    assert int(found.n_valid) == K
    assert len(set(np.asarray(found.indices).tolist())) == K
    assert np.all(np.asarray(found.weights) > 0)
    assert found.method
    read = choose(streamed(a), b, K)
    np.testing.assert_array_equal(read.indices, found.indices)
    np.testing.assert_allclose(read.weights, found.weights, rtol=1e-6)
    with jax.no_tracing(True):
        again = choose(a[::-1].copy(), b, K)
    np.testing.assert_array_equal(again.indices, N - 1 - np.asarray(found.indices))


@pytest.mark.every(4)
@each_choice
def test_budgets_of_all_and_more(name):
    a, b = cases.pool(6, 10)
    found = CHOICES[name](a, b, 9)
    assert int(found.n_valid) == 6
    valid = np.asarray(found.indices)[: int(found.n_valid)]
    assert sorted(valid.tolist()) == list(range(6))


@each_choice
@pytest.mark.parametrize("budget", [0, 1.5])
def test_budgets_are_checked(name, budget):
    with pytest.raises((TypeError, ValueError), match=r"budget must be"):
        CHOICES[name](*cases.pool(6, 10), budget)


@each_choice
def test_candidates_are_checked(name):
    a, b = cases.pool(6, 10)
    a[3] = np.nan
    with pytest.raises(ValueError, match=r"candidates must be finite.*row 3\b"):
        CHOICES[name](a, b, 2)


def test_herding():
    for seed in range(5):
        a, b = cases.pool(seed=seed)
        found = match.herding(a, b, K)
        assert np.asarray(found.indices).tolist() == ref.herding(a, b, K)
        np.testing.assert_allclose(found.weights, 1 / K)


def test_herding_of_the_candidates_own_mean_follows_it():
    a = cases.normal(N, P)
    mean = a.mean(axis=0)
    found = match.herding(a, mean, 20)
    followed = np.linalg.norm(a[np.asarray(found.indices)].mean(axis=0) - mean)
    rng = np.random.default_rng(0)
    random = [
        np.linalg.norm(a[rng.permutation(N)[:20]].mean(axis=0) - mean)
        for _ in range(100)
    ]
    assert followed < min(random)


@pytest.mark.left_out
def test_herding_reads_a_file_once_a_choice():
    a, b = cases.pool()
    read = []

    def load(rows):
        read.append(len(rows))
        return gradients.dense(a[rows])

    match.herding(gradients.streamed(load, N, chunk_size=N), b, K)
    assert read.count(N) == K  # one for the target; the last column is not needed


@pytest.mark.parametrize("l2", [1e-3, 0.5])
def test_log_det(l2):
    for seed in range(5):
        a, _ = cases.pool(seed=seed)
        found = match.log_det(a, K, l2=l2)
        assert np.asarray(found.indices).tolist() == ref.log_det(a, K, l2)
        np.testing.assert_array_equal(found.weights, np.ones(K))


def test_log_det_stops_at_the_rank():
    a, _ = cases.low_rank(rank=5)
    a = np.concatenate([a[: N - 1], np.zeros((1, P), np.float32)])
    with pytest.warns(UserWarning, match=r"chose 5 of 10.*span"):
        found = match.log_det(a, K, l2=0.0)
    assert int(found.n_valid) == np.linalg.matrix_rank(a) == 5
    chosen = np.asarray(found.indices)
    assert np.linalg.matrix_rank(a[chosen[:5]]) == 5
    assert not chosen[5:].any()
    assert not np.asarray(found.weights)[5:].any()


def test_log_det_stops_at_the_rank_in_spite_of_rounding():
    for seed in (31, 32, 35, 50, 53):
        a = cases.normal(N, 5, seed=seed) @ cases.normal(5, P, seed=seed)
        with pytest.warns(UserWarning, match=r"chose 5 of 10.*span"):
            assert int(match.log_det(a, K, l2=0.0).n_valid) == 5


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.left_out
def test_facility_location(squared):
    for seed in range(3):
        a, _ = cases.pool(seed=seed)
        found = match.facility_location(a, K, squared=squared)
        medoids, sizes = ref.facility_location(a, K, squared=squared)
        assert np.asarray(found.indices).tolist() == medoids
        np.testing.assert_array_equal(found.weights, sizes)


def test_facility_location_finds_the_clusters():
    centres = 100 * np.eye(4)
    which = np.repeat(np.arange(4), [20, 10, 6, 4])
    a = (centres[which] + cases.normal(N, 4)).astype(np.float32)
    found = match.facility_location(a, 4)
    chosen = which[np.asarray(found.indices)]
    assert sorted(chosen) == [0, 1, 2, 3]
    np.testing.assert_array_equal(found.weights, np.array([20, 10, 6, 4])[chosen])


def test_facility_location_of_short_gradients():
    a, _ = cases.pool()
    found = match.facility_location(a, K, squared=True)
    short = match.facility_location(a * np.float32(2.0**-25), K, squared=True)
    np.testing.assert_array_equal(short.indices, found.indices)


@pytest.mark.left_out
def test_facility_location_of_zeros():
    found = match.facility_location(np.zeros((6, P)), 3)
    np.testing.assert_array_equal(found.indices, [0, 1, 2])
    np.testing.assert_array_equal(found.weights, [4, 1, 1])


def test_facility_location_of_copies():
    a = np.tile(cases.normal(4, P), (10, 1))
    found = match.facility_location(a, 8)
    assert len(set(np.asarray(found.indices).tolist())) == 8
    assert sorted(np.asarray(found.indices[:4]) % 4) == [0, 1, 2, 3]
    assert float(np.sum(found.weights)) == N


def test_stochastic_greedy():
    a, _ = cases.pool()
    choose = lambda seed, epsilon: match.facility_location(
        a, K, search="stochastic", key=jax.random.key(seed), epsilon=epsilon
    )
    one, same, other = choose(0, 0.5), choose(0, 0.5), choose(1, 0.5)
    np.testing.assert_array_equal(one.indices, same.indices)
    assert np.any(np.asarray(one.indices) != np.asarray(other.indices))
    assert float(np.sum(one.weights)) == N
    # So many samples that each step sees all candidates: the greedy choice.
    everyone = choose(0, 1e-9)
    assert np.asarray(everyone.indices).tolist() == ref.facility_location(a, K)[0]
    with pytest.raises(ValueError, match=r"\bkey\b.*None"):
        match.facility_location(a, K, search="stochastic")
    with pytest.raises(TypeError, match=r"\bkey\b.*jax\.random\.key.*got 0"):
        match.facility_location(a, K, search="stochastic", key=0)
    for epsilon in (0.0, 1.0, 2.0):
        with pytest.raises(ValueError, match=rf"epsilon must be.*{epsilon}"):
            choose(0, epsilon)


@pytest.mark.parametrize("normalise", [False, True])
def test_influence(normalise):
    pools, targets = zip(*[cases.pool(seed=seed) for seed in range(3)], strict=True)
    pools[1][4] = 0  # an example that one checkpoint has learnt
    rates = [0.1, 0.05, 0.02]
    expected = ref.influence(pools, targets, rates, normalise=normalise)
    scores = match.influence_scores(
        pools, targets, learning_rates=rates, normalise=normalise
    )
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    found = match.influence_topk(
        pools, targets, K, learning_rates=rates, normalise=normalise
    )
    assert np.asarray(found.indices).tolist() == np.argsort(-expected)[:K].tolist()


def test_influence_of_one_checkpoint_and_of_nothing():
    a, b = cases.pool()
    np.testing.assert_allclose(
        match.influence_scores(a, b), a @ b, rtol=1e-4, atol=1e-5
    )
    for normalise in (False, True):
        nothing = match.influence_scores(a, np.zeros(P), normalise=normalise)
        np.testing.assert_array_equal(nothing, np.zeros(N))


def test_influence_on_the_target_that_is_served_most():
    a, b = cases.pool()
    other = cases.pool(seed=1)[1]
    scores = match.influence_scores(a, np.stack([b, other]))
    np.testing.assert_allclose(
        scores, np.maximum(a @ b, a @ other), rtol=1e-4, atol=1e-5
    )


def test_ties_of_influence_go_to_the_lowest_index():
    a = np.tile(cases.normal(1, P), (N, 1))
    found = match.influence_topk(a, a[0], K)
    np.testing.assert_array_equal(found.indices, np.arange(K))


@pytest.mark.parametrize("rates", [[0.1], [0.1, np.nan]])
def test_rates_are_checked(rates):
    pools, targets = zip(*[cases.pool(seed=seed) for seed in range(2)], strict=True)
    with pytest.raises(ValueError, match=r"\blearning_rates\b.*(1$|nan)"):
        match.influence_scores(pools, targets, learning_rates=rates)
    with pytest.raises(TypeError, match=r"learning_rates must be a sequence.*got 0\.1"):
        match.influence_scores(pools, targets, learning_rates=0.1)
