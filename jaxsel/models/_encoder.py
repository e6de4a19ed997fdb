"""Transformer encoders for texts and images, and a classifier on top of one."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from jaxsel._inputs.checks import check_choice, check_count

from ._layer import EncoderConfig, EncoderLayer, make_norm
from ._tokens import Tokens

Read = Literal["cls", "mean"]
Between = Literal["tanh", "relu"]
"""The activation of a layer between the first row and the head."""


class Encoder(nnx.Module):
    """An encoder of texts (BERT and relatives) or images (ViT), without dropout.

    A forward pass costs about 12 L H² + 2 L² H multiplications a layer and sample.

    Args:
        config: The architecture.
        rngs: The key of the initial weights.
    """

    def __init__(self, config: EncoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        hidden = config.hidden
        if config.kind == "text":
            self.words = nnx.Embed(config.vocab, hidden, rngs=rngs)
            self.positions = _table(config.positions, hidden, rngs)
            if config.types:
                self.types = _table(config.types, hidden, rngs)
            self.embed_norm = make_norm(config, rngs)
        else:
            pixels = config.patch**2 * config.channels
            self.patches = nnx.Linear(pixels, hidden, rngs=rngs)
            self.cls = _table(1, hidden, rngs)
            self.positions = _table(config.length, hidden, rngs)
        self.layers = nnx.List(
            EncoderLayer(config, rngs=rngs) for _ in range(config.layers)
        )
        if config.pre_norm:
            self.final_norm = make_norm(config, rngs)

    def embed(self, inputs: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        """Map tokens `[n, L]` or images `[n, side, side, channels]` to `[n, L, H]`.

        Args:
            inputs: Tokens or images.
            mask: Text: `[n, L]` bool, which tokens are no padding. RoBERTa numbers
                those alone, so that padding may stand on either side.
        """
        config = self.config
        if config.kind == "text":
            if inputs.ndim != 2 or inputs.shape[1] > config.length:
                raise ValueError(
                    "inputs must be tokens of shape [n, L] with L at most "
                    f"{config.length}, got shape {inputs.shape}"
                )
            if config.position_offset:
                padding = config.position_offset - 1
                counted = inputs != padding
                counted = counted if mask is None else counted & mask
                places = padding + jnp.cumsum(counted, 1) * counted
            else:
                places = jnp.arange(inputs.shape[1])
            x = self.words(inputs) + self.positions[...][places]
            return self.embed_norm(x + self.types[0] if config.types else x)
        shape = (config.side, config.side, config.channels)
        if inputs.shape[1:] != shape:
            raise ValueError(
                f"inputs must be images of shape {('n', *shape)}, got {inputs.shape}"
            )
        n, side, patch = len(inputs), config.side // config.patch, config.patch
        x = inputs.reshape(n, side, patch, side, patch, config.channels)
        x = self.patches(x.transpose(0, 1, 3, 2, 4, 5).reshape(n, side**2, -1))
        first = jnp.broadcast_to(self.cls[...], (n, 1, config.hidden))
        return jnp.concatenate([first, x], axis=1) + self.positions[...]

    def __call__(
        self, inputs: jax.Array | Tokens, mask: jax.Array | None = None
    ) -> jax.Array:
        """Return the last layer's rows, `[n, L, H]`.

        Args:
            inputs: `Tokens`, tokens `[n, L]`, or images `[n, side, side, channels]`.
            mask: Text: `[n, L]` bool, which tokens are no padding; if None, the mask of
                `Tokens`, or all.
        """
        inputs, mask = _unpack(inputs, mask)
        x = self.embed(inputs, mask)
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_norm(x) if self.config.pre_norm else x


class Classifier(nnx.Module):
    """An encoder, one row or the mean of its rows, and a linear head.

    Args:
        config: The encoder's architecture.
        n_classes: Number of classes; None for an encoder that gives features only.
        read: "cls" takes the first row, "mean" the mean over the mask.
        between: The activation of a layer of the same width in front of the head, as
            BERT's pooler ("tanh") and DistilBERT's ("relu"); None for no such layer.
        rngs: The key of the initial weights.
    """

    def __init__(
        self,
        config: EncoderConfig,
        n_classes: int | None,
        *,
        read: Read = "cls",
        between: Between | None = None,
        rngs: nnx.Rngs,
    ):
        check_choice("read", read, ("cls", "mean"))
        self.encoder = Encoder(config, rngs=rngs)
        self.read: Read = read
        if between is not None:
            check_choice("between", between, ("tanh", "relu"))
            self.pooler = nnx.Linear(config.hidden, config.hidden, rngs=rngs)
        self.between: Between | None = between
        self.head = None if n_classes is None else make_head(config, n_classes, rngs)

    def features(
        self, inputs: jax.Array | Tokens, mask: jax.Array | None = None
    ) -> jax.Array:
        """Return the row that the head, or a layer in front of it, reads, `[n, H]`."""
        inputs, mask = _unpack(inputs, mask)
        return pool(self.encoder(inputs, mask), mask, read=self.read)

    def __call__(
        self, inputs: jax.Array | Tokens, mask: jax.Array | None = None
    ) -> jax.Array:
        """Return logits, `[n, classes]`; arguments as for `Encoder`."""
        if self.head is None:
            raise ValueError("this model has no head: load it with n_classes=")
        return self.head(self.head_input(self.features(inputs, mask)))

    def head_input(self, row: jax.Array) -> jax.Array:
        """Return the head's input `[n, H]`: features, through a layer if there is one.

        Args:
            row: Features, `[n, H]`.
        """
        if self.between is None:
            return row
        activate = jnp.tanh if self.between == "tanh" else jax.nn.relu
        return activate(self.pooler(row))


def pool(x: jax.Array, mask: jax.Array | None, *, read: Read) -> jax.Array:
    """Reduce rows `[n, L, H]` to `[n, H]`: the first one, or the mean over the mask."""
    if read == "cls":
        return x[:, 0]
    if mask is None:
        return x.mean(1)
    weights = mask.astype(x.dtype)
    total = jnp.einsum("nl,nlh->nh", weights, x)
    return total / jnp.maximum(weights.sum(1, keepdims=True), 1)


def make_head(config: EncoderConfig, n_classes: int, rngs: nnx.Rngs) -> nnx.Linear:
    """Return a fresh head, its weights small so that training starts from a tie."""
    check_count("n_classes", n_classes)
    small = nnx.initializers.normal(0.02)
    return nnx.Linear(config.hidden, n_classes, kernel_init=small, rngs=rngs)


def _table(rows: int, hidden: int, rngs: nnx.Rngs) -> nnx.Param:
    return nnx.Param(0.02 * jax.random.normal(rngs.params(), (rows, hidden)))


def _unpack(
    inputs: jax.Array | Tokens, mask: jax.Array | None
) -> tuple[jax.Array, jax.Array | None]:
    if isinstance(inputs, Tokens):
        return inputs.ids, inputs.mask if mask is None else mask
    return inputs, mask
