"""Exact attention: the softmax."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float, Shaped

from jaxsel._devices.typed import finfo
from jaxsel.proxy._mlp import Params

from ._attention import Attention, AttentionPlace, shares, spread
from ._place import Arrays, Steps
from ._ranges import LARGEST_EXPONENT, Ranges


@dataclasses.dataclass(frozen=True)
class SoftmaxAttention(Attention):
    """The softmax itself, over the tokens of the mask."""

    masked: ClassVar[bool] = False  # padding is taken out before the softmax

    def apply(
        self,
        params: Params,
        scores: Float[jax.Array, "*n heads rows L"],
        mask: Shaped[jax.Array, "*n L"] | None,
    ) -> Float[jax.Array, "*n heads rows L"]:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        del params
        return softmax(scores, mask)

    def entry(self) -> dict[str, Any]:
        return {"family": "exact"}

    def weights(self, at: AttentionPlace, scores: Any) -> Steps:
        if at.run.inputs.mask is not None:
            # So far below the others that its exponential is 0 in fixed point.
            offset = int(2 * at.bound("scores", 24.0)) + 16
            scores = scores + (self.row_mask(at) - 1) * offset
        return (yield at.call("softmax", "softmax", scores))

    def check(self, ranges: Ranges, params: Arrays) -> None:
        del params
        # `weights` takes 2 bounds + 16 off a masked score, which then is up to 4 bounds
        # + 16 below the largest: that far the exponential must be sound.
        limit = (LARGEST_EXPONENT - 16) / 4
        ranges.fits("scores", "a score", ranges.bound("scores"), limit)


def softmax(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Return the softmax over the tokens of the mask; 0 elsewhere.

    Args:
        scores: `[..., heads, rows, L]`.
        mask: `[..., L]`; None counts all. A sample without any token has weights 0.
    """
    # Without any token the maximum is -inf and the sum 0: neither may give a NaN.
    m = spread(mask, scores) > 0
    top = jnp.max(scores, axis=-1, keepdims=True, where=m, initial=-jnp.inf)
    e = jnp.where(m, jnp.exp(scores - jnp.where(jnp.isfinite(top), top, 0)), 0)
    return e / jnp.maximum(e.sum(-1, keepdims=True), finfo(e.dtype).tiny)


def attention_r2(weights: jax.Array, scores: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the R² of attention weights, relative to uniform attention.

    1 is the softmax, 0 no better than equal weights, below 0 worse: 1 - sum of squared
    errors over that of uniform attention, over the rows and columns of tokens.

    Args:
        weights: An emulator's, `[n, heads, rows, L]`.
        scores: Of the same shape.
        mask: `[n, L]`.

    Returns:
        A scalar.
    """
    exact = softmax(scores, mask)
    rows = mask[:, None, : scores.shape[-2], None]
    counted = mask[:, None, None, :].astype(bool) & rows.astype(bool)

    def squared(w: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(counted, w - exact, 0) ** 2)

    return 1 - squared(weights) / squared(shares(mask, scores))
