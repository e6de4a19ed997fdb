"""No norm at all."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxsel.proxy._mlp import Params

from ._norm import Norm
from ._place import Place, Steps
from ._ranges import Ranges


@dataclasses.dataclass(frozen=True)
class NoNorm(Norm):
    """There is no norm: the row goes on as it is, without gain and offset."""

    eps: float = 1e-12

    normalises: ClassVar[bool] = False

    def apply(
        self, params: Params, variance: Float[jax.Array, "*n"]
    ) -> Float[jax.Array, "*n"]:
        """Return ones. The forward pass leaves the whole norm out."""
        del params
        return jnp.ones_like(variance)

    def entry(self) -> dict[str, Any]:
        return {"family": "none"}

    def factor(self, at: Place, total: Any) -> Steps:
        raise NotImplementedError("there is no norm, and so no factor")

    def steps(
        self, at: Place, x: Any, *, scale: bool = True, gain: bool = True
    ) -> Steps:
        """Return the rows as they are, and no factor."""
        del at, scale, gain
        yield from ()  # no operation communicates
        return x, None

    def check(self, ranges: Ranges, name: str) -> None:
        """Refuse nothing."""
