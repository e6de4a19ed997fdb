"""The paper's score: an MLP from the logits to the entropy."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from jaxsel._inputs.checks import check_count
from jaxsel.proxy._exvivo import Source, train_mlps
from jaxsel.proxy._mlp import Nonlinearity, Params, mlp

from ._place import Arrays, Place, Shapes, Steps, fold_mlp, mlp_shapes
from ._ranges import Ranges
from ._score import SecureScore


@dataclasses.dataclass(frozen=True)
class MLPEntropy(SecureScore):
    """The paper's: an MLP from the logits to the entropy.

    Attributes:
        width: Hidden units, d.

    References:
        SelectFormer (sections 4.2 and 4.3).
    """

    width: int

    emulates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("width", self.width)

    def fit(
        self,
        logits: npt.ArrayLike | jax.Array,
        *,
        key: jax.Array,
        source: Source = "both",
        n_points: int = 1_024_000,
        seeds: int = 1,
    ) -> Params:
        """Train one MLP; `train_mlps` trains the MLPs of all layers and widths at once.

        Args:
            logits: Observed logits `[n, C]`.
            key: For initial weights and batches.
            source: As in `train_mlps`.
            n_points: As in `train_mlps`.
            seeds: Initial weights, of which the best are kept.

        Returns:
            `w1 [C, d]`, `b1 [d]`, `w2 [d, 1]`, `b2 [1]`.
        """
        operation = Nonlinearity.observe("entropy", logits)
        (trained,) = train_mlps(
            [operation],
            [self.width],
            key=key,
            seeds=seeds,
            source=source,
            n_points=n_points,
        )
        return trained[self.width].best()

    def nonlinearity(self, logits: np.ndarray) -> Nonlinearity:
        """Return the entropy of these logits."""
        return Nonlinearity.observe("entropy", logits)

    def apply(
        self, params: Params, logits: Float[jax.Array, "*n C"]
    ) -> Float[jax.Array, "*n"]:
        """Return the estimated entropy of logits `[..., C]`, `[...]`."""
        return mlp(params, logits)[..., 0]

    def entry(self) -> dict[str, Any]:
        return {"family": "mlp", "width": self.width}

    def shapes(self, *, n_classes: int) -> Shapes:
        return mlp_shapes(n_classes, self.width, 1)

    def fold(self, params: Arrays) -> Arrays:
        return fold_mlp("emulator", params)

    def steps(self, at: Place, logits: Any) -> Steps:
        return (yield from at.mlp("emulator", logits, self.width, 1)).squeeze(1)

    def largest(self, params: Arrays, logits: float) -> float:
        """Return the largest number within the network, or behind it."""
        # `params` come as absolute values: an interval bound, which no ReLU enlarges.
        inner = logits * params["w1"].sum(0) + params["b1"]
        outer = inner @ params["w2"] + params["b2"]
        return float(max(inner.max(), outer.max()))

    def check(self, ranges: Ranges, largest: float) -> None:
        """Refuse scores that may leave the ring, where they have a bound."""
        if "score" in ranges.manifest.fixed_point.bounds:
            ranges.fits("score", "an emulated entropy", ranges.bound("score"))
