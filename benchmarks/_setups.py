"""The set-ups of linear datamodelling scores: digits, a perceptron, and subsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from jaxsel import attribute

TRAIN, TARGETS, SUBSETS, DROPPED = 1000, 200, 100, 0.05


class Data(NamedTuple):
    """Training samples and targets, float32 pixels and int64 labels."""

    x: np.ndarray
    y: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray


def digits() -> Data:
    """Load the data of both set-ups."""
    from sklearn.datasets import load_digits

    x, y = map(np.asarray, load_digits(return_X_y=True))
    rows = np.random.default_rng(0).permutation(len(y))[: TRAIN + TARGETS]
    x, y = (x[rows] / 16).astype(np.float32), y[rows]
    return Data(x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:])


def _init(key: jax.Array, x: jax.Array) -> Any:
    """Draw weights and biases as torch does: uniform, up to 1 / root of the inputs."""
    layers, sizes = [], (x.shape[1], 32, 10)
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False)):
        draw = jax.random.uniform(
            jax.random.fold_in(key, i), (inputs + 1, outputs), minval=-1, maxval=1
        )
        layers.append(draw / inputs**0.5)
    return layers


def network(activation: Callable[[jax.Array], jax.Array]) -> Any:
    """Return a perceptron 64-32-10 with torch's initial weights."""

    def apply(params: Any, x: jax.Array) -> jax.Array:
        first, second = params
        hidden = activation(x @ first[:-1] + first[-1])
        return hidden @ second[:-1] + second[-1]

    return _init, apply


def recipe_of(setup: str) -> attribute.Recipe:
    """Return the recipe of a set-up."""
    activation, size = {"A": (jax.nn.relu, 50), "B": (jax.nn.gelu, 250)}[setup]
    return attribute.Recipe(
        network(activation), optax.sgd(0.1, momentum=0.9), epochs=30, batch_size=size
    )


def subsets(size: int, first: int = 10_000, n: int = TRAIN) -> np.ndarray:
    """Return the masks of the subsets, `[100, n]`."""
    masks = np.zeros((SUBSETS, n), bool)
    for i, mask in enumerate(masks):
        rng = np.random.default_rng(first + i)
        mask[rng.choice(n, size, replace=False)] = True
    return masks
