"""The paper's norm: an MLP of the variance."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from jaxsel._inputs.checks import check_count, check_positive
from jaxsel.proxy._exvivo import Source, train_mlps
from jaxsel.proxy._mlp import Nonlinearity, Params, mlp

from ._norm import Norm, check_variances, scaled_variance
from ._place import Arrays, Place, Shapes, Steps, fold_mlp, mlp_shapes


@dataclasses.dataclass(frozen=True)
class MLPNorm(Norm):
    """The paper's: an MLP from the variance to the factor.

    Attributes:
        width: Hidden units, d.
        eps: Of the layer norm.

    References:
        SelectFormer (sections 4.2 and 4.3).
    """

    width: int
    eps: float = 1e-12

    def __post_init__(self) -> None:
        check_count("width", self.width)
        check_positive("eps", self.eps, zero=True)

    def fit(
        self,
        variance: npt.ArrayLike | jax.Array,
        *,
        key: jax.Array,
        source: Source = "rows",
        n_points: int = 1_024_000,
    ) -> Params:
        """Train one MLP; `train_mlps` trains the MLPs of all layers and widths at once.

        Args:
            variance: Observed variances above zero, of any shape.
            key: For initial weights and batches.
            source: As in `train_mlps`.
            n_points: As in `train_mlps`.

        Returns:
            `w1 [1, d]`, `b1 [d]`, `w2 [d, 1]`, `b2 [1]`.
        """
        operation = self.nonlinearity(check_variances(variance))
        (trained,) = train_mlps(
            [operation], [self.width], key=key, source=source, n_points=n_points
        )
        return trained[self.width].best()

    def nonlinearity(self, variance: np.ndarray) -> Nonlinearity:
        """Return the reciprocal root of these variances."""
        return Nonlinearity.observe("rsqrt", variance, eps=self.eps)

    def apply(
        self, params: Params, variance: Float[jax.Array, "*n"]
    ) -> Float[jax.Array, "*n"]:
        """Return the factor of the centred row, of the shape of `variance`."""
        return mlp(params, variance[..., None])[..., 0]

    def entry(self) -> dict[str, Any]:
        return {"family": "mlp", "width": self.width}

    def shapes(self) -> Shapes:
        return mlp_shapes(1, self.width, 1)

    def fold(self, params: Arrays, unit: float) -> Arrays:
        return fold_mlp("norm", params, unit)

    def factor(self, at: Place, total: Any) -> Steps:
        return (yield from at.mlp("norm", scaled_variance(at, total), self.width, 1))
