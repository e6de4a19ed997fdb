"""Models of trainers and owners, with training, logits and features."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxsel.models import CNN, MLP, Params, fit, logits

BATCH = 64


@dataclasses.dataclass(frozen=True)
class Net:
    """A network with its parameters.

    Attributes:
        graphdef: Its static part.
        params: Its parameters.
        rate: Learning rate of its training, in the first step.
    """

    graphdef: nnx.GraphDef
    params: Params
    rate: float = 3e-3

    def trained(self, x: np.ndarray, y: np.ndarray, steps: int, key: jax.Array) -> Net:
        """Return the network trained for `steps` steps on minibatches of 64."""
        recipe: Any = {"batch_size": BATCH, "learning_rate": self.rate}
        params = fit(self.graphdef, self.params, x, y, key=key, steps=steps, **recipe)
        return dataclasses.replace(self, params=params)

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Return the scores of each class, `[n, classes]`."""
        return np.asarray(logits(self.graphdef, self.params, x))

    def right(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return where the most likely class is `y`, `[n]` of bool."""
        return self.logits(x).argmax(1) == y

    def features(self, x: np.ndarray) -> np.ndarray:
        """Return the inputs of the last layer, `[n, H]`."""
        body = nnx.merge(self.graphdef, self.params)
        if isinstance(body, CNN):
            body.dense = _Through()  # pyright: ignore[reportAttributeAccessIssue]
        else:
            body.layers[-1] = _Through()
        return np.asarray(logits(*nnx.split(body, nnx.Param), x))


class _Through(nnx.Module):
    """Identity layer."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return x.reshape(x.shape[0], -1)


def new_net(
    kind: str,
    shape: Sequence[int],
    n_classes: int,
    key: jax.Array,
    *,
    channels: Sequence[int] = (16, 32),
    hidden: int = 128,
    rate: float = 3e-3,
) -> Net:
    """Return an untrained "cnn", an "mlp" with `hidden` units, or a "linear" model."""
    rngs = nnx.Rngs(key)
    if kind == "cnn":
        model = CNN(shape, n_classes, channels=channels, rngs=rngs)
    elif kind == "linear":
        model = MLP(int(np.prod(shape)), n_classes, rngs=rngs)
    else:
        model = MLP(int(np.prod(shape)), hidden, n_classes, rngs=rngs)
    return Net(*nnx.split(model, nnx.Param), rate)


def checkpoints(
    net: Net, x: np.ndarray, y: np.ndarray, cycles: Sequence[int], key: jax.Array
) -> list[Net]:
    """Train in cycles, and return the network before the first and after each.

    The learning rate falls to 0 along a cosine in every cycle, as in Loshchilov and
    Hutter, SGDR, ICLR 2017, so that each checkpoint is a finished model.
    """
    nets = [net]
    for i, steps in enumerate(cycles):
        nets.append(nets[-1].trained(x, y, steps, jax.random.fold_in(key, i)))
    return nets


def steps_for(n: int, epochs: int, min_steps: int) -> int:
    """Return the steps of some passes over n samples, or `min_steps` if they are fewer.

    Rounds n up to a power of two, so that budgets of one order train equally long.
    """
    return max(min_steps, -(-epochs * (1 << (n - 1).bit_length()) // BATCH))
