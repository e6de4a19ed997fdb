"""A polynomial in the exponential's place, over its sum."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxsel._inputs.checks import check_count

from ._attention import AttentionPlace
from ._attention_summed import SummedAttention
from ._place import Arrays, Steps
from ._ranges import Ranges


@dataclasses.dataclass(frozen=True)
class PolynomialAttention(SummedAttention):
    """`p(s) m` over its sum, p the Taylor polynomial of exp of an even degree.

    An even degree makes p positive everywhere. In the spirit of Bolt, whose polynomial
    stands behind a maximum and a shift by bits; this one needs neither, and is exact
    near 0 only.

    References:
        Pang et al., Bolt: privacy-preserving, accurate and efficient inference for
        transformers, IEEE S&P 2024 (section IV).
    """

    degree: int = 2

    usual: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if check_count("degree", self.degree, minimum=2) % 2:
            raise ValueError(f"degree must be even, got {self.degree}")

    def function(self, scores: jax.Array) -> jax.Array:
        value = jnp.full_like(scores, 1 / math.factorial(self.degree))
        for power in reversed(range(self.degree)):
            value = value * scores + 1 / math.factorial(power)
        return value

    def entry(self) -> dict[str, Any]:
        return {"family": "polynomial", "degree": self.degree}

    def weights(self, at: AttentionPlace, scores: Any) -> Steps:
        terms = yield at.call("powers", "powers", scores, degree=self.degree)
        # Divided by whole numbers, which is exact; a factor would be rounded.
        return sum(x / math.factorial(i) for i, x in enumerate(terms, 1)) + 1

    def largest_weight(self, bound: float) -> float:
        powers = range(self.degree + 1)
        return sum(bound**i / math.factorial(i) for i in powers)

    def check(self, ranges: Ranges, params: Arrays) -> None:
        power = ranges.bound("scores") ** self.degree
        ranges.fits("scores", "a power", power)
        super().check(ranges, params)
