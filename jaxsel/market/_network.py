"""A small network, for users who have no model of their own.

One hidden layer on standardised numbers: it needs no download, and its last layer has
gradients in closed form.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxsel._devices.typed import split_model
from jaxsel.gradients import Oracle, last_layer
from jaxsel.models import MLP, Params, fit, logits

HIDDEN = 64
STEPS = 500
# Of an owner's network: after 500, gradients are all but 0 and choose worse.
EARLY_STEPS = 100
_LEARNING_RATE = 3e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """A network with its parameters.

    Attributes:
        unit: Length in which `oracle` measures gradients.
    """

    graphdef: nnx.GraphDef[Any]
    params: Params
    unit: float = 1.0

    @classmethod
    def new(cls, n_features: int, n_classes: int, key: jax.Array) -> Network:
        model = MLP(n_features, HIDDEN, n_classes, rngs=nnx.Rngs(key))
        graphdef, params = split_model(model)
        return cls(graphdef=graphdef, params=params)

    def trained(
        self, rows: np.ndarray, codes: np.ndarray, key: jax.Array, steps: int = STEPS
    ) -> Network:
        """Return the network trained for `steps` on rows `[n, d]`, classes `[n]`."""
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

    def hits(self, rows: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, int]:
        """Return whether the most likely class of each row is right, `[n]`.

        And the number of rows with outputs that are not finite: these count as wrong.
        """
        scores = np.asarray(logits(self.graphdef, self.params, rows))
        finite = np.isfinite(scores).all(axis=1)
        return finite & (scores.argmax(axis=1) == codes), int(np.sum(~finite))

    def measured(self, rows: np.ndarray, codes: np.ndarray) -> Network:
        """Return it with gradients that have length 1 in root mean square on rows.

        Matching weighs the ridge against squared gradients: it then means the same
        whatever the loss has come down to.
        """
        length = float(np.mean(np.asarray(self.oracle(rows, codes).diag()))) ** 0.5
        return dataclasses.replace(self, unit=self.unit * length if length > 0 else 1.0)

    def oracle(self, rows: np.ndarray, codes: np.ndarray) -> Oracle:
        """Return the gradients of the last layer, in units of `unit`."""
        scores = logits(self.graphdef, self.params, rows)
        oracle = last_layer(scores, codes, self.features(rows))
        layers = [
            dataclasses.replace(layer, deltas=layer.deltas / self.unit)
            for layer in oracle.layers
        ]
        return dataclasses.replace(oracle, layers=tuple(layers))

    def features(self, rows: np.ndarray) -> np.ndarray:
        """Return the inputs of the last layer, `[n, HIDDEN]`."""
        model: Any = nnx.merge(self.graphdef, self.params)
        hidden: Any = nnx.relu(model.layers[0](rows))
        return np.asarray(hidden)
