"""MPCFormer's attention: squares over their sum."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax

from ._attention import AttentionPlace
from ._attention_summed import SummedAttention
from ._place import Steps

SHIFT = 5.0


@dataclasses.dataclass(frozen=True)
class TwoQuadAttention(SummedAttention):
    """MPCFormer's 2Quad: `(s + shift)² m` over its sum.

    References:
        Li et al., MPCFormer: fast, performant and private Transformer inference with
        MPC, ICLR 2023 (section 3.2; its shift is 5).
    """

    shift: float = SHIFT

    usual: ClassVar[float] = SHIFT**2
    smallest_unit: ClassVar[int] = 32

    def function(self, scores: jax.Array) -> jax.Array:
        return (scores + self.shift) ** 2

    def entry(self) -> dict[str, Any]:
        return {"family": "2quad"}

    def weights(self, at: AttentionPlace, scores: Any) -> Steps:
        return (yield at.call("square", "square", scores + self.shift))

    def largest_weight(self, bound: float) -> float:
        return (bound + self.shift) ** 2
