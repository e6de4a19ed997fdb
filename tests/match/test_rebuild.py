"""Rebuilding the refit where rounding has made its matrix singular."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel.match import _refit


def test_what_cannot_be_rebuilt_stays():
    """Two basic atoms are the same: their matrix has no inverse."""
    gram = jnp.array([[1.0, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 2]])
    state = _refit.empty(3, jnp.float32)._replace(
        gram=gram,
        target=jnp.array([1.0, 1, 1]),
        tableau=jnp.diag(jnp.array([0.5, 0.5, 1])),
        values=jnp.array([0.5, 0.5, 0]),
        basic=jnp.array([True, True, False]),
    )
    kept = _refit.rebuild(state)
    np.testing.assert_array_equal(kept.tableau, state.tableau)
    assert np.isfinite(kept.values).all()


def test_float32_stays_float32_in_x64_mode():
    with jax.enable_x64(True):
        state = _refit.empty(3, jnp.float32)._replace(
            gram=2 * jnp.eye(3, dtype=jnp.float32), basic=jnp.array([True, True, False])
        )
        fresh = _refit.rebuild(state)
    assert fresh.tableau.dtype == fresh.values.dtype == np.float32
    np.testing.assert_allclose(fresh.tableau, np.diag([0.5, 0.5, 2]))
