"""The base of every activation of feed-forward parts."""

from __future__ import annotations

import abc
from typing import Any

import jax
from jaxtyping import Float

from ._place import Place, Steps
from ._ranges import Ranges


class Activation(abc.ABC):
    """The function between the two linear maps of a feed-forward part.

    An activation must write `apply` and `steps`, and `reach` where a number gets larger
    on its way than it was.
    """

    @abc.abstractmethod
    def apply(self, x: Float[jax.Array, "*n"]) -> Float[jax.Array, "*n"]:
        """Return the function of hidden units, of the shape of `x`."""

    @abc.abstractmethod
    def steps(self, at: Place, x: Any) -> Steps:
        """Return the same in secret."""

    def reach(self, largest: float) -> float:
        """Return how large a number gets on its way, of units up to `largest`."""
        return largest

    def check(self, ranges: Ranges) -> None:
        """Refuse hidden units that may leave the ring."""
        ranges.fits("hidden", "a hidden unit", self.reach(ranges.bound("hidden")))
