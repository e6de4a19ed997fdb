"""Samples, a small network and its recipe, which tests of attributions share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxsel import attribute

N, N_VAL, D, CLASSES = 24, 6, 4, 3


@functools.cache
def samples(seed=0, n=N, n_val=N_VAL):
    """Three overlapping classes in four dimensions: x, y, x_val, y_val."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n + n_val)
    x = rng.normal(size=(n + n_val, D)) + 2 * np.eye(CLASSES, D)[y]
    x = x.astype(np.float32)
    return x[:n], y[:n], x[n:], y[n:]


def init(key, x):
    """Two layers with biases, in the form of plain arrays."""
    keys = jax.random.split(key)
    return {
        "w": jax.random.normal(keys[0], (x.shape[1], 5)) / 2,
        "b": jnp.zeros(5),
        "v": jax.random.normal(keys[1], (5, CLASSES)) / 2,
    }


def apply(params, x):
    return jnp.tanh(x @ params["w"] + params["b"]) @ params["v"]


@functools.cache
def recipe(momentum=0.9, learning_rate=0.1, epochs=4, batch_size=7):
    optimizer = optax.sgd(learning_rate, momentum=momentum)
    return attribute.Recipe(
        (init, apply), optimizer, epochs=epochs, batch_size=batch_size
    )
