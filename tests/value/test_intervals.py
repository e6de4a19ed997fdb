"""Intervals of 1.96 standard errors hold exact values, in games that are hard."""

import jax
import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.intervals import ESTIMATORS, GAMES, PASSES, measure, of_passes
from jaxsel import value
from jaxsel._results.types import Values
from jaxsel.value._estimator import honest_m2, moments, no_samples
from jaxsel.value._strata import Strata

from .games import Game, enumerate_values, honest_stderr

KEY = jax.random.key(2)
HARD = "majority", "saturating", "unanimity", "rare pivots"
QUICK = "tmc_shapley, 64", "beta_shapley(16, 1), 256", "banzhaf, 100"
# .90 less two binomial standard errors of 20 runs of 12 points; equal keys, so that
# what holds once holds always.
LEAST = 0.90 - 2 * np.sqrt(0.9 * 0.1 / 240)


def check(row):
    assert min(row.coverage.values()) > LEAST, row.coverage
    assert row.mean > 0.9


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.every(3)
def test_rare_and_equal_samples(name):
    check(measure(ESTIMATORS[name], 20, HARD))


@pytest.mark.left_out
def test_sizes_that_are_rare():
    check(measure(ESTIMATORS["adjusted beta(16, 1), 120"], 10, HARD[:3]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_all_games(name):
    row = measure(ESTIMATORS[name], 20)
    assert min(row.coverage.values()) > LEAST - 0.03, row.coverage
    assert 0.9 < row.mean < 0.995


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSES)
def test_bags_and_passes(name):
    row = of_passes(PASSES[name], 40)
    assert min(row.coverage.values()) > LEAST, row.coverage


def test_every_size_that_counts_has_its_own_samples():
    """A size that a group shares with others was in no sample in most runs."""
    for kind in (("shapley",), ("banzhaf",), ("beta", 4.0, 1.0), ("beta", 16.0, 1.0)):
        strata = Strata(12, *kind)
        group, _ = strata.order(3 * len(strata.groups))
        assert np.bincount(group, minlength=len(strata.groups)).min() >= 2
        inside, outside = strata.weights
        size = np.arange(13)
        scale = np.sqrt(size * inside**2 + (12 - size) * outside**2) * strata.factor
        for one in strata.groups:
            if len(one.sizes) > 1:
                # The last group has the first size that is too small for one.
                assert scale[one.sizes[1:]].sum() < 2e-3 * scale[1:12].sum()
        # Whatever the count, the order is the same.
        whole = strata.order(200)
        for count in (1, 5, 17, 90):
            for part, full in zip(strata.order(count), whole, strict=True):
                np.testing.assert_array_equal(part, full[:count])


@pytest.mark.parametrize("estimate", [value.tmc_shapley, value.beta_shapley])
def test_points_that_were_never_pivotal(estimate):
    """Three veto players, and nine of whom each is pivotal once in 1,980 orders."""
    table = GAMES["rare pivots"]()
    game = Game(12, table=table)
    found = estimate(game, key=KEY, stop=value.MaxSamples(64))
    kind = "shapley" if estimate is value.tmc_shapley else "beta"
    exact = enumerate_values(game, kind, 16.0, 1.0)
    never = np.asarray(found.values) == 0
    assert never.sum() >= 5
    stderr = np.asarray(found.stderr)
    assert (stderr[never] > 0).all()
    held = np.abs(found.values - exact) <= 1.96 * stderr
    assert held[never].all()
    if kind == "shapley":  # 1.5 / count of a utility between 0 and 1
        np.testing.assert_allclose(stderr[never], 1.5 / np.sqrt(64 * 63), rtol=1e-5)


@pytest.mark.left_out
def test_nothing_but_equal_samples():
    """Unanimity of twelve: no coalition of 64 is worth anything."""
    table = np.zeros(2**12)
    table[-1] = 1.0
    game = Game(12, table=table)
    for kind in ("shapley", "banzhaf", "beta"):
        exact = enumerate_values(game, kind, 16.0, 1.0)
        more = {"kind": kind, "key": KEY, "stop": value.MaxSamples(64)}
        found = value.adjusted_semivalue(game, **more)
        assert (np.abs(found.values - exact) <= 1.96 * found.stderr + 1e-7).all()
    found = value.banzhaf(game, key=KEY, stop=value.MaxSamples(64))
    assert (np.asarray(found.values) == 0).all()
    assert (1.96 * found.stderr >= 0.5**11).all()
    assert (np.asarray(found.stderr) < 0.1).all()


def test_standard_errors_of_many_samples_are_the_usual_ones():
    rows = np.random.default_rng(0).normal(size=(300, 5))
    rows[:, 1] = np.arange(300) < 2  # twice pivotal
    rows[:, 2] = 0.25  # always the same
    rows[:, 3] = rows[:, 2] + 1e-9 * rows[:, 3]  # up to rounding
    state = dict(zip(no_samples(5), moments(rows), strict=True))
    stderr = np.sqrt(honest_m2(state, 0.0) / (300 * 299))
    usual = rows.std(0, ddof=1) / np.sqrt(300)
    np.testing.assert_allclose(stderr[[0, 4]], usual[[0, 4]], rtol=1e-12)
    np.testing.assert_allclose(stderr, honest_stderr(rows), rtol=1e-12)
    assert 1.25 < stderr[1] / usual[1] < 1.3  # 7/8 + 3/4 of the variance
    reach = rows.max() - rows.min()
    np.testing.assert_allclose(stderr[2:4], 1.5 * reach / np.sqrt(300 * 299))
    one = dict(zip(no_samples(5), moments(rows[:1]), strict=True))
    assert (honest_m2(one, 1.0) == 0).all()  # and so NaN
    assert (honest_m2(no_samples(5), 1.0) == 0).all()


@pytest.mark.parametrize("count", [10, 64, 100, 400])
def test_intervals_of_any_share_cover_it(count):
    """All outcomes of `count` samples of 0 or 1, weighted by their probabilities."""
    hits = np.arange(count + 1.0)
    mean = hits / count
    state = {
        **{"count": count, "mean": mean, "m2": hits * (1 - mean)},
        **{"low": (hits == count) * 1.0, "high": (hits > 0) * 1.0},
    }
    stderr = np.sqrt(honest_m2(state, 1.0) / (count * (count - 1)))
    share = np.linspace(0.004, 0.996, 497)[:, None]
    held = np.abs(mean - share) <= 1.96 * stderr
    coverage = (binom.pmf(hits, count, share) * held).sum(-1)
    assert coverage.min() >= 0.9


def test_merged_runs_stay_honest():
    game = Game(12, table=GAMES["rare pivots"]())
    runs = [
        value.tmc_shapley(game, key=jax.random.key(s), stop=value.MaxSamples(64))
        for s in range(4)
    ]
    merged = runs[0].merge(*runs[1:])
    exact = enumerate_values(game, "shapley")
    assert isinstance(merged, Values)
    assert (np.abs(merged.values - exact) <= 1.96 * merged.stderr).all()
    assert (merged.stderr <= runs[0].stderr * 1.5).all()
