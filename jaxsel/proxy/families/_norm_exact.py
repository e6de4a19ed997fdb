"""The exact norm."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
from jax import lax
from jaxtyping import Float

from jaxsel._inputs.checks import check_positive
from jaxsel.proxy._mlp import Params

from ._norm import Norm, variance_unit, watched_variance
from ._place import Place, Steps, times


@dataclasses.dataclass(frozen=True)
class ExactNorm(Norm):
    """`1 / sqrt(v + eps)` itself."""

    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_positive("eps", self.eps, zero=True)

    def apply(
        self, params: Params, variance: Float[jax.Array, "*n"]
    ) -> Float[jax.Array, "*n"]:
        """Return the factor of the centred row, of the shape of `variance`."""
        del params
        return lax.rsqrt(variance + self.eps)

    def entry(self) -> dict[str, Any]:
        return {"family": "exact"}

    def factor(self, at: Place, total: Any) -> Steps:
        power = root_scale(variance_unit(at))
        # Multiplied first, so that no digit is lost before the division.
        variance = watched_variance(at, total, 4.0**power)
        factor = yield at.call("norm", "inv_sqrt", variance)
        return times(factor, 2.0**-power)


def root_scale(unit: float) -> int:
    """Return j: variances are divided by 4^j, factors by 2^j.

    CrypTen's reciprocal root converges between .01 and 200 or so; the unit, which
    bounds the variances, is brought to 32.
    """
    return math.ceil((math.log2(unit) - 5) / 2)
