"""The target's subspace against the singular value decomposition of gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel.gradients import target_subspace


def products(rows):
    rows = np.asarray(rows, np.float64)
    return jnp.asarray(rows @ rows.T, jnp.result_type(float))


@pytest.mark.parametrize(("m", "p"), [(6, 40), (40, 6), (5, 5)])
@pytest.mark.parametrize("rank", [1, 3, 100])
def test_coordinates_are_those_of_the_singular_vectors(m, p, rank):
    rng = np.random.default_rng(m + p)
    rows, others = rng.normal(size=(m, p)), rng.normal(size=(9, p))
    _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
    with jax.enable_x64(True):
        basis, shares = target_subspace(products(rows), rank)
    r = min(rank, m)
    assert basis.shape == (m, r)
    kept = directions[:rank]
    result = others @ rows.T @ np.asarray(basis)[:, : len(kept)]
    # Singular vectors have no sign.
    signs = np.sign(np.sum(result * (others @ kept.T), axis=0))
    np.testing.assert_allclose(result * signs, others @ kept.T, atol=1e-8)
    expected = (sizes**2 / np.sum(sizes**2))[:rank]
    np.testing.assert_allclose(shares[: len(expected)], expected, atol=1e-12)
    # Directions beyond the rank of the gradients.
    assert not np.any(shares[len(expected) :])
    assert not np.any(np.asarray(basis)[:, len(expected) :])


def test_two_orthogonal_gradients():
    basis, shares = target_subspace(products([[3.0, 0.0], [0.0, 4.0]]), 2)
    np.testing.assert_allclose(np.abs(basis), [[0, 1 / 3], [1 / 4, 0]], atol=1e-7)
    np.testing.assert_allclose(shares, [16 / 25, 9 / 25], rtol=1e-6)


def test_copies_and_zeros_have_one_direction():
    basis, shares = target_subspace(products([[1.0, 1.0]] * 3 + [[0.0, 0.0]]), 4)
    np.testing.assert_allclose(shares, [1, 0, 0, 0], atol=1e-6)
    assert not np.any(np.asarray(basis)[:, 1:])
    np.testing.assert_allclose(np.abs(basis[:, 0]), [18**-0.5] * 3 + [0], atol=1e-6)


def test_no_gradient_has_no_direction():
    basis, shares = target_subspace(jnp.zeros((3, 3)), 2)
    assert not np.any(basis)
    assert not np.any(shares)


def test_float32_is_near_float64():
    rows = np.random.default_rng(0).normal(size=(30, 500))
    basis, shares = target_subspace(jnp.asarray(products(rows), jnp.float32), 30)
    with jax.enable_x64(True):
        wide, wide_shares = target_subspace(products(rows), 30)
    np.testing.assert_allclose(shares, wide_shares, rtol=1e-4)
    # Inner products of coordinates don't depend on signs of directions.
    narrow, wide = np.asarray(basis), np.asarray(wide)
    np.testing.assert_allclose(narrow @ narrow.T, wide @ wide.T, rtol=1e-3, atol=1e-5)


def test_scales_of_gradients_change_no_share():
    rows = np.random.default_rng(1).normal(size=(8, 20))
    _, shares = target_subspace(products(rows), 8)
    _, tiny = target_subspace(products(1e-6 * rows), 8)
    np.testing.assert_allclose(tiny, shares, rtol=1e-4)
