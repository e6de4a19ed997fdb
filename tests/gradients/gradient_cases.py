"""Small models in every framework, with per-sample gradients by `jax.grad`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel.gradients._oracle import inner

N, IN, HIDDEN, CLASSES = 9, 5, 4, 3


@dataclasses.dataclass(frozen=True)
class Model:
    """A loss of parameters and one example, and examples.

    Attributes:
        loss: From parameters and one example to a scalar.
        params: Any pytree.
        examples: A pytree whose leaves have a first axis of N.
    """

    loss: Callable[[Any, Any], jax.Array]
    params: Any
    examples: Any


def cross_entropy(logits, label):
    return -jax.nn.log_softmax(logits)[label]


def rows(loss, params, examples):
    """Return every example's gradient, flat, in float64, `[n, p]`.

    For pytrees of arrays: jax.grad knows them without any filter.
    """
    with jax.enable_x64(True):
        wide = widen((params, examples))
        grads = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(*wide)
        leaves = [np.asarray(g) for g in jax.tree.leaves(grads)]
        return np.concatenate([g.reshape(len(g), -1) for g in leaves], axis=1)


def widen(tree):
    """Make all floating-point arrays float64."""
    floating = lambda array: jnp.issubdtype(array.dtype, jnp.floating)
    return jax.tree.map(
        lambda array: jnp.asarray(array, jnp.float64 if floating(array) else None), tree
    )


def normal(*shape, seed=0, scale=1.0):
    rng = np.random.default_rng([seed, *shape])
    return (scale * rng.normal(size=shape)).astype(np.float32)


# One multilayer perceptron, the same weights in each framework.


def plain_params():
    return {
        "dense1": {"kernel": normal(IN, HIDDEN), "bias": normal(HIDDEN)},
        "dense2": {"kernel": normal(HIDDEN, CLASSES), "bias": normal(CLASSES)},
    }


def examples():
    labels = np.random.default_rng(0).integers(0, CLASSES, N)
    return normal(N, IN, seed=1), labels


def plain_loss(params, example):
    x, y = example
    hidden = jnp.tanh(x @ params["dense1"]["kernel"] + params["dense1"]["bias"])
    logits = hidden @ params["dense2"]["kernel"] + params["dense2"]["bias"]
    return cross_entropy(logits, y)


def plain():
    return Model(plain_loss, plain_params(), examples())


@functools.cache
def _nnx_split():
    from flax import nnx

    class MLP(nnx.Module):
        def __init__(self, rngs):
            self.dense1 = nnx.Linear(IN, HIDDEN, rngs=rngs)
            self.dense2 = nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

        def __call__(self, x):
            return self.dense2(jnp.tanh(self.dense1(x)))

    graphdef, state = nnx.split(MLP(nnx.Rngs(0)), nnx.Param)
    nnx.replace_by_pure_dict(state, jax.tree.map(jnp.asarray, plain_params()))
    return graphdef, state


def nnx_state_loss(state, example):
    from flax import nnx

    return nnx_module_loss(nnx.merge(_nnx_split()[0], state), example)


def nnx_module_loss(module, example):
    return cross_entropy(module(example[0]), example[1])


def nnx_state():
    return Model(nnx_state_loss, _nnx_split()[1], examples())


def nnx_module():
    from flax import nnx

    return Model(nnx_module_loss, nnx.merge(*_nnx_split()), examples())


@functools.cache
def _linen():
    from flax import linen

    class MLP(linen.Module):
        @linen.compact
        def __call__(self, x):
            hidden = jnp.tanh(linen.Dense(HIDDEN, name="dense1")(x))
            return linen.Dense(CLASSES, name="dense2")(hidden)

    return MLP()


def linen_loss(variables, example):
    return cross_entropy(_linen().apply(variables, example[0]), example[1])


def linen():
    variables = _linen().init(jax.random.key(0), jnp.zeros(IN))
    shapes = jax.tree.map(jnp.shape, variables["params"])
    params = plain_params()
    assert shapes == jax.tree.map(jnp.shape, params)
    return Model(linen_loss, {"params": params}, examples())


def equinox_loss(module, example):
    return cross_entropy(module(example[0]), example[1])


def equinox():
    eqx = pytest.importorskip("equinox")
    params = plain_params()
    module = eqx.nn.MLP(
        IN, CLASSES, HIDDEN, depth=1, activation=jnp.tanh, key=jax.random.key(0)
    )
    arrays = [
        params[name][leaf] for name in params for leaf in ("kernel", "bias")
    ]  # Equinox has its kernels as [out, in].
    where = lambda m: [
        array for layer in m.layers for array in (layer.weight, layer.bias)
    ]
    module = eqx.tree_at(where, module, [jnp.asarray(array.T) for array in arrays])
    return Model(equinox_loss, module, examples())


FRAMEWORKS = {
    "plain": plain,
    "nnx-state": nnx_state,
    "nnx-module": nnx_module,
    "linen": linen,
    "equinox": equinox,
}


# Layers applied at several positions.

LENGTH, IMAGE, CHANNELS = 6, (6, 5), 2


def sequence_loss(params, example):
    """One dense layer along a sequence, attention over it, and a last layer."""
    x, y = example
    hidden = jnp.tanh(x @ params["embed"]["kernel"] + params["embed"]["bias"])
    query = hidden @ params["query"]["kernel"]
    mixed = jax.nn.softmax(query @ hidden.T) @ hidden
    logits = mixed.mean(axis=0) @ params["last"]["kernel"] + params["last"]["bias"]
    return cross_entropy(logits, y)


def sequence():
    params = {
        "embed": {"kernel": normal(IN, HIDDEN), "bias": normal(HIDDEN)},
        "query": {"kernel": normal(HIDDEN, HIDDEN)},
        "last": {"kernel": normal(HIDDEN, CLASSES), "bias": normal(CLASSES)},
    }
    x = normal(N, LENGTH, IN, seed=1)
    return Model(sequence_loss, params, (x, examples()[1]))


def convolution(*, strides=(1, 1), padding="SAME", dilation=(1, 1)):
    """One convolution, a sum over the image, and a last layer."""

    def loss(params, example):
        x, y = example
        out = jax.lax.conv_general_dilated(
            x[None],
            params["conv"]["kernel"],
            strides,
            padding,
            rhs_dilation=dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        hidden = jnp.tanh(out[0] + params["conv"]["bias"]).sum(axis=(0, 1))
        return cross_entropy(hidden @ params["last"]["kernel"], y)

    params = {
        "conv": {"kernel": normal(3, 2, CHANNELS, HIDDEN), "bias": normal(HIDDEN)},
        "last": {"kernel": normal(HIDDEN, CLASSES)},
    }
    x = normal(N, *IMAGE, CHANNELS, seed=1)
    return Model(loss, params, (x, examples()[1]))


@functools.cache
def _nnx_convolution():
    from flax import nnx

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(CHANNELS, HIDDEN, (3, 3), strides=2, rngs=rngs)
            self.last = nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

        def __call__(self, x):
            hidden = nnx.max_pool(nnx.relu(self.conv(x)), (2, 2))
            return self.last(hidden.mean(axis=(0, 1)))

    return nnx.split(Network(nnx.Rngs(0)), nnx.Param)


def nnx_convolution_loss(state, example):
    from flax import nnx

    return nnx_module_loss(nnx.merge(_nnx_convolution()[0], state), example)


def nnx_convolution():
    x = normal(N, *IMAGE, CHANNELS, seed=1)
    return Model(nnx_convolution_loss, _nnx_convolution()[1], (x, examples()[1]))


# What every oracle must be able to do.


def check(oracle, expected, *, tolerance=2e-5, gram=None):
    """Compare an oracle's products with those of explicit gradients `[n, p]`."""
    n = len(expected)
    gram = expected @ expected.T if gram is None else gram
    near = _near(gram, tolerance)
    assert len(oracle) == n
    near(oracle.diag(), np.diag(gram))
    near(oracle.columns(jnp.array([4, 0, 4])), gram[[4, 0, 4]])
    weights = np.linspace(-1, 1.5, n).astype(np.float32)
    combined = oracle.combine(jnp.asarray(weights, oracle.dtype))
    near(oracle.corr(combined), gram @ weights)


def check_all(oracle, expected, *, tolerance=2e-5, gram=None):
    """Compare all that an oracle can do with explicit gradients `[n, p]`."""
    from jaxsel import gradients

    check(oracle, expected, tolerance=tolerance, gram=gram)
    n = len(expected)
    gram = expected @ expected.T if gram is None else gram
    near = _near(gram, tolerance)
    assert oracle.diag().dtype == oracle.dtype
    near(oracle.column(2), gram[2])
    near(oracle.gram(oracle.take(jnp.arange(n))), gram)
    near(oracle.corr(oracle.mean()), gram.mean(axis=0))

    weights = np.linspace(-1, 1.5, n).astype(np.float32)
    combined = oracle.combine(jnp.asarray(weights, oracle.dtype))
    near(gradients.squared_norm(combined), weights @ gram @ weights)
    near(inner(combined, oracle.mean()), (gram @ weights).mean())

    some = np.array([5, 1, 7])
    part = oracle.take(jnp.asarray(some))
    assert len(part) == 3
    near(part.diag(), np.diag(gram)[some])
    near(part.gram(part), gram[np.ix_(some, some)])
    near(part.corr(combined), (gram @ weights)[some])
    near(oracle.corr(part.combine(jnp.array([1.0, 0, -2]))), gram[5] - 2 * gram[7])
    near(oracle.take(slice(2, 6)).diag(), np.diag(gram)[2:6])


def _near(gram, tolerance):
    """Compare products: rounding is in proportion to the gradients' lengths."""
    scale = np.max(np.diag(gram))
    return lambda actual, desired: np.testing.assert_allclose(
        actual, desired, rtol=tolerance, atol=tolerance * scale
    )
