"""A norm by hinges of the variance."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from jaxsel._inputs.checks import check_count, check_positive
from jaxsel.proxy._mlp import Params, along

from ._norm import Norm, as_params, check_variances, relative_fit, scaled_variance
from ._place import Arrays, Place, Shapes, Steps


@dataclasses.dataclass(frozen=True)
class HingeNorm(Norm):
    """`c0 + c v + sum of a_t relu(v - knot_t)`: pieces of lines, `width` ReLUs a row.

    Attributes:
        width: Knots.
        eps: Of the layer norm.
    """

    width: int = 2
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_count("width", self.width)
        check_positive("eps", self.eps, zero=True)

    def fit(self, variance: npt.ArrayLike | jax.Array, *, key: Any = None) -> Params:
        """Fit by least squares in closed form, with knots at quantiles.

        Args:
            variance: Observed variances above zero, of any shape.
            key: Not used.

        Returns:
            `affine [2]`: c0 and c; `slopes [width]`; `knots [width]`.
        """
        del key
        v = check_variances(variance)
        knots = np.quantile(v, np.arange(1, self.width + 1) / (self.width + 1))
        hinges = np.maximum(v[:, None] - knots, 0)
        columns = np.column_stack([np.ones_like(v), v, hinges])
        coefficients = relative_fit(columns, v, self.eps)
        return as_params(affine=coefficients[:2], slopes=coefficients[2:], knots=knots)

    def apply(
        self, params: Params, variance: Float[jax.Array, "*n"]
    ) -> Float[jax.Array, "*n"]:
        """Return the factor of the centred row, of the shape of `variance`."""
        beyond = variance[..., None]
        hinges = jax.nn.relu(beyond - along(params["knots"], beyond))
        c0, c = params["affine"]
        return c0 + c * variance + hinges @ params["slopes"]

    def entry(self) -> dict[str, Any]:
        return {"family": "hinge", "width": self.width}

    def shapes(self) -> Shapes:
        return {"affine": (2,), "slopes": (self.width,), "knots": (self.width,)}

    def fold(self, params: Arrays, unit: float) -> Arrays:
        """Return knots and slopes of the variance in its unit, its own slope last."""
        slopes = np.append(params["slopes"], params["affine"][1])[:, None] * unit
        return {
            "norm.knots": params["knots"] / unit,
            "norm.weight": slopes,
            "norm.bias": params["affine"][:1],
        }

    def factor(self, at: Place, total: Any) -> Steps:
        v = scaled_variance(at, total)
        bent = v - at.weight("norm.knots", self.width)
        hinges = yield at.call("norm_relu", "relu", bent)
        return (yield from at.linear("norm", at.run.cat([hinges, v]), 1))
