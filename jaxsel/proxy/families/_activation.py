"""The base of every activation of feed-forward parts."""

from __future__ import annotations

import abc
from typing import Any

import jax

from ._place import Place, Steps


class Activation(abc.ABC):
    """The function between the two linear maps of a feed-forward part."""

    @abc.abstractmethod
    def apply(self, x: jax.Array) -> jax.Array:
        """Return the function of hidden units, of the shape of `x`."""

    @abc.abstractmethod
    def steps(self, at: Place, x: Any) -> Steps:
        """Return the same in secret."""
