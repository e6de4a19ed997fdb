import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel.attribute import _permutations


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("n", [1, 2, 500, 5000])
def test_permutations_are_those_of_jax(n, wide):
    """5,000 rows are shuffled twice: their random numbers may be equal."""
    with jax.enable_x64(wide):
        keys = jax.random.split(jax.random.key(7), 3)
        rows = jnp.arange(n) * 3
        right = jnp.stack([jax.random.permutation(key, rows) for key in keys])
        for orders in (
            jax.jit(_permutations.permutations)(keys, rows),
            _permutations._by_numbers(keys, rows),
            _permutations._by_pairs(keys, rows),
        ):
            assert orders.dtype == right.dtype
            np.testing.assert_array_equal(orders, right)


def test_orders_are_mapped_over():
    keys = jax.random.split(jax.random.key(1), (4, 3))
    rows = jnp.arange(4 * 50).reshape(4, 50)
    right = [_permutations.permutations(*pair) for pair in zip(keys, rows, strict=True)]
    both = jax.vmap(_permutations.permutations)(keys, rows)
    np.testing.assert_array_equal(both, right)


def test_other_random_number_generators():
    keys = jax.random.key(3, impl="rbg")[None]
    right = jax.random.permutation(keys[0], jnp.arange(50))
    orders = _permutations.permutations(keys, jnp.arange(50))
    np.testing.assert_array_equal(orders[0], right)


def test_equal_numbers_keep_their_order(monkeypatch):
    monkeypatch.setattr(
        jax.random, "bits", lambda key, shape, kind: jnp.zeros(shape, kind)
    )
    orders = _permutations._by_numbers(jax.random.key(0)[None], jnp.arange(9))
    np.testing.assert_array_equal(orders[0], np.arange(9))
