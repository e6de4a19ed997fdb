"""Float32 arrays and their products, as the learners take them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import as_type


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the product of two matrices, in all digits of their type."""
    if a.ndim == b.ndim == 2:
        # Without the type that `matmul` asks for: `vmap` of a compiled program would
        # ask for float64 where it is no longer enabled.
        return jax.lax.dot(a, b, precision="highest")
    return jnp.matmul(a, b, precision="highest")


def to_single(array: npt.ArrayLike | jax.Array) -> jax.Array:
    """Return a JAX array of float32."""
    if not isinstance(array, jax.Array):
        array = as_type(array, np.float32)
    return jnp.asarray(array, jnp.float32)
