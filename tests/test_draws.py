"""Draws of rows by weight: every row can be drawn, in proportion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel._runs.draws import drawer

KEY = jax.random.key(5)


def test_few_rows_are_drawn_as_by_the_inverse_of_their_sums():
    weights = np.array([0, 2, 0, 1, 3, 0], np.float32)
    found = np.asarray(drawer(jnp.asarray(weights))(KEY, 6000))
    draws = jax.random.uniform(KEY, (6000,)) * weights.sum()
    np.testing.assert_array_equal(
        found, np.searchsorted(np.cumsum(weights), draws, side="right")
    )


@pytest.mark.parametrize("n", [2**16 + 1, 100_003])
@pytest.mark.left_out
def test_many_rows_are_drawn_in_proportion(n):
    rng = np.random.default_rng(n)
    weights = rng.integers(0, 4, n).astype(np.float32)
    weights[: n // 10] = 0
    found = np.asarray(
        jax.jit(drawer(jnp.asarray(weights)), static_argnums=1)(KEY, 40_000)
    )
    assert (weights[found] > 0).all()
    assert (found >= 0).all()
    assert (found < n).all()
    cells = found * 50 // n
    expected = 40_000 * np.bincount(np.arange(n) * 50 // n, weights) / weights.sum()
    seen, expected = np.bincount(cells, minlength=50)[5:], expected[5:]
    assert ((seen - expected) ** 2 / expected).sum() < 85  # 45 cells: mean 44, sd 9
    heavy = np.mean(weights[found] == 3)
    assert heavy == pytest.approx((weights == 3).sum() * 3 / weights.sum(), abs=0.01)


@pytest.mark.slow
def test_rows_beyond_float32s_whole_numbers_can_be_drawn():
    n = 20_000_000
    found = np.asarray(drawer(jnp.ones(n))(KEY, 20_000))
    # A float32 sum of ones ends at 2^24, and a uniform has 2^23 values.
    assert (found >= 2**24).mean() == pytest.approx(1 - 2**24 / n, abs=0.02)
    assert (found % 2).mean() == pytest.approx(0.5, abs=0.02)
    assert len(np.unique(found)) > 19_900
