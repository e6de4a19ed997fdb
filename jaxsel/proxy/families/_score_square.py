"""The score of two classes: one squaring, which ranks as every kind does."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float

from jaxsel.proxy._mlp import Params

from ._place import Place, Steps
from ._ranges import Ranges
from ._score import SecureScore, lead


@dataclasses.dataclass(frozen=True)
class SquareEntropy(SecureScore):
    """Two classes: `-(z1 - z0)²`, which ranks exactly as the entropy does.

    The entropy of two classes falls with the distance of the logits. One squaring; the
    value itself is no entropy.
    """

    two_classes: ClassVar[bool] = True

    def fit(self, logits: Any = None, *, key: Any = None) -> Params:
        """Return no parameters.

        Raises:
            ValueError: If logits are given that are not of two classes.
        """
        del key
        if logits is not None and np.shape(logits)[-1:] != (2,):
            raise ValueError(
                f"logits must be of two classes, [..., 2], got {np.shape(logits)}"
            )
        return {}

    def apply(
        self, params: Params, logits: Float[jax.Array, "*n C"]
    ) -> Float[jax.Array, "*n"]:
        """Return the score of logits `[..., 2]`, `[...]`."""
        del params
        if logits.shape[-1] != 2:
            raise ValueError(
                f"logits must be of two classes, [..., 2], got {logits.shape}"
            )
        return -((logits[..., 1] - logits[..., 0]) ** 2)

    def degree(self, kind: str) -> int:
        del kind
        return 2

    def entry(self) -> dict[str, Any]:
        return {"family": "square"}

    def steps(self, at: Place, logits: Any) -> Steps:
        return -(yield at.call("margin", "square", lead(logits))).squeeze(1)

    def check(self, ranges: Ranges, largest: float) -> None:
        ranges.fits("score", "a squared margin", (2 * largest) ** 2)
