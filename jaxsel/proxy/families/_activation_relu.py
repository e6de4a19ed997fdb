"""ReLU."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Float

from ._activation import Activation
from ._place import Place, Steps


class ReLU(Activation):
    """`max(x, 0)`."""

    def apply(self, x: Float[jax.Array, "*n"]) -> Float[jax.Array, "*n"]:
        return jax.nn.relu(x)

    def steps(self, at: Place, x: Any) -> Steps:
        return (yield at.call("activation", "relu", x))
