"""An owner's view of samples, its own and the hard ones: its model, and both sides."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxsel._inputs.show import brief
from jaxsel.gradients import Oracle


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnerModel:
    """Owner's private view of samples, its own and the hard ones; never sent.

    Where a request shows features only, `oracle` is called with those in place of
    samples.

    Attributes:
        oracle: Maps samples `[n, ...]` and their labels `[n]` to an oracle of their
            gradients, such as `jaxsel.gradients.last_layer` of the owner's model. Early
            checkpoints tell more than late ones (paper, appendix E). The ridge of
            matching, 0.5, is absolute: where a model is trained far enough for short
            gradients, scale them to about length 1.
        features: Maps samples `[n, ...]` to features `[n, d]`.
    """

    oracle: Callable[[Any, Any], Oracle] | None = None
    features: Callable[[Any], Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """The arrays of one side, each with one row a sample.

    Attributes:
        x: Samples; None if they are not known.
        y: Labels; None if there are none.
        codes: Their places among the request's classes, -1 if elsewhere; None if either
            side has no labels.
        vectors: Features in a space of both sides; None if nothing needs them.
    """

    x: np.ndarray | None
    y: np.ndarray | None
    codes: np.ndarray | None
    vectors: np.ndarray | None

    def __len__(self) -> int:
        return len(next(a for a in (self.x, self.vectors) if a is not None))

    def take(self, rows: np.ndarray) -> Side:
        return Side(
            **{
                field.name: None if array is None else array[rows]
                for field in dataclasses.fields(self)
                for array in [getattr(self, field.name)]
            }
        )
