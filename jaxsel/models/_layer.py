"""A layer of a transformer encoder, and the parts that emulators take the place of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from jaxsel._inputs.checks import (
    check_choice,
    check_count,
    check_positive,
    wide_type,
)

Softmax = Callable[[jax.Array, jax.Array | None], jax.Array]
Norm = Callable[[nnx.LayerNorm, jax.Array], jax.Array]

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": lambda x: nnx.gelu(x, approximate=False),
    "gelu_tanh": nnx.gelu,
    "relu": nnx.relu,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The architecture of an encoder, without its weights.

    Attributes:
        kind: "text" (rows are tokens) or "image" (rows are patches).
        layers: Number of layers.
        heads: Attention heads of each layer; they share `hidden` equally.
        hidden: Width of a row, H.
        intermediate: Hidden units of the feed-forward part.
        eps: Added to a variance before its root.
        activation: "gelu" (exact), "gelu_tanh" or "relu".
        pre_norm: Whether a layer normalises the inputs of its two parts (ViT), rather
            than each sum (BERT). Then the last layer is followed by a norm.
        vocab: Text: number of tokens.
        positions: Text: rows of the table of positions.
        types: Text: rows of the table of token types, of which the first is used; 0
            where there is none (DistilBERT).
        position_offset: Text: row of the first token in the table of positions (2 in
            RoBERTa).
        side: Image: height and width, in pixels.
        patch: Image: height and width of a patch.
        channels: Image: channels of a pixel.
    """

    kind: Literal["text", "image"]
    layers: int
    heads: int
    hidden: int
    intermediate: int
    eps: float = 1e-12
    activation: str = "gelu"
    pre_norm: bool = False
    vocab: int = 0
    positions: int = 0
    types: int = 0
    position_offset: int = 0
    side: int = 0
    patch: int = 0
    channels: int = 0

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("text", "image"))
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        check_positive("eps", self.eps, zero=True)
        text = self.kind == "text"
        sizes = ("vocab", "positions") if text else ("side", "patch", "channels")
        for name in ("layers", "heads", "hidden", "intermediate", *sizes):
            check_count(name, getattr(self, name))
        for name in ("types", "position_offset"):
            check_count(name, getattr(self, name), minimum=0)
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden must be a multiple of heads = {self.heads}, got {self.hidden}"
            )
        if not text and self.side % self.patch:
            raise ValueError(
                f"side must be a multiple of patch = {self.patch}, got {self.side}"
            )

    @property
    def length(self) -> int:
        """Number of rows of an image, or the maximum for a text."""
        if self.kind == "text":
            return self.positions - self.position_offset
        return (self.side // self.patch) ** 2 + 1


class EncoderLayer(nnx.Module):
    """One layer: attention, then a feed-forward part, each with a residual and a norm.

    The functions `attention_scores`, `weighted_values` and `norm_input` are its parts.

    Args:
        config: The architecture.
        rngs: The key of the initial weights.
    """

    def __init__(self, config: EncoderConfig, *, rngs: nnx.Rngs):
        hidden, wide = config.hidden, config.intermediate
        self.heads = config.heads
        self.activation = config.activation
        self.pre_norm = config.pre_norm
        self.query = nnx.Linear(hidden, hidden, rngs=rngs)
        self.key = nnx.Linear(hidden, hidden, rngs=rngs)
        self.value = nnx.Linear(hidden, hidden, rngs=rngs)
        self.out = nnx.Linear(hidden, hidden, rngs=rngs)
        self.attention_norm = make_norm(config, rngs)
        self.up = nnx.Linear(hidden, wide, rngs=rngs)
        self.down = nnx.Linear(wide, hidden, rngs=rngs)
        self.output_norm = make_norm(config, rngs)

    def __call__(
        self,
        x: jax.Array,
        mask: jax.Array | None = None,
        *,
        softmax: Softmax | None = None,
        norm: Norm | None = None,
    ) -> jax.Array:
        """Map rows `[n, L, H]` to rows `[n, L, H]`.

        Args:
            x: Rows.
            mask: `[n, L]` bool: which rows are no padding; all if None.
            softmax: Function from scores and mask to attention weights;
                `masked_softmax` if None.
            norm: Function that applies this layer's two norms; the norm itself if None.
        """
        softmax = masked_softmax if softmax is None else softmax
        norm = _apply if norm is None else norm

        def attend(x: jax.Array) -> jax.Array:
            return weighted_values(self, x, softmax(_scores(self, x, mask), mask))

        def feed(x: jax.Array) -> jax.Array:
            return self.down(ACTIVATIONS[self.activation](self.up(x)))

        if self.pre_norm:
            x = x + attend(norm(self.attention_norm, x))
            return x + feed(norm(self.output_norm, x))
        x = norm(self.attention_norm, x + attend(x))
        return norm(self.output_norm, x + feed(x))


def attention_scores(
    layer: EncoderLayer, x: jax.Array, mask: jax.Array | None = None
) -> jax.Array:
    """Return a layer's scores before the softmax, `[n, heads, L, L]`.

    They are divided by the root of the head's width; the last axis is of the rows
    attended to, and 0 where they are padding.

    Args:
        layer: The layer.
        x: Input of the layer, `[n, L, H]`.
        mask: `[n, L]` bool; all rows if None.
    """
    return _scores(layer, layer.attention_norm(x) if layer.pre_norm else x, mask)


def masked_softmax(scores: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Return attention weights `[n, heads, L, L]`: the softmax over the mask.

    Computed in float32 at least. Where the mask is empty, weights are equal.
    """
    wide = wide_type(scores.dtype)
    if mask is not None:
        scores = jnp.where(mask[:, None, None, :], scores, jnp.finfo(wide).min)
    return jax.nn.softmax(scores.astype(wide), axis=-1).astype(scores.dtype)


def weighted_values(layer: EncoderLayer, x: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the output of attention, before it is added to a residual, `[n, L, H]`.

    Args:
        layer: The layer.
        x: Input of its attention, `[n, L, H]`: with `pre_norm`, after the norm.
        weights: Attention weights, `[n, heads, L, L]`.
    """
    values = _split(layer.value(x), layer.heads)
    mixed = jnp.einsum("nhqk,nkhw->nqhw", weights.astype(values.dtype), values)
    return layer.out(mixed.reshape(*mixed.shape[:2], -1))


def norm_input(
    layer: EncoderLayer, x: jax.Array, mask: jax.Array | None = None
) -> jax.Array:
    """Return the input of a layer's attention norm, `[n, L, H]`.

    An emulator of the norm has to invert the variance over its last axis.

    Args:
        layer: The layer.
        x: Input of the layer, `[n, L, H]`.
        mask: `[n, L]` bool; all rows if None.
    """
    if layer.pre_norm:
        return x
    weights = masked_softmax(_scores(layer, x, mask), mask)
    return x + weighted_values(layer, x, weights)


def _scores(layer: EncoderLayer, x: jax.Array, mask: jax.Array | None) -> jax.Array:
    queries = _split(layer.query(x), layer.heads)
    keys = _split(layer.key(x), layer.heads)
    scores = jnp.einsum("nqhw,nkhw->nhqk", queries, keys) * queries.shape[-1] ** -0.5
    return scores if mask is None else scores * mask[:, None, None, :]


def _split(x: jax.Array, heads: int) -> jax.Array:
    return x.reshape(*x.shape[:-1], heads, -1)


def _apply(norm: nnx.LayerNorm, x: jax.Array) -> jax.Array:
    return norm(x)


def make_norm(config: EncoderConfig, rngs: nnx.Rngs) -> nnx.LayerNorm:
    # The fast variance, E[x²] − E[x]², loses digits where the mean is large.
    return nnx.LayerNorm(
        config.hidden, epsilon=config.eps, use_fast_variance=False, rngs=rngs
    )
