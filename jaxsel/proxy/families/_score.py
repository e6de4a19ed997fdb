"""The base of every family of secure scores."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float

from jaxsel.proxy._mlp import Nonlinearity, Params

from ._place import Arrays, Place, Shapes, Steps
from ._ranges import Ranges


class SecureScore(abc.ABC):
    """A way to compute scores of logits in secret.

    A family is a frozen dataclass of its sizes. It must write `apply`, `steps`, `check`
    and `entry`; where it has parameters also `shapes`, `fit` (or `nonlinearity`, for an
    MLP) and `fold`.

    Attributes:
        emulates: Whether it is trained to give the entropy; then it can't rank by the
            margin, and follows the logits in vivo.
        two_classes: Whether it ranks two classes only.
    """

    emulates: ClassVar[bool] = False
    two_classes: ClassVar[bool] = False

    def fit(self, *args: Any, **kwargs: Any) -> Params:
        """Return parameters for logits `[n, C]`.

        Families without parameters return none, and ignore what they are given.
        """
        del args, kwargs
        return {}

    def nonlinearity(self, logits: np.ndarray) -> Nonlinearity | None:
        """Return the operation that the family's MLP imitates; None without an MLP."""
        del logits
        return None

    @abc.abstractmethod
    def apply(
        self, params: Params, logits: Float[jax.Array, "*n C"]
    ) -> Float[jax.Array, "*n"]:
        """Return the score of logits `[..., C]`, `[...]`."""

    def rank(
        self, params: Params, logits: Float[jax.Array, "*n C"], kind: str
    ) -> Float[jax.Array, "*n"]:
        """Return the numbers that rank samples by the manifest's kind of score.

        Any kind, unless a family says otherwise: all rank two classes alike.
        """
        del kind
        return self.apply(params, logits)

    def largest(self, params: Arrays, logits: float) -> float:
        """Return how large a score gets of logits up to a bound, parameters absolute.

        Families that emulate write it.
        """
        del params
        return logits

    def degree(self, kind: str) -> int:
        """Return the degree of the score in the logits; 0 if it is no power of them.

        Logits of any scale rank alike where it is above 0.
        """
        del kind
        return 0

    @abc.abstractmethod
    def entry(self) -> dict[str, Any]:
        """Return the family's line in the manifest."""

    def shapes(self, *, n_classes: int) -> Shapes:
        """Return the shape of each parameter."""
        del n_classes
        return {}

    def fold(self, params: Arrays) -> Arrays:
        """Return the secret operands, from parameters in float64."""
        del params
        return {}

    @abc.abstractmethod
    def steps(self, at: Place, logits: Any) -> Steps:
        """Return the scores `[n]` of logits `[n, C]` in secret."""

    @abc.abstractmethod
    def check(self, ranges: Ranges, largest: float) -> None:
        """Refuse logits, of up to `largest`, that may leave the ring."""


def lead(logits: Any) -> Any:
    """Return the second logit less the first, `[n, 1]`."""
    return logits[:, 1:2] - logits[:, :1]
