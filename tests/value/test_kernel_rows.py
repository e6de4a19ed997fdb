"""Rows of the compiled semivalues: gains as booleans, and near ties of each row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references as ref

from jaxsel import value
from jaxsel.neighbors._distance import repaired
from jaxsel.value._semivalue import semivalue_tied

TOLERANCE = {"rtol": 0, "atol": 2e-6}


@pytest.mark.parametrize("kernel", [value.semivalue, semivalue_tied])
@pytest.mark.parametrize("n", [1, 2, 17, 1500])
def test_gains_of_0_and_1(kernel, n):
    """Gains that are read as booleans are worth the same, settled or not."""
    rng = np.random.default_rng(n)
    points = rng.normal(size=(n, 4)).astype(np.float32) + 100
    queries = rng.normal(size=(5, 4)).astype(np.float32) + 100
    norms = jnp.sum(points**2, axis=1)
    near, exact, axes = repaired(
        *(points, queries),
        metric="l2",
        norms=norms,
        points=points,
        asked=queries,
        for_order=True,
    )
    gains = (rng.random((5, n)) < 0.5).astype(np.float32)
    table = value.rank_table(value.shapley_weights(n, 2))

    def values(binary):
        def of_row(distance, gain, exact):
            return kernel(distance, gain, table, exact=exact, binary=binary)

        return jax.vmap(of_row, in_axes=(0, 0, axes))(near, gains, exact)

    assert np.any(np.asarray(values(False))) == np.any(gains)
    np.testing.assert_array_equal(values(True), values(False))


def test_near_ties_with_weights_of_each_row():
    """What is settled depends on the drops of the row, not on those of the first."""
    rng, n = np.random.default_rng(0), 400
    points = rng.normal(size=(n, 3)).astype(np.float32)
    points[1::2] = points[::2] + np.float32(1e-7) * rng.normal(size=(n // 2, 3))
    queries = rng.normal(size=(3, 3)).astype(np.float32)
    gains = rng.normal(size=(3, n)).astype(np.float32)
    near, exact, axes = repaired(
        *(points, queries),
        metric="l2",
        norms=jnp.sum(points**2, axis=1),
        points=points,
        asked=queries,
        for_order=True,
    )
    omega = np.stack([np.ones(n), value.shapley_weights(n, 5), np.arange(n, 0, -1.0)])
    tables = jax.tree.map(lambda *rows: jnp.stack(rows), *map(value.rank_table, omega))

    def of_row(distance, gain, table, exact):
        return value.semivalue(distance, gain, table, exact=exact)

    values = jax.vmap(of_row, in_axes=(0, 0, 0, axes))(near, gains, tables, exact)
    wide = points.astype(np.float64)
    distances = ((wide - queries[:, None].astype(np.float64)) ** 2).sum(-1)
    for row in range(3):
        scale = np.abs(omega[row]).max()
        expected = ref.sorted_values(distances[row][None], gains[row][None], omega[row])
        np.testing.assert_allclose(
            values[row] / scale, expected[0] / scale, **TOLERANCE
        )
