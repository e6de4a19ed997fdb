"""From a target to a proxy: bottom layers, best heads, emulators fitted ex vivo."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import nnx

from jaxsel._chunk import chunk_slices, take_rows
from jaxsel.models import Encoder, Target, Tokens

from ._attention import attention_emulator, observe_attention
from ._entropy import entropy_emulator
from ._exvivo import Source, train_mlps
from ._forward import Params, run
from ._heads import weight_importance
from ._manifest import Emulator, Layer, Manifest
from ._mlp import Nonlinearity
from ._norm import norm_emulator
from ._probe import Probe, initial_probe
from ._proxy import Proxy
from ._spec import Spec, manifest as describe

_EXACT = Emulator("exact")
_BATCH = 64  # samples that are embedded at once


def embedder(target: Target) -> tuple[nnx.GraphDef, Any]:
    """Return the part of a target that embeds its inputs, split.

    `nnx.merge(*embedder(target)).embed(inputs)` gives rows `[n, L, H]`. With
    `embed="public"` this is the public base model's, and the data owner runs it.
    """
    encoder: Encoder = nnx.merge(target.graphdef, target.params).encoder
    encoder.layers = nnx.List([])
    if target.config.pre_norm:
        del encoder.final_norm
    return nnx.split(encoder)


def embed(target: Target, inputs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Embed samples in the clear: rows `[n, L, H]` and their mask `[n, L]`, float32.

    Args:
        target: The public base model.
        inputs: `Tokens` or images.

    Raises:
        TypeError: If tokens are not integers.
        ValueError: If `inputs` doesn't fit the model.
    """
    inputs = target.check(inputs)
    graphdef, params = embedder(target)
    n = len(jax.tree.leaves(inputs)[0])
    rows = min(_BATCH, 1 << (n - 1).bit_length())
    parts = [
        _embed(graphdef, params, take_rows(inputs, chunk, rows))
        for chunk in chunk_slices(n, rows)
    ]
    x = np.concatenate([np.asarray(part) for part in parts])[:n]
    mask = inputs.mask if isinstance(inputs, Tokens) else np.ones(x.shape[:2])
    return x, np.asarray(mask, np.float32)


@functools.partial(jax.jit, static_argnames="graphdef")
def _embed(graphdef: nnx.GraphDef, params: Any, inputs: Any) -> jax.Array:
    tokens = inputs.ids if isinstance(inputs, Tokens) else inputs
    return nnx.merge(graphdef, params).embed(tokens)


def target_manifest(
    spec: Spec,
    target: Target,
    *,
    classes: int,
    length: int | None = None,
    score: Literal["entropy", "prior_entropy", "margin"] = "entropy",
) -> Manifest:
    """Return the manifest of a proxy of this target.

    Args:
        spec: The proxy.
        target: The target: sizes are taken from its architecture.
        classes: Classes.
        length: Padded length of a text; images have their patches.
        score: What samples are ranked by.

    Raises:
        ValueError: If the target has fewer layers or heads, or a text no length.
    """
    config = target.config
    text = config.kind == "text"
    if text and length is None:
        raise ValueError("length must be given for texts, got None")
    return describe(
        spec,
        layers=config.layers,
        heads=config.heads,
        head_width=config.hidden // config.heads,
        hidden=config.hidden,
        length=length if text and length is not None else config.length,
        classes=classes,
        kind="tokens" if text else "patches",
        intermediate=config.intermediate,
        vocab=config.vocab or None,
        pre_norm=config.pre_norm,
        score=score,
    )


def prune(
    target: Target, manifest: Manifest, *, importance: npt.ArrayLike | None = None
) -> Proxy:
    """Return a proxy, its emulators still to be fitted.

    Each layer keeps its most important heads; the others' columns and rows go. Weights
    are the target's; so is the head where it has as many classes and no hidden layer.
    Else a linear head is zero, and one with hidden units random.

    Args:
        target: The target; if it was fine-tuned, so is the proxy.
        manifest: The proxy's architecture.
        importance: Of each head of the target, `[layers, heads]`; if None, how far its
            values reach (`weight_importance`). `gradient_importance` asks a loss.

    Raises:
        ValueError: If the target has fewer layers or heads, or other widths.
    """
    model: Any = nnx.merge(target.graphdef, target.params)
    config = target.config
    if config.layers < len(manifest.layers) or config.hidden != manifest.inputs.width:
        raise ValueError(
            f"manifest has {len(manifest.layers)} layers of width "
            f"{manifest.inputs.width}, which is no part of a target with "
            f"{config.layers} layers of width {config.hidden}"
        )
    weights = weight_importance(target) if importance is None else importance
    weights = np.asarray(weights)
    if weights.shape != (config.layers, config.heads):
        raise ValueError(
            f"importance must have shape {(config.layers, config.heads)}, got "
            f"{weights.shape}"
        )
    layers = [
        _pruned(source, layer, by_head)
        for source, layer, by_head in zip(
            model.encoder.layers, manifest.layers, weights, strict=False
        )
    ]
    params: Params = {
        "layers": layers,
        "head": _head(model, manifest),
        "offset": jnp.zeros(manifest.head.classes),
        "score": {},
    }
    if manifest.final_norm is not None:
        params["final_norm"] = _norm(model.encoder.final_norm)
    return Proxy(manifest, params)


def _pruned(source: Any, layer: Layer, importance: np.ndarray) -> Params:
    width = source.query.kernel.shape[1] // source.heads
    if layer.heads > source.heads or layer.head_width != width:
        raise ValueError(
            f"manifest has {layer.heads} heads of width {layer.head_width}, the target "
            f"{source.heads} of width {width}"
        )
    heads = np.sort(np.argsort(-importance, kind="stable")[: layer.heads])
    columns = (heads[:, None] * width + np.arange(width)).ravel()
    params: Params = {
        name: (linear.kernel[...][:, columns], linear.bias[...][columns])
        for name, linear in (
            ("query", source.query),
            ("key", source.key),
            ("value", source.value),
        )
    }
    params["out"] = source.out.kernel[...][columns], source.out.bias[...]
    params["attention"] = {}
    params["norm"] = _norm(source.attention_norm)
    if layer.ffn is not None:
        params["ffn"] = {
            "up": (source.up.kernel[...], source.up.bias[...]),
            "down": (source.down.kernel[...], source.down.bias[...]),
            "norm": _norm(source.output_norm),
        }
    return params


def _norm(norm: Any) -> Params:
    return {"gamma": norm.scale[...], "beta": norm.bias[...], "emulator": {}}


def _head(model: Any, manifest: Manifest) -> Probe:
    width, classes, units = (
        manifest.inputs.width,
        manifest.head.classes,
        manifest.head.width,
    )
    head = model.head
    if head is not None and not units and head.kernel.shape == (width, classes):
        return Probe((head.kernel[...],), (head.bias[...],))
    sizes = (width, units, classes) if units else (width, classes)
    return initial_probe(sizes, jax.random.key(0), random=units > 0)


def exactly(manifest: Manifest) -> Manifest:
    """Return a manifest with every emulator undone: what the emulators imitate."""
    layers = tuple(
        dataclasses.replace(layer, attention=_EXACT, norm=_EXACT)
        for layer in manifest.layers
    )
    final = None if manifest.final_norm is None else _EXACT
    score = dataclasses.replace(manifest.score, secure=_EXACT)
    return dataclasses.replace(manifest, layers=layers, final_norm=final, score=score)


def emulate(
    proxies: Sequence[Proxy],
    x: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array | None,
    *,
    key: jax.Array,
    source: Source = "rows",
    n_points: int = 1_024_000,
) -> list[Proxy]:
    """Fit proxies' emulators ex vivo, each to its inputs where nothing is emulated.

    Those with a closed form are fitted by it; the MLPs of all proxies are trained in
    one loop.

    Args:
        proxies: Those of `prune`, or probes.
        x: Embedded samples of the bootstrap set, `[n, L, H]`, or their features.
        mask: `[n, L]`; all rows if None.
        key: Of the MLPs.
        source: What MLPs are trained on, see `train_mlps`.
        n_points: Likewise.

    Returns:
        The proxies with emulators.
    """
    x = jnp.asarray(x)
    mask = jnp.ones(x.shape[:2]) if mask is None else jnp.asarray(mask)
    jobs: list[tuple[int, Nonlinearity, Params, str]] = []
    fitted = [_emulate(proxy, x, mask, key, jobs) for proxy in proxies]
    if jobs:
        widths = sorted({width for width, *_ in jobs})
        trained = train_mlps(
            [job for _, job, _, _ in jobs],
            widths,
            key=key,
            source=source,
            n_points=n_points,
        )
        for (width, _, place, name), by_width in zip(jobs, trained, strict=True):
            place[name] = by_width[width].best()
    return fitted


def _emulate(
    proxy: Proxy,
    x: jax.Array,
    mask: jax.Array,
    key: jax.Array,
    jobs: list[tuple[int, Nonlinearity, Params, str]],
) -> Proxy:
    """Fit what has a closed form, and note the MLPs with the places they go to."""
    manifest = proxy.manifest
    shown = mask if manifest.layers else None
    exact = exactly(manifest)
    logits, (seen, final) = _observe(proxy.params, x, shown, manifest=exact)
    params = jax.tree.map(lambda leaf: leaf, proxy.params)  # new containers to fill

    def fit(entry: Emulator, place: Params, name: str, role: str, data: Any) -> None:
        if entry.family == "none":
            return
        if entry.family == "mlp":
            width = entry.width or 1
            jobs.append((width, _nonlinearity(role, data, mask), place, name))
        else:
            place[name] = _closed(role, entry, data, mask, key)

    for layer, found, activations in zip(
        manifest.layers, params["layers"], seen, strict=True
    ):
        fit(layer.attention, found, "attention", "attention", activations.scores)
        norms = [found["norm"]] + ([found["ffn"]["norm"]] if layer.ffn else [])
        for norm, variance in zip(norms, activations.variances, strict=True):
            real = _real(variance, mask)
            fit(layer.norm, norm, "emulator", "norm", real)
    if manifest.final_norm is not None:
        real = _real(final, mask)
        fit(manifest.final_norm, params["final_norm"], "emulator", "norm", real)
    fit(manifest.score.secure, params, "score", "entropy", logits - params["offset"])
    return Proxy(manifest, params)


_observe = jax.jit(run, static_argnames="manifest")


def _real(variance: Any, mask: jax.Array) -> np.ndarray:
    """Leave out the rows of padding, `[rows]`."""
    rows = np.asarray(mask, bool)[:, : variance.shape[1]]
    return np.asarray(variance)[rows]


def _nonlinearity(role: str, data: Any, mask: jax.Array) -> Nonlinearity:
    if role == "attention":
        return observe_attention(data, mask)
    if role == "norm":
        return Nonlinearity.observe("rsqrt", np.ravel(data), eps=1e-12)
    return Nonlinearity.observe("entropy", data)


def _closed(
    role: str, entry: Emulator, data: Any, mask: jax.Array, key: jax.Array
) -> Params:
    if role == "attention":
        return attention_emulator(entry.entry()).fit(data, mask, key=key)
    if role == "norm":
        return norm_emulator(entry.entry()).fit(data, key=key)
    return entropy_emulator(entry.entry()).fit(data, key=key)
