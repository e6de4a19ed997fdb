"""The small network that `jaxsel market` trains for lack of a model of the user's.

One hidden layer on standardised numbers: it needs no download, and its last layer has
gradients in closed form.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
from flax import nnx

from jaxsel.gradients import Oracle, last_layer
from jaxsel.models import MLP, Params, fit, logits

HIDDEN = 64
STEPS = 500
_LEARNING_RATE = 3e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """Centre and spread of samples: of each column of a table, else of all numbers."""

    mean: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> Scale:
        axis = 0 if x.ndim == 2 else None
        spread = np.asarray(x.std(axis=axis, dtype=np.float64))
        return cls(
            mean=np.asarray(x.mean(axis=axis, dtype=np.float64)),
            spread=np.where(spread > 0, spread, 1),
        )

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return samples as rows, `[n, d]` float32."""
        scaled = ((x - self.mean) / self.spread).astype(np.float32)
        return scaled.reshape(len(x), math.prod(x.shape[1:]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """A network with its parameters."""

    graphdef: nnx.GraphDef
    params: Params

    @classmethod
    def new(cls, n_features: int, n_classes: int, key: jax.Array) -> Network:
        model = MLP(n_features, HIDDEN, n_classes, rngs=nnx.Rngs(key))
        graphdef, params = nnx.split(model, nnx.Param)
        return cls(graphdef=graphdef, params=params)

    def trained(
        self, rows: np.ndarray, codes: np.ndarray, key: jax.Array, steps: int = STEPS
    ) -> Network:
        """Return it after so many steps on rows `[n, d]` with classes `[n]`."""
        params = fit(
            self.graphdef,
            self.params,
            rows,
            codes,
            key=key,
            steps=steps,
            learning_rate=_LEARNING_RATE,
        )
        return dataclasses.replace(self, params=params)

    def accuracy(self, rows: np.ndarray, codes: np.ndarray) -> float:
        """Return the share of rows whose most likely class is right."""
        scores = np.asarray(logits(self.graphdef, self.params, rows))
        return float(np.mean(scores.argmax(axis=1) == codes))

    def oracle(self, rows: np.ndarray, codes: np.ndarray) -> Oracle:
        """Return the gradients of the last layer."""
        scores = logits(self.graphdef, self.params, rows)
        return last_layer(scores, codes, self.features(rows))

    def features(self, rows: np.ndarray) -> np.ndarray:
        """Return what the last layer sees, `[n, HIDDEN]`."""
        model = nnx.merge(self.graphdef, self.params)
        return np.asarray(nnx.relu(model.layers[0](rows)))
