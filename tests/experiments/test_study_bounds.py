"""Theorems 3 and 4: values and bounds against definitions, by enumeration."""

import itertools
import math

import numpy as np
import pytest

from experiments._kit.judge import FAILS, HOLDS
from experiments.values import claims_bounds
from experiments.values.bounds import (
    SIZES,
    STABLE,
    constant_learner,
    private_cases,
    private_differences,
    stable_cases,
    stable_differences,
    vote_utility,
)
from experiments.values.claims_bounds import bound_findings, bound_table

N = 6


def largest_differences(utility):
    """Leave-one-out and Shapley values of N points by all subsets; max less min."""
    points = range(N)
    loo = [utility(points) - utility([j for j in points if j != i]) for i in points]
    shapley = []
    for i in points:
        others = [j for j in points if j != i]
        total = 0.0
        for k in range(N):
            for some in itertools.combinations(others, k):
                gain = utility([*some, i]) - utility(some)
                total += gain / math.comb(N - 1, k) / N
        shapley.append(total)
    return np.ptp(loo), np.ptp(shapley)


@pytest.mark.parametrize(("scale", "epsilon"), [(0.2, None), (None, 0.7)])
def test_a_private_vote_by_all_subsets(scale, epsilon):
    right = np.array([1, 1, 1, 1, 0, 0])

    def utility(some):
        n = len(some)
        if not n:
            return -0.3  # no difference depends on it
        noise = scale or 1 / (n * epsilon)
        return float(vote_utility(np.array(right[list(some)].sum()), n, noise))

    share = right.mean()
    loo, shapley, *limits = private_differences(N, share, scale=scale, epsilon=epsilon)
    np.testing.assert_allclose([loo, shapley], largest_differences(utility), rtol=1e-9)
    losses = np.exp([epsilon or 1 / (m * scale) for m in range(1, N)]) - 1
    np.testing.assert_allclose(limits, [losses[-1], losses.mean()])


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_vote_is_private(epsilon):
    """A changed label changes neither probability by more than exp(epsilon)."""
    votes, n = np.arange(10), 9
    right = 1 + vote_utility(votes, n, 1 / (n * epsilon))
    for chance in (right, 1 - right):
        ratio = chance[1:] / chance[:-1]
        assert np.all(np.abs(np.log(ratio)) <= epsilon + 1e-9)
    draws = np.random.default_rng(0).laplace(0, 1 / (n * epsilon), 200_000)
    np.testing.assert_allclose(right[6], np.mean(6 / n + draws > 0.5), atol=0.005)


@pytest.mark.parametrize("learner", STABLE)
def test_stable_learners_by_all_subsets(learner):
    z = np.array([1, -1, 1, -1, 1, -1])

    def model(points):
        if learner == "clipped":
            return float(np.clip(sum(points), -1, 1)) / (len(points) + 1)
        return sum(points) / max(len(points), 1)

    def utility(some):
        return -abs(model(z[list(some)]) - 1)

    loo, shapley, bound, wider = stable_differences(N, learner)
    np.testing.assert_allclose([loo, shapley], largest_differences(utility), rtol=1e-9)
    np.testing.assert_allclose(wider, bound * (1 + math.log(N - 1)))
    # No point of any set may matter more than C / m, to any validation point.
    constant = bound * (N - 1)
    for m in range(1 if learner == "clipped" else 2, 11):
        for ones in range(m + 1):
            points = [1] * ones + [-1] * (m - ones)
            for left_out in {points[0], points[-1]}:
                fewer = [*points]
                fewer.remove(left_out)
                change = abs(model(points) - model(fewer))
                assert change <= constant / m + 1e-12


def test_theorem_3_bounds_differences_but_no_values():
    for cases in private_cases().values():
        assert np.all(cases.loo <= cases.loo_bound)
        assert np.all(cases.shapley <= cases.shapley_bound)
        assert np.all(cases.loo > -1e-12)
        largest = cases.n == SIZES[-1]
        assert np.all(cases.loo[largest] < cases.shapley[largest])
    value, bound = constant_learner(4)
    assert value > bound == 0


def test_theorem_4_lacks_a_factor_of_two():
    cases = stable_cases()
    mean, clipped = (cases.loo / cases.loo_bound).reshape(2, -1)
    np.testing.assert_allclose(mean, 1)  # the bound is exact there
    np.testing.assert_allclose(clipped, 2 - 2 / np.array(SIZES))
    assert np.all(cases.shapley <= cases.shapley_bound)


def test_verdicts_on_bounds(monkeypatch):
    found = bound_findings()
    verdicts = [one.evidence for one in found]
    assert verdicts == [HOLDS, HOLDS, FAILS, HOLDS, FAILS, HOLDS]
    assert found[4].measured.startswith("7 of 14 cases are above it")
    assert len(bound_table().rows) == 3 * len(STABLE)
    worse = private_cases()
    worse["scale"].loo[3] = 9 * worse["scale"].loo_bound[3]
    monkeypatch.setattr(claims_bounds, "private_cases", lambda: worse)
    claims_bounds._every_private.cache_clear()
    try:
        first = bound_findings()[0]
    finally:
        claims_bounds._every_private.cache_clear()
    assert first.evidence == FAILS
    assert first.measured.startswith("1 of 140 cases are above it; the largest is 9.00")
