"""GELU by a sigmoid."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Float

from ._activation import Activation
from ._place import Place, Steps
from ._ranges import LARGEST_EXPONENT, Ranges


class GELU(Activation):
    """`x · sigmoid(1.5958 (x + 0.044715 x³))`.

    Its exponential leaves CrypTen's range from a size of 19 on, where it is x or 0 to
    all digits, and the result then is noise.
    """

    def apply(self, x: Float[jax.Array, "*n"]) -> Float[jax.Array, "*n"]:
        return x * jax.nn.sigmoid(1.5958 * (x + 0.044715 * x**3))

    def steps(self, at: Place, x: Any) -> Steps:
        return (yield at.call("activation", "gelu", x))

    def reach(self, largest: float) -> float:
        return 1.5958 * (largest + 0.044715 * largest**3)

    def check(self, ranges: Ranges) -> None:
        super().check(ranges)
        exponent = self.reach(ranges.bound("hidden"))
        what = "the exponent of gelu, which relu and quad don't have,"
        ranges.fits("hidden", what, exponent, LARGEST_EXPONENT)
