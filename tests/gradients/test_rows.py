"""Rows of examples: what belongs to a device stays its own."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from jaxsel.gradients._rows import vary


def test_derivatives_of_marked_arrays_are_not_summed_over_devices():
    devices = np.array(jax.devices()[:4]).reshape(2, 2)
    mesh = jax.sharding.Mesh(devices, ("rows", "columns"))
    x = np.arange(8.0, dtype=np.float32).reshape(2, 4)

    def own(w, x):
        with_all, as_it_is = vary((w, x), x)
        loss = lambda w, x: (w * x).sum()
        by_w, by_x = jax.grad(loss, argnums=(0, 1))(with_all, as_it_is)
        return by_w[None, None], by_x

    both = P("rows", "columns")
    found, by_x = jax.jit(
        jax.shard_map(own, mesh=mesh, in_specs=(P(), both), out_specs=(both, both))
    )(jnp.float32(3), x)
    np.testing.assert_array_equal(found, x.reshape(2, 2, 2).sum(2))
    np.testing.assert_array_equal(by_x, np.full((2, 4), 3.0))


def test_nothing_is_marked_on_one_device():
    tree = {"w": jnp.ones(3)}
    assert vary(tree, jnp.ones(2)) is tree
