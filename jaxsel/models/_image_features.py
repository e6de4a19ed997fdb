"""Images as features of a pretrained encoder, kept on disk."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import nnx

from jaxsel._inputs.checks import check_choice, check_count, check_finite
from jaxsel._inputs.chunk import chunk_slices, take_rows
from jaxsel._runs.checkpoints import run_digest
from jaxsel._runs.progress import track

from ._efficientnet import KIND, WIDTH, efficientnet_features, load_weights
from ._encoder import Classifier, Read
from ._features import read_features, write_features
from ._hf import load_target
from ._onnx_vit import stretch_positions
from ._target import Target

_VERSION = 1  # of the features: a new one invalidates cached files
_KEPT = 256  # images in a file of the cache
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


def image_features(
    images: npt.ArrayLike,
    folder: str | os.PathLike[str],
    *,
    side: int | None = None,
    pool: Read = "cls",
    cache: str | os.PathLike[str] | None = None,
    batch_size: int = 16,
    progress: bool = False,
) -> np.ndarray:
    """Encode images, `[n, H]` float32.

    Images are resized to `side` pixels by cubic interpolation, without regard to their
    proportions, and normalised by the mean and deviation in the folder's
    `preprocessor_config.json`, or by ImageNet's. Grey ones get three equal channels.

    Args:
        images: `[n, h, w]`, `[n, h, w, 1]` or `[n, h, w, 3]`, in 0..1 or bytes.
        folder: Of the encoder, as `prepare_model` returns it: "efficientnet_lite0"
            gives the mean over places of its last convolution, H = 1280; "vit_s", or
            any other ViT folder, its last layer.
        side: Height and width that the encoder sees; the encoder's own if None. A ViT's
            table of positions is resized likewise; its patches must fit.
        pool: ViT: "cls", the first row, or "mean" over all rows.
        cache: A folder: results are kept there, 256 images to a file, and read from it
            the next time. A run that was killed goes on where it was.
        batch_size: Images of one forward pass.
        progress: Show a bar.

    On one core of a server, an image of 224 × 224 pixels takes about 20 ms by
    "efficientnet_lite0", and 170 ms by "vit_s".

    Raises:
        FileNotFoundError: If the folder lacks a file.
        ImportError: If `safetensors` is not installed.
        ValueError: If images, `side` or the folder do not fit.
    """
    check_choice("pool", pool, ("cls", "mean"))
    check_count("batch_size", batch_size)
    folder = Path(folder)
    pixels = _check_images(images)
    file = folder / "config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    kind = settings.get("model_type")
    if kind not in (KIND, "vit"):
        raise ValueError(
            f"model_type in {file} must be {KIND} or vit, an encoder of images, got "
            f"{kind!r}"
        )
    shown = settings["image_size"] if side is None else check_count("side", side)
    mean, deviation = _normalisation(folder)
    # Weights are read where an image has not been encoded before.
    encoder = functools.cache(
        lambda: _efficientnet(folder) if kind == KIND else _vit(folder, shown, pool)
    )
    width = WIDTH if kind == KIND else settings["hidden_size"]
    facts = {
        "weights": _digest(folder / "model.safetensors") if cache is not None else "",
        "config": settings,
        "side": shown,
        "pool": pool if kind == "vit" else None,
        "normalised": [mean, deviation],
        "version": _VERSION,
    }
    parts = []
    chunks = chunk_slices(len(pixels), _KEPT)
    for chunk in track(chunks, progress=progress, label="256 images each"):
        part = pixels[chunk]
        kept = None
        if cache is not None:
            kept = Path(cache) / f"{run_digest(facts, part)}.npz"
            features = read_features(kept, (len(part), width))
            if features is not None:
                parts.append(features)
                continue
        rows = [
            np.asarray(
                encoder()(
                    _prepared(
                        take_rows(part[batch], slice(None), batch_size),
                        shown,
                        mean,
                        deviation,
                    )
                )
            )[: len(part[batch])]
            for batch in chunk_slices(len(part), batch_size)
        ]
        parts.append(np.concatenate(rows))
        if kept is not None:
            write_features(kept, parts[-1])
    return np.concatenate(parts)


def _check_images(images: npt.ArrayLike) -> np.ndarray:
    """Return images as `[n, h, w, 1 or 3]`, float32 in 0..1."""
    pixels = np.asarray(images)
    shape = pixels.shape
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.ndim != 4 or not pixels.size or pixels.shape[-1] not in (1, 3):
        raise ValueError(
            "images must have shape [n, h, w], [n, h, w, 1] or [n, h, w, 3], n >= 1, "
            f"got {shape}"
        )
    if pixels.dtype == np.uint8:
        return pixels.astype(np.float32) / 255
    pixels = pixels.astype(np.float32)
    check_finite("images", pixels)
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 1:
        raise ValueError(
            f"images must lie in 0..1, or be bytes, got values from {low:g} to {high:g}"
        )
    return pixels


@functools.partial(jax.jit, static_argnames=("side", "mean", "deviation"))
def _prepared(
    pixels: jax.Array,
    side: int,
    mean: tuple[float, ...],
    deviation: tuple[float, ...],
) -> jax.Array:
    n, _, _, channels = pixels.shape
    x = jax.image.resize(pixels, (n, side, side, channels), "bicubic")
    x = jnp.broadcast_to(jnp.clip(x, 0, 1), (n, side, side, 3))
    return (x - jnp.array(mean)) / jnp.array(deviation)


def _normalisation(folder: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    file = folder / "preprocessor_config.json"
    if not file.is_file():
        return _MEAN, _DEVIATION
    settings = json.loads(file.read_text(encoding="utf-8"))
    mean, deviation = (
        tuple(settings.get(f"image_{name}", default))
        for name, default in (("mean", _MEAN), ("std", _DEVIATION))
    )
    return mean, deviation


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _efficientnet(folder: Path) -> Callable[[jax.Array], jax.Array]:
    weights = load_weights(folder / "model.safetensors")
    return functools.partial(efficientnet_features, weights)


def _vit(folder: Path, side: int, pool: Read) -> Callable[[Any], np.ndarray]:
    target = at_side(load_target(folder), side)
    return lambda batch: target.features(batch, pool=pool, batch_size=len(batch))


def at_side(target: Target, side: int) -> Target:
    """Return a ViT for images of another size, its table of positions resized.

    Raises:
        ValueError: If patches do not fit into the size.
    """
    config = target.config
    if side == config.side:
        return target
    if side % config.patch:
        raise ValueError(
            f"side must be a multiple of {config.patch}, the encoder's patches, got "
            f"{side}"
        )
    table = np.asarray(target.params["encoder"]["positions"][...])[None]
    wide = dataclasses.replace(config, side=side)
    shapes = nnx.eval_shape(
        lambda: Classifier(wide, None, read=target.read, rngs=nnx.Rngs(0))
    )
    graphdef, _ = nnx.split(shapes, nnx.Param)
    params = nnx.to_pure_dict(target.params)
    params["encoder"]["positions"] = jnp.asarray(
        stretch_positions(table[:, :1], table[:, 1:], side // config.patch)[0],
        jnp.float32,
    )
    state = nnx.state(shapes, nnx.Param)
    nnx.replace_by_pure_dict(state, params)
    return dataclasses.replace(target, config=wide, graphdef=graphdef, params=state)
