"""A proxy's forward pass, driven by its manifest; the secure run computes the same.

Parameters are a plain pytree:

    {"inputs": {"embed": (table, positions), "norm": {...}},
     "layers": [{"query": (w, b), "key": (w, b), "value": (w, b), "out": (w, b),
                 "attention": {...}, "norm": {"gamma", "beta", "emulator": {...}},
                 "ffn": {"up": (w, b), "down": (w, b), "norm": {...}}}, ...],
     "final_norm": {"gamma", "beta", "emulator": {...}},
     "head": Probe, "offset": [C], "score": {...}}

`inputs` is there for one-hot words: a table `[V, H]` and the rows of the positions,
`[L, H]`. `ffn` and `final_norm` are there where the manifest has them. `offset` is the
logarithm of the prior, that comes off the logits before the score; the model owner
folds it into the head's bias.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Shaped

from jaxsel._inputs.show import brief

from ._manifest import Emulator, Layer, Manifest
from ._mlp import along, dense
from .families import (
    ACTIVATIONS,
    attention_of,
    norm_of,
    score_of,
)

Params = dict[str, Any]


@brief
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Activations:
    """Inputs of the non-linear parts of one layer.

    Attributes:
        scores: Before the softmax, `[n, heads, rows, L]`; `rows` is 1 in the last layer
            where the classifier reads the first row, else L.
        variances: Of the rows that the norms centre, `[n, rows]` each: the attention's,
            and the feed-forward part's where there is one.
        hidden: The largest absolute value that each sample gives the activation of the
            feed-forward part, `[n]`; None where there is none.
    """

    scores: jax.Array
    variances: tuple[jax.Array, ...]
    hidden: jax.Array | None


class Seen(NamedTuple):
    """Inputs of all of a proxy's non-linear parts.

    Attributes:
        layers: Of every layer.
        embedded: The variances before the norm of a secret table's rows, `[n, L]`.
        final: The variances before the final norm, `[n, rows]`.
    """

    layers: list[Activations]
    embedded: jax.Array | None
    final: jax.Array | None


def proxy_logits(
    params: Params,
    x: Float[jax.Array, "n L H"] | Int[jax.Array, "n L"] | Float[jax.Array, "n d"],
    mask: Shaped[jax.Array, "n L"] | None,
    *,
    manifest: Manifest,
) -> Float[jax.Array, "n C"]:
    """Return the logits of embedded samples: a pure kernel.

    Args:
        params: The proxy's parameters, see above.
        x: Rows after embedding, `[n, L, H]`; token ids `[n, L]` for one-hot words;
            features `[n, d]` for a probe.
        mask: `[n, L]`, which rows are no padding; all if None.
        manifest: The architecture: static under `jit`.

    Returns:
        Array of shape `[n, C]`.
    """
    return run(params, x, mask, manifest=manifest)[0]


def proxy_scores(
    params: Params, logits: Float[jax.Array, "*n C"], *, manifest: Manifest
) -> Float[jax.Array, "*n"]:
    """Return the scores that the secure run ranks by: a pure kernel.

    Where the manifest's secure form is "square" or "mlp" these are its values, not the
    exact score's.

    Args:
        params: The proxy's parameters, as for `proxy_logits`.
        logits: Array of shape `[..., C]`, of `proxy_logits`.
        manifest: The architecture: static under `jit`.

    Returns:
        Array of shape `[...]`; the highest are chosen.
    """
    logits = logits - along(params["offset"], logits)
    secure = score_of(manifest.score.secure)
    return secure.rank(params["score"], logits, manifest.score.kind)


def run(
    params: Params, x: jax.Array, mask: jax.Array | None, *, manifest: Manifest
) -> tuple[jax.Array, Seen]:
    """Return logits, and the inputs of the non-linear parts."""
    layers, embedded, final = [], None, None
    if manifest.inputs.embed == "onehot":
        table, positions = params["inputs"]["embed"]
        x = table[x] + positions[None]
        assert manifest.inputs.norm is not None
        x, embedded = _norm(params["inputs"]["norm"], manifest.inputs.norm, x)
    mask = None if mask is None else mask.astype(x.dtype)
    for i, layer in enumerate(manifest.layers):
        last = i == len(manifest.layers) - 1
        # The classifier reads the first row alone: the last layer computes no other.
        rows = 1 if last and manifest.read == "cls" else x.shape[1]
        x, activations = _layer(params["layers"][i], layer, x, mask, rows)
        layers.append(activations)
    if manifest.final_norm is not None:
        if manifest.read == "cls":
            x = x[:, :1]
        x, final = _norm(params["final_norm"], manifest.final_norm, x)
    if manifest.read == "cls":
        x = x[:, 0]
    elif manifest.read == "mean":
        if mask is None:
            x = x.mean(1)
        else:
            total = jnp.einsum("nl,nlh->nh", mask, x)
            # A sample of padding alone has the mean 0, not NaN.
            x = total / jnp.maximum(mask.sum(1, keepdims=True), 1)
    return params["head"](x), Seen(layers, embedded, final)


def _layer(
    params: Params, layer: Layer, x: jax.Array, mask: jax.Array | None, rows: int
) -> tuple[jax.Array, Activations]:
    variances: list[jax.Array] = []
    largest: jax.Array | None = None
    # Norms stand before the two parts (ViT) or after the sums (BERT).
    read = x
    if layer.pre_norm:
        read, variance = _norm(params["norm"], layer.norm, x)
        variances.append(variance)
    added, scores = _attend(params, layer, read, mask, rows)
    x = x[:, :rows] + added
    if not layer.pre_norm:
        x, variance = _norm(params["norm"], layer.norm, x)
        variances.append(variance)
    if layer.ffn is not None:
        ffn, inner = params["ffn"], x
        if layer.pre_norm:
            inner, variance = _norm(ffn["norm"], layer.norm, x)
            variances.append(variance)
        up = dense(inner, *ffn["up"])
        largest = jnp.abs(up).max((1, 2))
        hidden = ACTIVATIONS[layer.ffn.activation].apply(up)
        x = x + dense(hidden, *ffn["down"])
        if not layer.pre_norm:
            x, variance = _norm(ffn["norm"], layer.norm, x)
            variances.append(variance)
    return x, Activations(scores, tuple(variances), largest)


def _attend(
    params: Params, layer: Layer, x: jax.Array, mask: jax.Array | None, rows: int
) -> tuple[jax.Array, jax.Array]:
    def split(x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:2], layer.heads, layer.head_width)

    query = split(dense(x[:, :rows], *params["query"]))
    key, value = (split(dense(x, *params[name])) for name in ("key", "value"))
    scores = jnp.einsum("nqhw,nkhw->nhqk", query, key) * layer.head_width**-0.5
    emulator = attention_of(layer.attention)
    weights = emulator.apply(params["attention"], scores, mask)
    mixed = jnp.einsum("nhqk,nkhw->nqhw", weights, value)
    return dense(mixed.reshape(*mixed.shape[:2], -1), *params["out"]), scores


def _norm(params: Params, entry: Emulator, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return normed rows, and the variance of each."""
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.mean(centred**2, axis=-1)
    family = norm_of(entry)
    if not family.normalises:
        return x, variance
    factor = family.apply(params["emulator"], variance)
    gamma, beta = (along(params[name], x) for name in ("gamma", "beta"))
    return centred * factor[..., None] * gamma + beta, variance
