"""The base of families of attention with weights divided by their sum."""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float, Shaped

from jaxsel.proxy._mlp import Params

from ._attention import Attention, AttentionPlace, spread
from ._place import Arrays, Steps
from ._ranges import Ranges

_SUM_BELOW = 512  # means of weights, for CrypTen's reciprocal

# The largest weight over the usual one, that of a score of 0. The unit that brings the
# largest into the range of CrypTen's reciprocal takes digits off the usual one: at most
# four bits here. Measured, a proxy's scores are wrong by 1e-4 of the largest with one
# bit or three, by 2.5e-3 with seven.
_SPREAD = 16 * _SUM_BELOW


class SummedAttention(Attention):
    """`f(s) m` over its sum, f without parameters.

    A family writes `function`, `weights`, `entry` and `largest_weight`.

    Attributes:
        usual: The weight of a score of 0, before the division.
        smallest_unit: The least divisor of weights in the secure run: a power of two
            near the usual weight, or 1.
    """

    by_length: ClassVar[bool] = True
    usual: ClassVar[float]
    smallest_unit: ClassVar[int] = 1

    @abc.abstractmethod
    def function(self, scores: jax.Array) -> jax.Array:
        """Return f of the scores, as `weights` computes it in secret."""

    @abc.abstractmethod
    def largest_weight(self, bound: float) -> float:
        """Return the largest weight of scores up to a bound, before the division."""

    def apply(
        self,
        params: Params,
        scores: Float[jax.Array, "*n heads rows L"],
        mask: Shaped[jax.Array, "*n L"] | None,
    ) -> Float[jax.Array, "*n heads rows L"]:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        del params
        value = self.function(scores)
        value = value * spread(mask, value)
        # A sample without any token has the sum 0, and weights 0 instead of NaN.
        return value / jnp.maximum(value.sum(-1, keepdims=True), 1e-30)

    def on_weights(self, at: AttentionPlace) -> bool:
        """Return whether there is padding: the sum must leave it out."""
        return self._masks(at)

    def unit(self, bound: float) -> int:
        """Return the divisor of weights that brings their mean into reciprocal's range.

        CrypTen's converges up to 666, and loses the fewest digits near 1, where most
        weights are: (t + 5)² over 32, or exp(t). A power of two, from the bound on the
        scores.
        """
        most = self.largest_weight(bound)
        return max(self.smallest_unit, 2 ** math.ceil(math.log2(most / _SUM_BELOW)))

    def attend(self, at: AttentionPlace, weights: Any, value: Any) -> Steps:
        """Return the weighted values over the weights' sum.

        It is taken of the means over the tokens, which do not shrink with their number.
        The folded plan divides after the values are weighted, not before.
        """
        weights = weights / self.unit(at.unit("scores", 16.0))
        mean = weights.sum(-1, keepdim=True) / at.length
        inverse = yield at.call("inverse_sum", "reciprocal", mean)
        if at.folded:
            mixed = yield from self.weighted(at, weights, value)
            return (yield at.call("normalise", "mul", mixed / at.length, inverse))
        weights = yield at.call("normalise", "mul", weights, inverse)
        mixed = yield at.call("attend", "matmul", weights, value)
        return mixed / at.length

    def check(self, ranges: Ranges, params: Arrays) -> None:
        del params
        weight = self.largest_weight(ranges.bound("scores"))
        limit = _SPREAD * self.usual
        ranges.fits("scores", "a weight that its sum divides", weight, limit)
