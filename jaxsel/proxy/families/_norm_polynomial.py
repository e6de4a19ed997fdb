"""A norm by a polynomial of the variance; of degree 1 it is the family "linear"."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from jaxsel._inputs.checks import check_count, check_positive
from jaxsel.proxy._mlp import Params

from ._norm import Norm, as_params, check_variances, relative_fit, scaled_variance
from ._place import Arrays, Place, Shapes, Steps


@dataclasses.dataclass(frozen=True)
class PolynomialNorm(Norm):
    """A polynomial of the variance: no ReLU, `degree - 1` products of one number a row.

    Sound for variances in the fitted range: beyond it a high degree goes astray.

    Attributes:
        degree: 1 is the manifest's "linear".
        eps: Of the layer norm.
    """

    degree: int = 2
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_count("degree", self.degree)
        check_positive("eps", self.eps, zero=True)

    def fit(self, variance: npt.ArrayLike | jax.Array, *, key: Any = None) -> Params:
        """Fit by least squares in closed form.

        Args:
            variance: Observed variances above zero, of any shape.
            key: Not used.

        Returns:
            `coefficients [degree + 1]`, constant first, of powers of
            `(v - shift) scale`.
        """
        del key
        v = check_variances(variance)
        # Powers of variances far from 0 are nearly dependent columns: those about the
        # mean, in units of the deviation, are not.
        shift, scale = v.mean(), 1 / max(v.std(), 1e-12)
        powers = ((v - shift) * scale)[:, None] ** np.arange(self.degree + 1)
        coefficients = relative_fit(powers, v, self.eps)
        return as_params(coefficients=coefficients, shift=shift, scale=scale)

    def apply(
        self, params: Params, variance: Float[jax.Array, "*n"]
    ) -> Float[jax.Array, "*n"]:
        """Return the factor of the centred row, of the shape of `variance`."""
        t = (variance - params["shift"]) * params["scale"]
        value = jnp.zeros_like(t)
        for power in reversed(range(self.degree + 1)):
            value = value * t + params["coefficients"][power]
        return value

    def entry(self) -> dict[str, Any]:
        if self.degree == 1:
            return {"family": "linear"}
        return {"family": "polynomial", "degree": self.degree}

    def shapes(self) -> Shapes:
        return {"coefficients": (self.degree + 1,), "shift": (), "scale": ()}

    def fold(self, params: Arrays, unit: float) -> Arrays:
        """Return the coefficients of the variance in its unit, constant apart."""
        shift, scale = params["shift"], params["scale"]
        inner = np.polynomial.Polynomial([-shift * scale, scale * unit])
        terms = np.zeros(len(params["coefficients"]))
        # NumPy trims leading coefficients of 0.
        composed = np.polynomial.Polynomial(params["coefficients"])(inner).coef
        terms[: len(composed)] = composed
        weight = terms[1:] if self.degree == 1 else terms[1:, None]
        return {"norm.weight": weight, "norm.bias": terms[:1]}

    def factor(self, at: Place, total: Any) -> Steps:
        v = scaled_variance(at, total)
        if self.degree == 1:
            product = yield at.call("norm", "mul", v, at.weight("norm.weight", 1))
            return product + at.weight("norm.bias", 1)
        terms = yield at.call("norm_powers", "powers", v, degree=self.degree)
        return (yield from at.linear("norm", at.run.cat(terms), 1))
