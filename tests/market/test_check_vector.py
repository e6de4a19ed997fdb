"""The test of claimed means: how often it alarms, and what it catches."""

import jax
import numpy as np
import pytest

from jaxsel import market

RUNS = 200


def rates(draw, claim=None, samples=199, runs=RUNS):
    """Return p-values of claims on samples that `draw` makes, of mean 0."""
    p = []
    for seed in range(runs):
        rows = draw(np.random.default_rng(seed))
        wrong = np.zeros(rows.shape[1:]) if claim is None else claim
        key = jax.random.key(seed)
        p.append(market.check_vector(wrong, rows, key=key, samples=samples))
    return np.array(p)


def symmetric(kind, m, d):
    scales = np.geomspace(1, 30, d)
    mixing = np.random.default_rng(9).normal(size=(d, d)) / d**0.5
    if kind == "normal":
        return lambda rng: rng.normal(size=(m, d)) @ mixing
    if kind == "scales":
        return lambda rng: rng.normal(size=(m, d)) * scales
    return lambda rng: rng.standard_t(2, size=(m, d)) @ mixing


@pytest.mark.parametrize("kind", ["normal", "scales", "heavy"])
@pytest.mark.parametrize(("m", "d"), [(20, 5), (50, 80)])
@pytest.mark.every(3)
def test_alarms_are_as_rare_as_is_said(kind, m, d):
    """At 5 and 10 %, up to three binomial standard errors."""
    p = rates(symmetric(kind, m, d))
    for level in (0.05, 0.1):
        bound = level + 3 * (level * (1 - level) / RUNS) ** 0.5
        assert np.mean(p <= level) <= bound
    # The correction for three statistics is not so large that nothing is left.
    assert np.mean(p <= 0.1) >= 0.02
    assert (p > 0).all()


def test_skewed_rows_alarm_hardly_more():
    p = rates(lambda rng: rng.exponential(size=(50, 40)) - 1)
    assert 0.01 <= np.mean(p <= 0.05) <= 0.12


def of_logistic(rng, m):
    """Draw gradients of five classes, `[m, 5, 16]`, whose mean isn't zero."""
    x = np.maximum(rng.normal(size=(m, 16)), 0)
    y = rng.choice(5, size=m, p=[0.5, 0.2, 0.1, 0.1, 0.1])
    error = 0.2 - np.eye(5)[y]
    return error[:, :, None] * x[:, None]


def test_gradients_of_a_classifier():
    mean = of_logistic(np.random.default_rng(1), 200_000).mean(axis=0)
    p = rates(lambda rng: of_logistic(rng, 60), mean)
    assert 0.01 <= np.mean(p <= 0.05) <= 0.09


def lies():
    mean = of_logistic(np.random.default_rng(1), 200_000).mean(axis=0)
    one = mean.copy()
    one[2, 3] += 0.3
    foreign = np.roll(mean, 1, axis=0)
    return {
        "scaled up": 2 * mean,
        "scaled down": 0.4 * mean,
        "foreign": foreign,
        "one entry": one,
        "zero": np.zeros_like(mean),
    }


@pytest.mark.parametrize("lie", lies())
def test_lies_are_caught(lie):
    p = rates(lambda rng: of_logistic(rng, 100), lies()[lie], runs=30)
    assert np.mean(p <= 0.05) >= 0.9


def test_float32_loses_nothing_at_an_offset():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(60, 8))
    claim = rows.mean(axis=0) + 0.8
    key = jax.random.key(0)
    plain = market.check_vector(claim, rows, key=key)
    assert plain <= 0.01
    assert market.check_vector(claim * 1e-30, rows * 1e-30, key=key) == plain
    honest = market.check_vector(rows.mean(axis=0) + 1e6, rows + 1e6, key=key)
    assert honest > 0.5
    with jax.enable_x64(True):
        assert market.check_vector(claim, rows, key=key) == plain


def test_ends():
    """Rows that all equal the claim, or that all lie beside it; the least p-value."""
    rows, key = np.ones((30, 4)), jax.random.key(0)
    assert market.check_vector(np.ones(4), rows, key=key) == 1
    assert market.check_vector(np.zeros(4), rows, key=key, samples=999) == 3 / 1000
    assert market.check_vector(np.full(4, 1.1), rows, key=key, samples=59) == 3 / 60


BAD = [
    ({"vector": np.ones(2)}, r"rows must have shape \(m, 2\), .* got \(30, 3\)"),
    ({"rows": np.ones(3)}, r"rows must have shape \(m, 3\)"),
    ({"vector": np.ones(0), "rows": np.ones((30, 0))}, "vector must not be empty"),
    ({"rows": np.ones((19, 3))}, "rows must be 20 or more, got 19"),
    ({"vector": [1.0, np.nan, 0.0]}, "vector must be finite"),
    ({"rows": np.full((30, 3), np.inf)}, "rows must be finite"),
    ({"samples": 0}, "samples must be at least 1"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
def test_bad_input_is_refused(changed, message):
    good = {"vector": np.zeros(3), "rows": np.ones((30, 3)), "key": jax.random.key(0)}
    with pytest.raises(ValueError, match=message):
        market.check_vector(**(good | changed))
