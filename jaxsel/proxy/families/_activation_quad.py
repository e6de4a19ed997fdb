"""MPCFormer's stand-in for GELU."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Float

from ._activation import Activation
from ._place import Place, Steps


class Quad(Activation):
    """`x²/8 + x/4 + 1/2`: one squaring.

    References:
        Li et al., MPCFormer: fast, performant and private Transformer inference with
        MPC, ICLR 2023 (section 3.2).
    """

    def apply(self, x: Float[jax.Array, "*n"]) -> Float[jax.Array, "*n"]:
        return x**2 / 8 + x / 4 + 0.5

    def steps(self, at: Place, x: Any) -> Steps:
        square = yield at.call("activation", "square", x + 1)
        return square / 8 + 0.375  # (x + 1)²/8 + 3/8

    def reach(self, largest: float) -> float:
        return (largest + 1) ** 2
