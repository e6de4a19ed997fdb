"""Every public pure kernel inside jit and vmap, and lowered to TPU and CUDA."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.extend.core import jaxprs_in_params
from kernels import KERNELS

pytestmark = pytest.mark.every(3)

BATCH = 3
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)


# Their products are a model's, which JAX's default precision is to decide on.
MODELS = {"mlp", "proxy_logits"}


def products(jaxpr):
    """Yield the products of floats of a jaxpr, and of those that it calls."""
    for eqn in jaxpr.eqns:
        floats = all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in eqn.outvars)
        if eqn.primitive.name in ("dot_general", "conv_general_dilated") and floats:
            yield eqn
        for inner in jaxprs_in_params(eqn.params):
            yield from products(inner)


def batch(kernel):
    """Return the arguments of a few different calls, and of all of them at once."""
    calls = [kernel.arguments(np.random.default_rng(i)) for i in range(BATCH)]
    return calls, jax.tree.map(lambda *leaves: jnp.stack(leaves), *calls)


@pytest.mark.every(27)
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
@pytest.mark.every(10)
def test_lowers_to_accelerators(kernel, platform):
    _, stacked = batch(kernel)
    function = jax.jit(jax.vmap(kernel.function))
    lowered = export.export(function, platforms=[platform])(*stacked)
    assert lowered.platforms == (platform,)
    # What is compiled for this machine's CPU must not be called from there.
    called = re.findall(r"custom_call @(\w+)", lowered.mlir_module())
    assert not [target for target in called if target.startswith("jaxsel")]


@each_kernel
def test_products_ask_for_all_digits(kernel):
    """GPUs take float32 factors at fewer digits unless a product asks for all."""
    if kernel.name in MODELS:
        return
    _, stacked = batch(kernel)
    with jax.default_matmul_precision(None):
        traced = jax.make_jaxpr(jax.vmap(kernel.function))(*stacked)
    precisions = [eqn.params["precision"] for eqn in products(traced.jaxpr)]
    highest = jax.lax.Precision.HIGHEST
    assert all(found in (highest, (highest, highest)) for found in precisions)
