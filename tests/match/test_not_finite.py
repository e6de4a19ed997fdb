"""Gradients that are no numbers, or too long: one rule for whatever chooses."""

import re

import jax
import jax.numpy as jnp
import match_cases as cases
import numpy as np
import pytest
from match_cases import K, N, P

from jaxsel import gradients, match, retrieve
from jaxsel.match import _omp

pytestmark = pytest.mark.every(3)

KEY = jax.random.key(0)
CHOICES = {
    "omp": lambda a, b, k: match.omp(a, b, k),
    "nomp": lambda a, b, k: match.omp(a, b, k, score="nomp"),
    "ols": lambda a, b, k: match.omp(a, b, k, score="ols", positive=False),
    "grad_match": lambda a, b, k: match.grad_match(a, b[None], k),
    "func_feat": lambda a, b, k: match.func_feat(
        a, b[None], cases.normal(N, 3), cases.normal(1, 3), k
    ),
    "herding": lambda a, b, k: match.herding(a, b, k),
    "log_det": lambda a, b, k: match.log_det(a, k),
    "lazy": lambda a, b, k: match.facility_location(a, k),
    "stochastic": lambda a, b, k: match.facility_location(
        a, k, search="stochastic", key=KEY, epsilon=1e-9
    ),
    "influence": lambda a, b, k: match.influence_topk(a, b, k),
    "cosine": lambda a, b, k: match.influence_topk(a, b, k, normalise=True),
}
each_choice = pytest.mark.parametrize("name", CHOICES)
BAD = [0, 7, 25]


def spoilt(value):
    """Return candidates of which some have one entry of a value, and a target."""
    a, b = cases.pool()
    a[BAD, [0, 3, 19]] = value
    return a, jnp.asarray(b)


def streamed(a):
    return gradients.streamed(lambda i: gradients.Dense(a[i]), len(a), chunk_size=16)


# Those whose loops are other ones where candidates are read from files.
STREAMED = ["omp", "herding", "log_det", "influence"]


@pytest.mark.parametrize(
    ("name", "oracle"),
    [(name, gradients.Dense) for name in CHOICES]
    + [pytest.param(name, streamed, marks=pytest.mark.slow) for name in STREAMED],
)
@pytest.mark.every(15)
def test_candidates_with_nan_are_as_if_they_were_not_there(name, oracle):
    a, b = spoilt(np.nan)
    found = CHOICES[name](oracle(jnp.asarray(a)), b, K)
    fine = np.setdiff1d(np.arange(N), BAD)
    if name == "func_feat":
        expected = match.func_feat(
            a[fine], b[None], cases.normal(N, 3)[fine], cases.normal(1, 3), K
        )
    elif name == "stochastic":  # of all candidates, as the lazy search
        expected = match.facility_location(a[fine], K)
    else:
        expected = CHOICES[name](a[fine], b, K)
    assert int(found.n_valid) == int(expected.n_valid) > 0
    np.testing.assert_array_equal(
        found.indices[: len(found)], fine[np.asarray(expected.indices)[: len(found)]]
    )
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-4, atol=1e-6)


@each_choice
@pytest.mark.left_out
def test_fewer_than_the_budget_and_none(name):
    a, b = spoilt(0.0)
    few = np.arange(5, 9)
    a[np.setdiff1d(np.arange(N), few)] = np.nan
    found = CHOICES[name](gradients.Dense(jnp.asarray(a)), b, K)
    rank = int(found.n_valid)
    assert 0 < rank <= 4
    assert found.indices.shape == found.weights.shape == (rank,)
    assert np.isin(found, few).all()
    assert len(set(found)) == rank
    if name in ("herding", "lazy", "stochastic"):
        np.testing.assert_allclose(
            np.sum(found.weights), 1 if name == "herding" else 4, rtol=1e-6
        )
    none = CHOICES[name](gradients.Dense(jnp.full((N, P), jnp.nan)), b, K)
    assert len(none) == len(none.indices) == len(none.weights) == 0


@each_choice
def test_candidates_too_long_for_the_type_are_refused(name):
    a, b = cases.pool()
    a[5:] *= np.float32(1e37 if name == "influence" else 1e20)  # which squares nothing
    with pytest.raises(ValueError, match=r"candidates must.*float32.*candidate \d"):
        CHOICES[name](gradients.Dense(jnp.asarray(a)), jnp.asarray(b) * 100, K)


@each_choice
def test_infinite_entries_are_refused_or_passed_over(name):
    a, b = spoilt(np.inf)
    try:
        found = CHOICES[name](gradients.Dense(jnp.asarray(a)), b, K)
    except ValueError as error:
        found, message = None, str(error)
    if found is None:
        assert "candidate 0" in message
    else:
        assert not np.isin(np.asarray(found.indices)[: len(found)], BAD).any()


@each_choice
def test_arrays_with_either_are_refused_by_row(name):
    for value in (np.nan, np.inf, -np.inf):
        a, b = spoilt(value)
        with pytest.raises(ValueError, match=r"candidates must be finite.*row 0\b"):
            CHOICES[name](a, b, K)


@pytest.mark.parametrize(
    "name", sorted(set(CHOICES) - {"log_det", "lazy", "stochastic"})
)
@pytest.mark.parametrize("factor", [1e20, 1e-25])
def test_targets_whose_square_is_out_of_range_are_refused(name, factor):
    a, b = cases.pool()
    a, scaled = jnp.asarray(a) * factor, jnp.asarray(b) * factor
    length = re.escape(f"{np.linalg.norm(np.asarray(scaled, np.float64)):.3g}")
    with pytest.raises(ValueError, match=rf"target must.*float32.*{length}.*float64"):
        CHOICES[name](gradients.Dense(a), scaled, K)


def test_each_of_several_targets_must_be_in_range():
    a, b = cases.pool()
    with pytest.raises(ValueError, match=r"target must.*it has length \d.*e-25"):
        match.omp(a, np.stack([b, b * np.float32(1e-25)]), K)


@pytest.mark.slow
def test_float64_is_a_remedy():
    a, b = cases.pool()
    found = cases.run(a * 1e20, b * 1e20, wide=True, l2=0.5e40)
    np.testing.assert_array_equal(found.indices, cases.run(a, b, wide=True).indices)


def test_candidates_that_may_not_be_chosen_may_be_too_long():
    a, b = cases.pool()
    few = np.arange(N) > 3
    expected = match.omp(a, b, K, valid=few)
    a[:4] *= np.float32(1e25)
    cases.same(match.omp(a, b, K, valid=few), expected)


@pytest.mark.left_out
def test_no_gain_is_no_reason_to_choose_nan():
    copies = np.ones((N, P), np.float32)
    copies[0] = np.nan
    found = match.facility_location(gradients.Dense(jnp.asarray(copies)), K)
    assert np.asarray(found.indices).tolist() == list(range(1, K + 1))


def test_the_kernel_says_so(monkeypatch):
    a, b = cases.pool()
    monkeypatch.setattr(_omp, "check_products", lambda *_: None)
    found = match.omp(gradients.Dense(jnp.asarray(a) * 1e20), b, K)
    assert int(found.n_valid) == 0
    assert "overflow" in found.reasons


@pytest.mark.left_out
def test_the_kernel_says_so_of_a_long_target():
    a, b = cases.pool()
    run = jax.jit(lambda a, b: match.pursue(gradients.Dense(a), b, budget=K))
    found = run(jnp.asarray(a), jnp.asarray(b * 1e20))
    assert int(found.n_valid) == 0
    assert "overflow" in found.reasons


def test_the_bound_is_that_of_candidates_without_nan():
    a, _ = spoilt(np.nan)
    fine = np.setdiff1d(np.arange(N), BAD)
    whole = match.submodularity(gradients.Dense(jnp.asarray(a)), K)
    assert whole == match.submodularity(a[fine], K)


def test_influence_is_nan_where_a_gradient_is():
    a, b = spoilt(np.nan)
    for normalise in (False, True):
        scores = match.influence_scores(
            gradients.Dense(jnp.asarray(a)), b, normalise=normalise
        )
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(scores)), BAD)


# What chooses by features.


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.left_out
def test_features_that_are_not_finite_are_refused_by_row(value):
    x, _ = spoilt(value)
    hard = cases.normal(3, P)
    for choose in (
        lambda x: retrieve.retrieve_nearest(x, hard, K),
        lambda x: retrieve.nearest(x, hard, K),
        lambda x: retrieve.pseudo_labels(x, hard, np.arange(3)),
        lambda x: match.func_feat(cases.normal(N, 4), cases.normal(3, 4), x, hard, K),
    ):
        with pytest.raises(ValueError, match=r"features must be finite.*row 0\b"):
            choose(x)


def test_in_tables_nan_is_a_missing_value():
    x, _ = spoilt(np.nan)
    hard = cases.normal(3, P)
    found = retrieve.retrieve_binned(x, hard, N, bins=4)
    assert sorted(np.asarray(found.indices).tolist()) == list(range(N))
    with_gaps = np.asarray(retrieve.binning_distance(x, hard, bins=4))
    hard[0, 0] = np.nan  # as row 0 has it
    assert retrieve.binning_distance(x, hard, bins=4)[0] <= with_gaps[0]
    with pytest.raises(ValueError, match=r"finite"):
        retrieve.binning_distance(spoilt(np.inf)[0], hard, bins=4)


@pytest.mark.left_out
def test_coverage_takes_no_candidate_at_no_distance():
    near = jnp.array([[0.1, 0.2, jnp.nan], [0.3, jnp.nan, jnp.inf]])
    chosen, n_valid = retrieve.coverage(near, jnp.array([[4, 2, 9], [3, 8, 7]]), 5)
    assert int(n_valid) == 3
    np.testing.assert_array_equal(chosen, [4, 3, 2, 0, 0])
