"""Noise of whole numbers, and the epsilon of sums with it."""

import itertools
import math
import sys

import numpy as np
import pytest
from scipy import stats

from jaxsel.market._private import _privacy
from jaxsel.market._private._privacy import (
    discrete_gaussian,
    noise_variance,
    privacy_epsilon,
)


def pmf(variance, reach=None):
    """Return the discrete Gaussian's probabilities by its definition, float64."""
    reach = 40 * math.isqrt(variance) + 40 if reach is None else reach
    z = np.arange(-reach, reach + 1)
    weight = np.exp(-(z.astype(float) ** 2) / (2 * variance))
    return z, weight / weight.sum()


@pytest.mark.parametrize("variance", [1, 2, 7, 100, 50_000])
def test_noise_has_the_distribution_asked_for(variance):
    n = 4000
    drawn = discrete_gaussian(variance, n)
    assert drawn.dtype == np.int64
    assert drawn.shape == (n,)
    z, p = pmf(variance)
    true = p @ z.astype(float) ** 2
    # Five standard errors: one run of a million fails.
    assert abs(drawn.mean()) < 5 * math.sqrt(true / n)
    assert abs(np.mean(drawn**2.0) - true) < 5 * true * math.sqrt(2 / n) * 1.1
    edges = np.unique(np.searchsorted(np.cumsum(p), np.linspace(0.1, 0.9, 9)))
    bins = np.searchsorted(z[edges], drawn, "left")
    chances = np.diff(np.concatenate([[0], np.cumsum(p)[edges], [1]]))
    counted = np.bincount(bins, minlength=len(chances))
    assert stats.chisquare(counted, n * chances).pvalue > 1e-7


@pytest.mark.parametrize("top", [0, 1, 3, 4, 5, 11])
def test_exponential_coins(top):
    n = 4000
    mean = np.mean([_privacy._bernoulli_exp(top, 4) for _ in range(n)])
    p = math.exp(-top / 4)
    assert abs(mean - p) <= 5 * math.sqrt(p * (1 - p) / n)


def test_the_source_is_the_systems(monkeypatch):
    def never(*args):
        raise AssertionError("drawn from NumPy")

    monkeypatch.setattr(np.random, "default_rng", never)
    calls = itertools.count()
    real = _privacy.secrets.randbelow

    def counted(n):
        next(calls)
        return real(n)

    monkeypatch.setattr(_privacy.secrets, "randbelow", counted)
    discrete_gaussian(5, 10)
    assert next(calls) > 10


@pytest.mark.parametrize(("variance", "honest"), [(1, 2), (1, 4), (2, 3), (1, 9)])
def test_sums_of_noise_are_as_near_as_is_said(variance, honest):
    """By convolution of the distributions themselves."""
    reach = 60
    _, one = pmf(variance, reach)
    total = np.array([1.0])
    for _ in range(honest):
        total = np.convolve(total, one)
    middle = len(total) // 2
    wide = 4 * math.isqrt(honest * variance) + 4
    part = total[middle - wide : middle + wide + 1]
    _, expected = pmf(honest * variance, reach * honest)
    expected = expected[len(expected) // 2 - wide : len(expected) // 2 + wide + 1]
    ratio = np.abs(np.log(part / expected)).max()
    bound = _privacy._sum_distance(variance, honest)
    assert ratio <= bound + 1e-12
    assert bound < 1e-2


def gaussian_delta(epsilon, ratio):
    """Balle and Wang, 2018: the delta of the Gaussian mechanism, in closed form."""
    near = stats.norm.cdf(ratio / 2 - epsilon / ratio)
    return near - math.exp(epsilon) * stats.norm.cdf(-ratio / 2 - epsilon / ratio)


@pytest.mark.parametrize("honest", [1, 6])
@pytest.mark.parametrize("n_val", [1, 50, 1000])
def test_epsilon_is_that_of_the_closed_form(n_val, honest):
    pytest.importorskip("dp_accounting")
    for ratio in (0.05, 0.3, 1.0):  # sensitivity, sqrt(n_val), over deviation
        variance = max(20, round(n_val / ratio**2 / honest))
        actual = math.sqrt(n_val / variance / honest)
        found = privacy_epsilon(variance, n_val, delta=1e-5, honest=honest)
        low, high = found * (1 - 2e-3), found * (1 + 2e-3)
        if n_val == 1 and actual > 0.2:  # a single count is coarse
            low, high = found * 0.9, found * 1.1
        assert gaussian_delta(low, actual) >= 1e-5 >= gaussian_delta(high, actual)


def test_epsilon_of_a_single_count_by_definition():
    """The hockey stick of two shifted distributions, summed up."""
    pytest.importorskip("dp_accounting")
    variance, delta = 9, 1e-4
    found = privacy_epsilon(variance, 1, delta=delta, honest=1)
    z, p = pmf(variance)
    q = np.concatenate([[0], p[:-1]])
    exact = lambda epsilon: np.maximum(p - math.exp(epsilon) * q, 0).sum()
    assert exact(found) <= delta * (1 + 1e-6)
    assert exact(found * 0.99) > delta


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(("n_val", "honest"), [(1, 1), (30, 2), (1000, 6)])
def test_variance_suffices_and_hardly_more(epsilon, n_val, honest):
    pytest.importorskip("dp_accounting")
    common = {"delta": 1e-6, "honest": honest}
    variance = noise_variance(epsilon, n_val, **common)
    assert privacy_epsilon(variance, n_val, **common) <= epsilon
    less = variance * 99 // 100
    if less and n_val > 1:
        assert privacy_epsilon(less, n_val, **common) > epsilon


def test_refused():
    pytest.importorskip("dp_accounting")
    for wrong in ({"delta": 0.0}, {"delta": 1.0}, {"honest": 0}):
        options = {"delta": 1e-6, "honest": 2} | wrong
        with pytest.raises(ValueError, match=next(iter(wrong))):
            privacy_epsilon(10, 5, **options)
        with pytest.raises(ValueError, match=next(iter(wrong))):
            noise_variance(1.0, 5, **options)
    with pytest.raises(ValueError, match="variance must be at most"):
        privacy_epsilon(10**12, 5, delta=1e-6, honest=2)
    for epsilon in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="epsilon"):
            noise_variance(epsilon, 5, delta=1e-6, honest=2)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.delitem(
        sys.modules, "dp_accounting.pld.privacy_loss_distribution", raising=False
    )
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxsel\[private\]'"):
        privacy_epsilon(10, 5, delta=1e-6, honest=2)
