"""Attention by the scores above zero: one ReLU an entry, no division by a secret."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
from jaxtyping import Float, Shaped

from jaxsel.proxy._mlp import Params

from ._attention import Attention, AttentionPlace, shares
from ._place import Arrays, Steps
from ._ranges import Ranges


@dataclasses.dataclass(frozen=True)
class ReLUAttention(Attention):
    """`relu(s) m / len`: relu(q · k) over the number of tokens, without parameters.

    It is not fitted to a softmax: its weights sum to anything, and a proxy must be
    trained with it. The secure cost beside the two products is L ReLUs a row.

    References:
        Wortsman et al., Replacing softmax with ReLU in vision transformers, 2023
        (arXiv 2309.08586): relu(q · k) / L, for transformers that are trained with it.
    """

    by_length: ClassVar[bool] = True

    def apply(
        self,
        params: Params,
        scores: Float[jax.Array, "*n heads rows L"],
        mask: Shaped[jax.Array, "*n L"] | None,
    ) -> Float[jax.Array, "*n heads rows L"]:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        del params
        return jax.nn.relu(scores) * shares(mask, scores)

    def entry(self) -> dict[str, Any]:
        return {"family": "relu"}

    def weights(self, at: AttentionPlace, scores: Any) -> Steps:
        return (yield at.call("relu", "relu", scores))

    def check(self, ranges: Ranges, params: Arrays) -> None:
        del params
        total = ranges.bound("scores") * ranges.length
        ranges.fits("scores", "the sum of a row's weights", total)
