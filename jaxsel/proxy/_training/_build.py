"""From a target to a proxy: bottom layers, best heads, emulators fitted ex vivo."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import nnx

from jaxsel._devices.typed import jit, tree_map
from jaxsel._inputs.chunk import chunk_slices, take_rows
from jaxsel.models import Encoder, Target, Tokens
from jaxsel.proxy._exvivo import Source, train_mlps
from jaxsel.proxy._forward import Params
from jaxsel.proxy._manifest import Emulator, Kind, Layer, Manifest
from jaxsel.proxy._mlp import Nonlinearity
from jaxsel.proxy._observe import Observed
from jaxsel.proxy._probe import Probe, initial_probe
from jaxsel.proxy._proxy import Proxy
from jaxsel.proxy._spec import Spec, manifest as describe
from jaxsel.proxy.families import attention_of, norm_of, score_of

from ._heads import weight_importance

_EXACT = Emulator("exact")
_BATCH = 64  # samples that are embedded at once


def embedder(target: Target) -> tuple[nnx.GraphDef[Any], Any]:
    """Return the part of a target that embeds its inputs, split.

    `nnx.merge(*embedder(target)).embed(inputs)` gives rows `[n, L, H]`. With
    `embed="public"` this is the public base model's, and the data owner runs it.

    Args:
        target: A model that `models.load_target` returned, or one fine-tuned.
    """
    encoder: Encoder = nnx.merge(target.graphdef, target.params).encoder
    encoder.layers = nnx.List([])
    if target.config.pre_norm:
        del encoder.final_norm
    return cast(tuple[nnx.GraphDef[Any], Any], nnx.split(encoder))


def embed(target: Target, inputs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Embed samples in the clear: rows `[n, L, H]` and their mask `[n, L]`, float32.

    Args:
        target: The public base model.
        inputs: `Tokens` or images.

    Returns:
        The rows, and 1 for those that are no padding.

    Raises:
        TypeError: If tokens are not integers.
        ValueError: If `inputs` doesn't fit the model.
    """
    inputs = target.check(inputs)
    graphdef, params = embedder(target)
    n = len(jax.tree.leaves(inputs)[0])
    # A power of two for few samples, so that few shapes are compiled.
    rows = min(_BATCH, 1 << (n - 1).bit_length())
    parts = [
        _embed(graphdef, params, take_rows(inputs, chunk, rows))
        for chunk in chunk_slices(n, rows)
    ]
    x = np.concatenate([np.asarray(part) for part in parts])[:n]
    mask = inputs.mask if isinstance(inputs, Tokens) else np.ones(x.shape[:2])
    return x, np.asarray(mask, np.float32)


def proxy_inputs(
    manifest: Manifest, base: Target, inputs: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return samples as a proxy reads them, and their mask `[n, L]`.

    Rows of the public base model, or where its table is secret token ids `[n, L]`.

    Args:
        manifest: The proxy's.
        base: The public base model.
        inputs: `Tokens` or images.

    Raises:
        TypeError: If tokens are not integers.
        ValueError: If `inputs` doesn't fit the model.
    """
    if manifest.inputs.embed == "public":
        return embed(base, inputs)
    tokens: Any = base.check(inputs)
    if base.config.position_offset and (tokens.mask[:, 1:] > tokens.mask[:, :-1]).any():
        raise ValueError(
            "inputs must be padded on the right where the table of tokens is secret: "
            "positions of this model follow the mask, and the proxy's are fixed; or "
            "take embed='public'"
        )
    return np.asarray(tokens.ids, np.int32), np.asarray(tokens.mask, np.float32)


@jit(static_argnames="graphdef")
def _embed(graphdef: nnx.GraphDef[Any], params: Any, inputs: Any) -> jax.Array:
    model = nnx.merge(graphdef, params)
    if isinstance(inputs, Tokens):
        return model.embed(inputs.ids, inputs.mask)
    return model.embed(inputs)


def target_manifest(
    spec: Spec,
    target: Target,
    *,
    n_classes: int,
    length: int | None = None,
    score: Kind = "entropy",
) -> Manifest:
    """Return the manifest of a proxy of this target.

    Args:
        spec: The proxy.
        target: The target: sizes are taken from its architecture.
        n_classes: Classes.
        length: Padded length of a text; images have their patches.
        score: Score that ranks the samples.

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
        n_classes=n_classes,
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
        "offset": jnp.zeros(manifest.head.n_classes),
        "score": {},
    }
    if manifest.final_norm is not None:
        params["final_norm"] = _norm(model.encoder.final_norm)
    if manifest.inputs.embed == "onehot":
        params["inputs"] = _embedding(model.encoder, manifest.inputs.length)
    return Proxy(manifest, params)


def _pruned(source: Any, layer: Layer, importance: np.ndarray) -> Params:
    width: int = source.query.kernel.shape[1] // source.heads
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


def _embedding(encoder: Any, length: int) -> Params:
    first = encoder.config.position_offset
    places = encoder.positions[...][first : first + length]
    if encoder.config.types:
        places = places + encoder.types[...][0]
    table = encoder.words.embedding[...]
    return {"embed": (table, places), "norm": _norm(encoder.embed_norm)}


def _norm(norm: Any) -> Params:
    return {"gamma": norm.scale[...], "beta": norm.bias[...], "emulator": {}}


def _head(model: Any, manifest: Manifest) -> Probe:
    width, n_classes, units = (
        manifest.inputs.width,
        manifest.head.n_classes,
        manifest.head.width,
    )
    # A head behind a layer of its own reads no row that a proxy has.
    head = model.head if model.between is None else None
    if head is not None and not units and head.kernel.shape == (width, n_classes):
        return Probe((head.kernel[...],), (head.bias[...],))
    sizes = (width, units, n_classes) if units else (width, n_classes)
    return initial_probe(sizes, jax.random.key(0), random=units > 0)


def exactly(manifest: Manifest) -> Manifest:
    """Return the manifest with the exact function in place of each emulator.

    Args:
        manifest: Of a proxy.
    """
    layers = tuple(
        dataclasses.replace(layer, attention=_EXACT, norm=_EXACT)
        for layer in manifest.layers
    )
    final = None if manifest.final_norm is None else _EXACT
    inputs = manifest.inputs
    if inputs.norm is not None:
        inputs = dataclasses.replace(inputs, norm=_EXACT)
    score = dataclasses.replace(manifest.score, secure=_EXACT)
    return dataclasses.replace(
        manifest, inputs=inputs, layers=layers, final_norm=final, score=score
    )


def emulate(
    proxies: Sequence[Proxy],
    x: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array | None,
    *,
    key: jax.Array,
    ids: npt.ArrayLike | None = None,
    source: Source = "rows",
    n_points: int = 1_024_000,
    backbone: Proxy | None = None,
    seeds: int = 1,
) -> list[Proxy]:
    """Fit proxies' emulators ex vivo, each to its inputs in the exact model.

    Those with a closed form are fitted by it; the MLPs of all proxies are trained in
    one loop. Samples go through each proxy in batches, so that not all of their
    attention scores are in memory.

    Args:
        proxies: Proxies of `prune`, or probes.
        x: Embedded samples of the bootstrap set, `[n, L, H]`, or features: then, for
            emulators of the score, of all samples that are known.
        mask: `[n, L]`; all rows if None.
        key: For the MLPs' initial weights and batches.
        ids: Their token ids `[n, L]`, for proxies of one-hot words.
        source: Training samples of the MLPs, see `train_mlps`.
        n_points: As in `train_mlps`.
        backbone: A model of at least as many layers, such as `prune` makes of all heads
            with feed-forward parts: emulators are fitted to its activations, as in the
            paper to those of the sub-model M_g. None: each to those of its own proxy.
        seeds: Initial weights of each MLP, of which the one with the highest R² is
            kept. Networks of two hidden units often end in a poor optimum.

    Returns:
        The proxies with emulators.

    Raises:
        ValueError: If a proxy needs token ids, and there are none, or is no part of
            `backbone`.

    References:
        SelectFormer, section 4.2, for M_g.
    """
    x = np.asarray(x)
    mask = np.ones(x.shape[:2], bool) if mask is None else np.asarray(mask)
    jobs: list[tuple[int, Nonlinearity, Params, str]] = []
    fitted: list[Proxy] = []
    for proxy in proxies:
        onehot = proxy.manifest.inputs.embed == "onehot"
        if onehot and ids is None:
            raise ValueError("ids must be given for a proxy of one-hot words, got None")
        rows = np.asarray(ids, np.int32) if onehot else x
        if backbone is not None:
            _check_part(proxy.manifest, backbone.manifest)
        fitted.append(_emulate(proxy, backbone or proxy, rows, mask, key, jobs))
    if jobs:
        widths = sorted({width for width, *_ in jobs})
        trained = train_mlps(
            [job for _, job, _, _ in jobs],
            widths,
            key=key,
            seeds=seeds,
            source=source,
            n_points=n_points,
        )
        for (width, _, place, name), by_width in zip(jobs, trained, strict=True):
            place[name] = by_width[width].best()
    return fitted


def _check_part(part: Manifest, backbone: Manifest) -> None:
    """Raise if a proxy's emulators can't be fitted to the activations of `backbone`.

    One MLP of a softmax serves all heads; other families have parameters for each head.
    """
    if len(backbone.layers) < len(part.layers) or backbone.inputs != part.inputs:
        raise ValueError(
            f"backbone must have at least the {len(part.layers)} layers of a proxy and "
            f"the same inputs, got {len(backbone.layers)} layers of {backbone.inputs}"
        )
    for layer, backbone_layer in zip(part.layers, backbone.layers, strict=False):
        if layer.ffn is not None and backbone_layer.ffn is None:
            raise ValueError("backbone must have the feed-forward parts of a proxy")
        by_head = layer.attention.family not in ("mlp", "exact")
        if by_head and layer.heads != backbone_layer.heads:
            raise ValueError(
                f"backbone must have the {layer.heads} heads of a proxy whose "
                f"attention is {layer.attention.family!r}, got {backbone_layer.heads}"
            )


def _emulate(
    proxy: Proxy,
    backbone: Proxy,
    x: np.ndarray,
    mask: np.ndarray,
    key: jax.Array,
    jobs: list[tuple[int, Nonlinearity, Params, str]],
) -> Proxy:
    """Fit emulators of closed form; append MLPs and where they go to `jobs`."""
    manifest = proxy.manifest
    shown = mask if manifest.layers else None
    observed = Observed(backbone.params, exactly(backbone.manifest), x, shown)
    params = tree_map(lambda leaf: leaf, proxy.params)  # new containers to fill

    def fit_norm(entry: Emulator, place: Params, variance: Any) -> None:
        rows = np.asarray(mask, bool)[:, : variance.shape[1]]
        real = variance[rows]  # without padding
        family = norm_of(entry)
        job = family.nonlinearity(real)
        if job is None:
            place["emulator"] = family.fit(real, key=key)
        else:
            jobs.append((entry.width or 1, job, place, "emulator"))

    for i, (layer, layer_params) in enumerate(
        zip(manifest.layers, params["layers"], strict=True)
    ):
        family = attention_of(layer.attention)
        scores = functools.partial(observed.scores, i)
        job = family.nonlinearity(scores, mask)
        if job is None:
            layer_params["attention"] = family.fit_batches(scores)
        else:
            jobs.append((layer.attention.width or 1, job, layer_params, "attention"))
        norms = [layer_params["norm"]] + (
            [layer_params["ffn"]["norm"]] if layer.ffn else []
        )
        # A backbone's feed-forward parts have norms that a proxy may lack.
        for norm, variance in zip(norms, observed.variances[i], strict=False):
            fit_norm(layer.norm, norm, variance)
    if manifest.inputs.norm is not None:
        fit_norm(manifest.inputs.norm, params["inputs"]["norm"], observed.embedded)
    if manifest.final_norm is not None:
        fit_norm(manifest.final_norm, params["final_norm"], observed.final)
    secure = score_of(manifest.score.secure)
    logits = observed.logits - np.asarray(params["offset"])
    job = secure.nonlinearity(logits)
    if job is None:
        params["score"] = secure.fit(logits, key=key)
    else:
        width = manifest.score.secure.width or 1
        jobs.append((width, job, params, "score"))
    return Proxy(manifest, params)
