"""Attention without scores: every token counts alike."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from jaxsel.proxy._mlp import Params

from ._attention import Attention, AttentionPlace, AttentionWeights, named, shares
from ._place import Arrays, Steps
from ._ranges import Ranges


@dataclasses.dataclass(frozen=True)
class UniformAttention(Attention):
    """The same weight for every token: `m / len`. Needs no query and no key."""

    by_length: ClassVar[bool] = True
    reads_scores: ClassVar[bool] = False

    def apply(
        self,
        params: Params,
        scores: Float[jax.Array, "*n heads rows L"],
        mask: Shaped[jax.Array, "*n L"] | None,
    ) -> Float[jax.Array, "*n heads rows L"]:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        del params
        return jnp.broadcast_to(shares(mask, scores), scores.shape)

    def entry(self) -> dict[str, Any]:
        return {"family": "uniform"}

    def weights(self, at: AttentionPlace, scores: Any) -> Steps:
        raise NotImplementedError("uniform attention has no scores")

    def check(self, ranges: Ranges, params: Arrays) -> None:
        """Refuse nothing: a mean of rows is no larger than the rows."""

    def steps(self, at: AttentionPlace, x: Any) -> Steps:
        """Return the mean of the rows behind one linear map, as `Attention.steps`."""
        columns, beside = at.hidden, None
        # The mean commutes with linear maps: folded, one map follows it.
        if not at.folded:
            columns = at.columns
            x = yield from at.linear("value", x, columns)
        elif at.beside:
            beside = yield from at.linear("projections", x[:, : at.rows], at.beside)
        if at.run.manifest.inputs.masked:
            x = yield at.call("attend", "matmul", self.mask(at).unsqueeze(1), x)
        else:
            x = x.sum(1, keepdim=True)
        out = yield from at.linear("output", x / at.length, at.hidden + at.beside)
        return out, beside

    def fold_layer(self, given: AttentionWeights) -> Arrays:
        """Return the value and output maps, multiplied in the folded plan."""
        (value, value_bias), (out, out_bias) = (
            given.linears[name] for name in ("value", "out")
        )
        if not given.folded:
            return named("value", (value, value_bias)) | named(
                "output", (out, out_bias)
            )
        operands: Arrays = {}
        if given.beside.shape[1]:
            none = np.zeros(given.beside.shape[1])
            operands = named("projections", (given.beside, none))
        both = value @ out, value_bias @ out + out_bias
        return operands | named("output", given.widened(*both))
