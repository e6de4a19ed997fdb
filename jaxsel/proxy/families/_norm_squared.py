"""A norm by the square of an affine function of the variance: one squaring a row."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from jaxsel._inputs.checks import check_positive
from jaxsel.proxy._mlp import Params

from ._norm import (
    Norm,
    as_params,
    check_variances,
    scaled_variance,
    variance_unit,
)
from ._place import Arrays, Place, Shapes, Steps, times


@dataclasses.dataclass(frozen=True)
class SquaredNorm(Norm):
    """`(c0 + c v)²`: a quadratic of the variance that is never negative.

    The cheapest that bends: its secure cost is the squaring of one number a row, since
    `c²` goes into the norm's gain. A polynomial of degree 2 has one constant more, for
    one more round and three times the bytes; but where it falls below zero it turns a
    row around, which a square cannot.

    The root of the factor is fitted, `(v + eps)^(-1/4)`, for the least squared relative
    error. Sound up to a few times the mean variance: the line crosses zero near five
    times it, and beyond that the factor rises again.

    Attributes:
        eps: Of the layer norm.
    """

    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_positive("eps", self.eps, zero=True)

    def fit(self, variance: npt.ArrayLike | jax.Array, *, key: Any = None) -> Params:
        """Fit by least squares in closed form.

        Args:
            variance: Observed variances above zero, of any shape.
            key: Not used.

        Returns:
            `affine [2]`: c0 and c.
        """
        del key
        v = check_variances(variance) + self.eps
        mean: float = v.mean()
        apart, root = v / mean - 1, (v / mean) ** 0.25
        # The tangent's residual: variances that hardly differ give no slope of theirs.
        # Relative errors: columns are multiplied by the inverse of their target.
        columns = np.column_stack([root, apart * root])
        residual = 1 - (1 - apart / 4) * root
        level, slope = np.linalg.lstsq(columns, residual, rcond=1e-6)[0] + [1, -0.25]
        c = slope * mean**-1.25
        c0 = (level - slope) * mean**-0.25 + c * self.eps
        return as_params(affine=[c0, c])

    def apply(
        self, params: Params, variance: Float[jax.Array, "*n"]
    ) -> Float[jax.Array, "*n"]:
        """Return the factor of the centred row, of the shape of `variance`."""
        c0, c = params["affine"]
        return (c0 + c * variance) ** 2

    def entry(self) -> dict[str, Any]:
        return {"family": "squared"}

    def shapes(self) -> Shapes:
        return {"affine": (2,)}

    def fold(self, params: Arrays, unit: float) -> Arrays:
        """Return the line's zero in units of the variance, with its sign turned."""
        c0, c = _line(params, unit)
        return {"norm.shift": np.array([c0 / c])}

    def gain(self, params: Arrays, unit: float) -> float:
        return _line(params, unit)[1] ** 2

    def factor(self, at: Place, total: Any) -> Steps:
        shifted = scaled_variance(at, total) + at.weight("norm.shift", 1)
        square = yield at.call("norm", "square", shifted)
        return times(square, 2.0 ** -_power(variance_unit(at)))


def _line(params: Arrays, unit: float) -> tuple[float, float]:
    """Return c0 and c of the variance in its unit, times the root of a public power.

    The power brings factors near 1. A slope below c0 / 64 or 2^-10 is raised to it:
    else a large shift would leave the variance no digits in fixed point. That changes
    the factor by less than a share of 1/32, or 2^-9.
    """
    root = 2.0 ** (_power(unit) / 2)
    c0, c = (float(value) * root for value in params["affine"])
    c *= unit
    return c0, math.copysign(max(abs(c), abs(c0) / 64, 2.0**-10), c)


def _power(unit: float) -> int:
    """Return j: factors are near 2^-j where variances are near their unit."""
    return math.floor(math.log2(unit) / 2)
