"""Designs without labels, against scipy's optimiser and plain NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from jaxsel import market
from jaxsel.market._design._frank_wolfe import frank_wolfe_design

pytestmark = pytest.mark.every(2)


def objective(x, x_val, weights):
    moment = x.T @ (weights[:, None] * x)
    return np.mean(np.sum(x_val @ np.linalg.pinv(moment) * x_val, axis=1))


def best(x, x_val, prices, rng):
    """Return the least objective that shares of one unit of money reach."""

    def of(logits):
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        return objective(x, x_val, shares / prices)

    starts = rng.normal(size=(4, len(x)))
    return min(minimize(of, start, options={"maxiter": 2000}).fun for start in starts)


@pytest.mark.parametrize(("n", "d", "m"), [(5, 1, 3), (12, 3, 6), (30, 5, 1)])
@pytest.mark.parametrize("priced", [False, True])
@pytest.mark.every(6)
def test_as_good_as_any_design(n, d, m, priced):
    rng = np.random.default_rng(n)
    x, x_val = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    prices = rng.uniform(0.2, 5, n) if priced else None
    design = market.optimal_design(x, x_val, prices=prices, steps=3000, tolerance=5e-3)
    each = np.ones(n) if prices is None else prices
    assert design.shares.sum() == pytest.approx(1, abs=1e-5)
    assert (design.shares >= 0).all()
    found = objective(x, x_val, design.shares / each)
    assert found == pytest.approx(design.objective[-1], rel=1e-3)
    least = best(x, x_val, each, rng)
    assert found <= least * (1 + 6e-3)
    # The bound holds, and is met.
    assert least >= design.objective[-1] * design.efficiency * (1 - 1e-3)
    assert design.efficiency >= 1 / (1 + 5e-3) - 1e-6


def plainly(x, x_val, steps):
    """Take each step by an inverse of its own, and the best of many lengths."""
    shares = np.full(len(x), 1 / len(x))
    objectives = [objective(x, x_val, shares)]
    for _ in range(steps):
        inverse = np.linalg.inv(x.T @ (shares[:, None] * x))
        j = np.argmax(np.mean((x @ inverse @ x_val.T) ** 2, axis=1))

        def along(alpha, j=j, shares=shares):
            return objective(
                x, x_val, (1 - alpha) * shares + alpha * (np.arange(len(x)) == j)
            )

        alpha = minimize_scalar(along, bounds=(0, 0.999), method="bounded").x
        shares = (1 - alpha) * shares
        shares[j] += alpha
        objectives.append(along(0, shares=shares))
    return shares, np.array(objectives)


@pytest.mark.parametrize(("n", "d", "m"), [(40, 4, 7), (60, 8, 1), (25, 2, 30)])
def test_steps_are_those_of_plain_frank_wolfe(n, d, m):
    rng = np.random.default_rng(1)
    x, x_val = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    shares, objectives = plainly(x, x_val, 30)
    design = market.optimal_design(x, x_val, steps=30, tolerance=0)
    np.testing.assert_allclose(design.objective, objectives, rtol=1e-4)
    np.testing.assert_allclose(design.shares, shares, atol=2e-4)


@pytest.mark.parametrize("seed", range(6))
def test_it_ends_by_gains_that_are_right(seed):
    rng = np.random.default_rng(seed)
    x, x_val = rng.normal(size=(20, 1)), rng.normal(size=(3, 1))
    design = market.optimal_design(x, x_val, tolerance=0.02)
    assert len(design.objective) < 20
    inverse = np.linalg.inv(x.T @ (design.shares[:, None] * x))
    gains = np.mean((x @ inverse @ x_val.T) ** 2, axis=1)
    np.testing.assert_allclose(design.gains, gains, rtol=1e-3)


@pytest.mark.parametrize("steps", [49, 50, 51, 130])
@pytest.mark.every(4)
def test_updates_agree_with_what_is_computed_anew(steps):
    rng = np.random.default_rng(2)
    x, x_val = rng.normal(size=(200, 6)), rng.normal(size=(9, 6))
    design = market.optimal_design(x, x_val, steps=steps, tolerance=0)
    inverse = np.linalg.inv(x.T @ (design.shares[:, None] * x))
    gains = np.mean((x @ inverse @ x_val.T) ** 2, axis=1)
    np.testing.assert_allclose(design.gains, gains, rtol=1e-3, atol=1e-4 * gains.max())
    assert len(design.objective) == steps + 1
    assert design.objective[-1] == pytest.approx(
        objective(x, x_val, design.shares), rel=1e-4
    )
    assert (np.diff(design.objective) <= 1e-5 * design.objective[0]).all()


@pytest.mark.left_out
def test_fewer_samples_than_features_and_points_beyond_them():
    rng = np.random.default_rng(3)
    x, x_val = rng.normal(size=(6, 20)), rng.normal(size=(50, 20))
    design = market.optimal_design(x, x_val, steps=500, tolerance=0.05)
    unit = np.sqrt(np.mean(x**2, axis=0))
    basis = np.linalg.qr((x / unit).T)[0]
    seen = x_val / unit @ basis @ basis.T
    share = np.sum(seen**2) / np.sum((x_val / unit) ** 2)
    assert design.reach == pytest.approx(share, rel=1e-6)
    seen = seen * unit
    assert design.objective[-1] == pytest.approx(
        objective(x, seen, design.shares), rel=1e-3
    )
    whole = market.optimal_design(rng.normal(size=(60, 20)), x_val, steps=5)
    assert whole.reach == pytest.approx(1)


def test_scales_of_features_change_nothing():
    rng = np.random.default_rng(4)
    x, x_val = rng.normal(size=(50, 3)), rng.normal(size=(8, 3))
    scale = np.array([1e4, 1, 1e-3])
    plain = market.optimal_design(x, x_val, steps=60)
    scaled = market.optimal_design(x * scale, x_val * scale, steps=60)
    np.testing.assert_allclose(scaled.shares, plain.shares, atol=1e-4)
    np.testing.assert_allclose(scaled.objective, plain.objective, rtol=1e-4)


def test_an_intercept_is_a_feature_that_is_one():
    rng = np.random.default_rng(5)
    x, x_val = rng.normal(size=(40, 3)) + 5, rng.normal(size=(8, 3)) + 5
    ones = np.ones((40, 1)), np.ones((8, 1))
    added = market.optimal_design(
        np.hstack([x, ones[0]]), np.hstack([x_val, ones[1]]), steps=30
    )
    found = market.optimal_design(x, x_val, steps=30, intercept=True)
    np.testing.assert_array_equal(found.shares, added.shares)


def test_copies_that_cost_more_are_never_taken():
    rng = np.random.default_rng(6)
    x, x_val = rng.normal(size=(30, 3)), rng.normal(size=(8, 3))
    design = market.optimal_design(
        np.vstack([x, x]), x_val, prices=np.repeat([2.0, 1.0], 30), steps=100
    )
    assert not design.taken[:30].any()


def test_a_purchase_is_the_heaviest_that_fits():
    rng = np.random.default_rng(7)
    x, x_val = rng.normal(size=(30, 3)), rng.normal(size=(8, 3))
    prices = rng.uniform(1, 9, 30)
    design = market.optimal_design(x, x_val, prices=prices, steps=20)
    bought = design.buy(25.0)
    weight = design.shares / prices
    order = sorted(
        range(30),
        key=lambda i: (
            not design.taken[i],
            -weight[i] if design.taken[i] else -design.gains[i],
        ),
    )
    left, wanted = 25.0, []
    for i in order:
        if prices[i] <= left:
            wanted.append(i)
            left -= prices[i]
    assert list(np.asarray(bought.indices)) == wanted
    assert prices[wanted].sum() <= 25
    everything = design.buy(1e9)
    assert sorted(np.asarray(everything.indices)) == list(range(30))
    with pytest.raises(ValueError, match="money must pay for the cheapest sample"):
        design.buy(prices.min() * 0.9)
    whole = market.optimal_design(x, x_val, prices=np.full(30, 2.0), steps=20)
    assert len(whole.buy(10.0)) == 5


def test_what_is_bought_predicts_better_than_what_is_drawn():
    rng = np.random.default_rng(8)
    scales = np.geomspace(3, 0.1, 10)
    theta = rng.normal(size=10)
    gains = []
    for _ in range(10):
        x, x_val = rng.normal(size=(500, 10)) * scales, rng.normal(size=(30, 10))
        y = x @ theta + rng.normal(size=500)

        def error(rows, x=x, x_val=x_val, y=y):
            fit = np.linalg.lstsq(x[rows], y[rows], rcond=None)[0]
            return np.mean((x_val @ (fit - theta)) ** 2)

        bought = np.asarray(market.optimal_design(x, x_val).buy(40).indices)
        drawn = np.mean([error(rng.permutation(500)[:40]) for _ in range(20)])
        gains.append(drawn / error(bought))
    assert np.median(gains) > 1.5


@pytest.mark.left_out
def test_the_kernel_stops_at_the_tolerance():
    rng = np.random.default_rng(9)
    x = jnp.asarray(rng.normal(size=(50, 3)), jnp.float32)
    found = frank_wolfe_design(x, jnp.eye(3), jnp.float32(0.2), steps=400)
    made = int(found.steps)
    assert 0 < made < 400
    now = np.asarray(found.objective)
    assert found.gains.max() <= 1.2 * now[made]
    assert np.isnan(now[made + 1 :]).all()
    assert np.isfinite(now[: made + 1]).all()


GOOD = {"x": np.eye(3), "x_val": np.ones((2, 3))}
BAD = [
    ({"x": np.ones(3)}, r"x must have shape \[n, d\]"),
    ({"x": np.full((3, 3), np.nan)}, "x must be finite"),
    ({"x_val": np.ones((2, 4))}, "x_val must have as many features as x, 3, got 4"),
    ({"x_val": np.zeros((2, 3))}, "x must have something in common with x_val"),
    ({"x": np.eye(3)[:1], "x_val": np.eye(3)[1:]}, "x must have something in common"),
    ({"prices": [1.0, 2.0]}, r"prices must have shape \(3,\)"),
    ({"prices": [1.0, 0.0, 2.0]}, "that of sample 1 is 0"),
    ({"prices": [1.0, np.inf, 2.0]}, "prices must be finite"),
    ({"steps": 0}, "steps must be"),
    ({"tolerance": -1.0}, "tolerance must be"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
def test_bad_input_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        market.optimal_design(**(GOOD | changed))


@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 3), (2, 1), (2, 3)])
def test_tiny_offers(n, d):
    design = market.optimal_design(np.ones((n, d)), np.ones((1, d)))
    assert design.shares.sum() == pytest.approx(1, abs=1e-5)
    assert design.efficiency == pytest.approx(1, abs=1e-3)
    assert f"of {n} samples" in repr(design)
