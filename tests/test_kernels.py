"""Every public pure kernel inside jit and vmap, and lowered to TPU and CUDA."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from kernels import KERNELS

BATCH = 3
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)


def batch(kernel):
    """Return the arguments of a few different calls, and of all of them at once."""
    calls = [kernel.arguments(np.random.default_rng(i)) for i in range(BATCH)]
    return calls, jax.tree.map(lambda *leaves: jnp.stack(leaves), *calls)


@each_kernel
def test_jit_of_vmap(kernel):
    calls, stacked = batch(kernel)
    together = jax.jit(jax.vmap(kernel.function))(*stacked)
    for i, arguments in enumerate(calls):
        alone = kernel.function(*arguments)  # NumPy arrays will do
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b[i], rtol=1e-5, atol=1e-6)


@each_kernel
@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_lowers_to_accelerators(kernel, platform):
    _, stacked = batch(kernel)
    function = jax.jit(jax.vmap(kernel.function))
    lowered = export.export(function, platforms=[platform])(*stacked)
    assert lowered.platforms == (platform,)
    # What is compiled for this machine's CPU must not be called from there.
    called = re.findall(r"custom_call @(\w+)", lowered.mlir_module())
    assert not [target for target in called if target.startswith("jaxsel")]
