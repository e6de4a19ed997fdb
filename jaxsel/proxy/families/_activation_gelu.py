"""GELU by a sigmoid."""

from __future__ import annotations

from typing import Any

import jax

from ._activation import Activation
from ._place import Place, Steps


class GELU(Activation):
    """`x · sigmoid(1.5958 (x + 0.044715 x³))`."""

    def apply(self, x: jax.Array) -> jax.Array:
        return x * jax.nn.sigmoid(1.5958 * (x + 0.044715 * x**3))

    def steps(self, at: Place, x: Any) -> Steps:
        return (yield at.call("activation", "gelu", x))
