"""Pools and targets at the edge: nothing is chosen twice, and nothing is NaN."""

import jax.numpy as jnp
import match_cases as cases
import numpy as np
import pytest
import references_matching as ref
from match_cases import K, N, P

from jaxsel import gradients, match

pytestmark = pytest.mark.every(3)

each_ridge = pytest.mark.parametrize("l2", [0.0, 0.5])


@cases.each_score
@cases.each_sign
@each_ridge
@pytest.mark.every(12)
def test_duplicates(score, positive, l2):
    a, b = cases.pool(5, 8)
    once = cases.embed(a, b)
    twice = cases.embed(np.concatenate([a, a, a[:3]]), b)
    found = cases.run(*twice, score=score, positive=positive, l2=l2)
    cases.check_form(found, K, N)
    cases.check_objective(found, *twice, np.full(N, l2))
    single = cases.run(*once, score=score, positive=positive, l2=l2)
    if l2 == 0:
        # Copies bring nothing.
        np.testing.assert_allclose(found.error, single.error, atol=2e-5)
        assert int(found.n_valid) <= 5
    else:
        # Two halves of a weight cost less than the whole.
        assert float(found.error) < float(single.error)


@cases.each_score
@cases.each_sign
@pytest.mark.left_out
def test_a_pool_of_one_candidate_many_times(score, positive):
    a = np.tile(cases.normal(1, P), (N, 1))
    found = cases.run(a, 2 * a[0], score=score, positive=positive, l2=0.0)
    cases.check_form(found, K, N)
    assert int(found.n_valid) == int(found.steps) == 1
    assert int(found.indices[0]) == 0
    np.testing.assert_allclose(found.weights[0], 2.0, rtol=1e-5)


@cases.each_score
@cases.each_sign
@each_ridge
def test_zero_gradients_are_never_chosen(score, positive, l2):
    a, b = cases.pool()
    a[(np.arange(N) % 5) > 0] = 0
    found = cases.run(a, b, score=score, positive=positive, l2=l2)
    cases.check_form(found, K, N)
    assert 0 < int(found.steps) <= 8
    assert not np.any(np.asarray(found.indices)[: int(found.n_valid)] % 5)


@cases.each_score
@cases.each_sign
@each_ridge
def test_nothing_but_zero_gradients(score, positive, l2):
    zeros, b = np.zeros((N, P)), np.ones(P)
    found = cases.run(zeros, b, score=score, positive=positive, l2=l2)
    cases.check_form(found, K, N)
    assert int(found.n_valid) == int(found.steps) == 0
    assert int(found.status) == 2
    np.testing.assert_allclose(found.error, 1)


@cases.each_score
@cases.each_sign
@each_ridge
def test_a_target_of_zero(score, positive, l2):
    a, _ = cases.pool()
    found = cases.run(a, np.zeros(P), score=score, positive=positive, l2=l2)
    cases.check_form(found, K, N)
    assert int(found.n_valid) == int(found.steps) == 0
    assert float(found.error) == 0
    assert isinstance(found.reasons, str)


@cases.each_sign
@pytest.mark.parametrize("budget", [6, 50])
@pytest.mark.left_out
def test_a_budget_of_all_and_more(positive, budget):
    a, b = cases.pool(6, 10)
    found = cases.run(a, b, budget, positive=positive)
    cases.check_form(found, budget, 6)
    best = ref.refit(a, b, 0.5, positive=positive)
    np.testing.assert_allclose(ref.spread(found, 6), best, atol=1e-4)
    assert positive or int(found.n_valid) == 6


@cases.each_score
@cases.each_sign
@each_ridge
def test_rank_deficient_pools(score, positive, l2):
    a, b = cases.low_rank(rank=5)
    found = cases.run(a, b, score=score, positive=positive, l2=l2)
    cases.check_form(found, K, N)
    cases.check_objective(found, a, b, np.full(N, l2))
    if l2 == 0:
        # Independent candidates carry the sum.
        assert int(found.n_valid) <= 5
        if not positive:
            best = ref.refit(a, b, 0.0, positive=False)
            least = ref.objective(a, b, best, np.zeros(N)) / (b @ b)
            np.testing.assert_allclose(found.error, least, atol=1e-4)


def test_dependent_candidates_count_when_weights_must_be_positive():
    """In a plane a third is needed once the first has gone back to zero."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        a, b = rng.normal(size=(K, 2)), rng.normal(size=2)
        problem = cases.embed(a, b)
        found = cases.run(*problem, l2=0.0, wide=True)
        best = ref.refit(*problem, 0.0, positive=True)
        least = ref.objective(*problem, best, np.zeros(N))
        np.testing.assert_allclose(cases.last(found), least, atol=1e-9 * (b @ b))


@pytest.mark.left_out
def test_one_candidate_and_one_dimension():
    np.testing.assert_allclose(cases.run([[2.0]], [3.0], 1, l2=0.0).weights, [1.5])
    assert int(cases.run([[-2.0]], [3.0], 1, l2=0.0).n_valid) == 0


@cases.each_score
@pytest.mark.parametrize("exponent", [-25, 25])
def test_scale_does_not_matter(score, exponent):
    # A power of two, so that rounding is the same; the ridge scales with its square.
    # The fourth power of a length must fit in float32.
    factor = np.float32(2.0**exponent)
    a, b = cases.pool()
    one = cases.run(a, b, l2=0.5, score=score)
    other = cases.run(a * factor, b * factor, l2=0.5 * float(factor) ** 2, score=score)
    np.testing.assert_array_equal(one.indices, other.indices)
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-4)


def test_a_target_much_shorter_than_the_candidates():
    a, b = cases.pool()
    one, other = cases.run(a, b), cases.run(a, b * np.float32(2.0**-20))
    np.testing.assert_array_equal(one.indices, other.indices)
    np.testing.assert_allclose(one.weights * 2.0**-20, other.weights, rtol=1e-4)


def read_from_files(a):
    return gradients.streamed(lambda i: gradients.Dense(a[i]), len(a), chunk_size=2)


@pytest.mark.left_out
def test_files_are_read_until_the_error_is_small():
    a, b = cases.pool()
    for tol in (1e-6, 0.5):
        whole = match.omp(a, b, 4, tol=tol)
        read = match.omp(read_from_files(a), b, 4, tol=tol)
        assert int(read.status) == int(whole.status)
        np.testing.assert_array_equal(read.indices, whole.indices)
    assert ["budget", "tolerance", "exhausted"][int(whole.status)] == "tolerance"


@pytest.mark.left_out
def test_one_candidate_in_a_file():
    a = np.ones((1, 3), np.float32)

    def load(rows):
        assert list(rows) == [0]
        return gradients.dense(a)

    found = match.omp(gradients.streamed(load, 1), 2 * a[0], 1, l2=0.0)
    np.testing.assert_allclose(found.weights, [2.0], rtol=1e-5)


def of_a_loss(a):
    return gradients.jvp(lambda w, x: x @ w, jnp.ones(a.shape[1], a.dtype), a)


@pytest.mark.parametrize(
    "kind",
    [
        gradients.Dense,
        pytest.param(read_from_files, marks=pytest.mark.slow),
        of_a_loss,
    ],
)
@pytest.mark.left_out
def test_gradients_in_half_precision(kind):
    oracle = kind(jnp.eye(3, dtype=jnp.bfloat16))
    found = match.omp(oracle, jnp.array([1, 0.5, 0.25], jnp.bfloat16), 3)
    assert found.weights.dtype == np.float32
    np.testing.assert_array_equal(found.indices, [0, 1, 2])
    np.testing.assert_allclose(found.weights, [2 / 3, 1 / 3, 1 / 6], rtol=1e-5)


# Which candidates may be chosen.


@cases.each_score
@cases.each_sign
def test_masked_candidates_are_as_if_zero(score, positive):
    a, b = cases.pool()
    valid = np.random.default_rng(0).random(N) < 0.5
    found = cases.run(a, b, score=score, positive=positive, valid=valid)
    cases.check_form(found, K, N)
    assert valid[np.asarray(found.indices)[: int(found.n_valid)]].all()
    alone = cases.run(a * valid[:, None], b, score=score, positive=positive)
    cases.same(found, alone)


def test_no_candidate_may_be_chosen():
    found = cases.run(*cases.pool(), valid=np.zeros(N, bool))
    cases.check_form(found, K, N)
    assert int(found.n_valid) == 0
    assert int(found.status) == 2


# Several targets in one call.


@pytest.mark.parametrize(("score", "positive"), [("omp", True), ("ols", False)])
@pytest.mark.left_out
def test_several_targets_are_a_loop(score, positive):
    a, first = cases.pool()
    others = [cases.pool(seed=seed)[1] for seed in (1, 2)]
    targets = np.stack([first, *others, np.zeros_like(first), -first])
    together = cases.run(a, targets, score=score, positive=positive)
    assert together.indices.shape == together.objective.shape == (5, K)
    assert together.error.shape == together.n_valid.shape == (5,)
    assert isinstance(together.reasons, list)
    for t, target in enumerate(targets):
        alone = cases.run(a, target, score=score, positive=positive)
        cases.same(together[t], alone)
        assert together.reasons[t] == alone.reasons
        np.testing.assert_allclose(together.error[t], alone.error, atol=1e-5)


@pytest.mark.slow
def test_one_target_in_a_stack_of_one():
    a, b = cases.pool()
    stacked = cases.run(a, b[None])
    assert stacked.indices.shape == (1, K)
    alone = cases.run(a, b)
    cases.same(stacked[0], alone)
    assert alone[0] == int(alone.indices[0])
    with pytest.raises(IndexError, match=r"target must lie in \[-1, 1\), got 1"):
        stacked[1]
    for one in stacked:  # and it ends
        cases.same(one, alone)
