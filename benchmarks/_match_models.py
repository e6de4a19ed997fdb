"""Models for the benchmark of correlations of gradients, and reference results."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxsel import models


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A loss and its arguments. Compared by identity, so that results are cached.

    Attributes:
        loss: `loss(params, example) -> scalar`.
        params: An NNX state.
        examples: Images `[n, 28, 28]` and labels `[n]`.
        v: The mean gradient of 200 more examples.
    """

    loss: Callable[[Any, Any], jax.Array]
    params: Any
    examples: Any
    v: Any


def mlp(n: int) -> Model:
    """A perceptron of 235,146 parameters, at initialisation."""
    return _model(n, models.MLP(784, 256, 128, 10, rngs=nnx.Rngs(0)))


def cnn(n: int) -> Model:
    """Two convolutions of 32 and 64 channels and a dense layer: 50,186 parameters."""
    network = models.CNN((28, 28), 10, channels=(32, 64), rngs=nnx.Rngs(0))
    return _model(n, network)


def _model(n: int, network: nnx.Module) -> Model:
    graph, params = nnx.split(network, nnx.Param)

    def loss(params: Any, example: Any) -> jax.Array:
        x, y = example
        logits = nnx.merge(graph, params)(x[None])[0]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y)

    rng = np.random.default_rng(0)
    examples = (
        jnp.asarray(rng.random((n + 200, 28, 28), np.float32)),
        jnp.asarray(rng.integers(10, size=n + 200, dtype=np.int32)),
    )
    hard = jax.tree.map(lambda a: a[n:], examples)
    mean = lambda params: jnp.mean(jax.vmap(loss, (None, 0))(params, hard))
    v = jax.jit(jax.grad(mean))(params)
    return Model(loss, params, jax.tree.map(lambda a: a[:n], examples), v)


@functools.cache
def correlations(model: Model) -> np.ndarray:
    """Return the inner products of all gradients with v: one by one, in float64."""

    def correlation(params: Any, v: Any, example: Any) -> jax.Array:
        gradient = jax.grad(model.loss)(params, example)
        return sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, v)), jnp.zeros(()))

    with jax.enable_x64(True):
        params, v = jax.tree.map(
            lambda a: a.astype(np.float64), (model.params, model.v)
        )
        x, y = model.examples
        product = jax.jit(correlation)
        parts = [
            product(params, v, example)
            for example in zip(x.astype(np.float64), y, strict=True)
        ]
        return np.array(parts)
