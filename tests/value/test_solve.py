"""Systems of normal equations, many at once, against NumPy in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel.value._learners._solve import UNROLLED, eliminate, pairs, solve_packed


@pytest.mark.parametrize("size", [1, 2, 11, UNROLLED, UNROLLED + 1])
@pytest.mark.parametrize("sides", [None, 1, 3])
@pytest.mark.every(4)
def test_solutions(size, sides):
    rng = np.random.default_rng(size)
    rows, columns = pairs(size)
    roots = rng.normal(size=(7, size, size))
    # Rows and columns of very different units, as of features that are not scaled.
    units = 10.0 ** rng.uniform(-2, 2, size)
    a = (roots @ roots.transpose(0, 2, 1) + np.eye(size)) * units * units[:, None]
    x = rng.normal(size=(sides or 1, size, 7)) / units[:, None]
    b = np.einsum("bij,kjb->kib", a, x)
    packed = a[:, rows, columns].T
    b, x = (b, x) if sides else (b[0], x[0])
    solved = solve_packed(packed.astype(np.float32), b.astype(np.float32))
    assert solved.shape == b.shape
    np.testing.assert_allclose(solved * units[:, None], x * units[:, None], atol=2e-3)


@pytest.mark.parametrize("size", [2, 11, UNROLLED + 1])
def test_indefinite_systems_have_no_solution(size):
    """Beside a definite one: a step along another solution would go uphill."""
    rng = np.random.default_rng(size)
    rows, columns = pairs(size)
    definite = np.eye(size)
    turned = np.linalg.qr(rng.normal(size=(size, size)))[0]
    values = np.linspace(1, 2, size)
    values[0] = -1
    a = np.stack([definite, (turned * values) @ turned.T])
    right = np.ones((size, 2), np.float32)
    solved = solve_packed(a[:, rows, columns].T.astype(np.float32), right)
    np.testing.assert_allclose(solved[:, 0], 1, atol=1e-6)
    assert np.isnan(solved[:, 1]).all()


@pytest.mark.parametrize("size", [3, UNROLLED + 6])
def test_elimination(size):
    rng = np.random.default_rng(size)
    roots = rng.normal(size=(size, size, 5))
    a = np.einsum("ikb,jkb->ijb", roots, roots) + np.eye(size)[:, :, None]
    x = rng.normal(size=(size, 2, 5))
    matrix = np.concatenate([a, np.einsum("ijb,jkb->ikb", a, x)], axis=1)
    np.testing.assert_allclose(eliminate(jnp.asarray(matrix, "f4")), x, atol=2e-3)
