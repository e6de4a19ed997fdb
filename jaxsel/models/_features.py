"""Texts as features of a pretrained encoder, kept on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxsel._files.staged import staged
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._results.files import read_arrays, write_arrays
from jaxsel._runs.checkpoints import run_digest

from ._encoder import Read
from ._target import Target
from ._tokens import tokenize

_VERSION = 1  # of the features: a new one invalidates cached files


def text_features(
    texts: Sequence[str],
    target: Target,
    *,
    length: int = 64,
    pool: Read = "mean",
    layers: Sequence[int] | None = None,
    cache: str | os.PathLike[str] | None = None,
    batch_size: int = 64,
    progress: bool = False,
) -> np.ndarray:
    """Encode texts, `[n, H]` float32, or `[n, len(layers) H]`.

    Args:
        texts: n texts.
        target: An encoder of texts, with its tokenizer.
        length: Tokens of a text at most, special ones included; the rest is cut off.
        pool: "mean" over a text's tokens, or "cls", its first one.
        layers: After which layers, see `Target.features`; the last one if None.
        cache: A folder: results are kept there, in a file named by a hash of texts,
            weights and settings, and read from it the next time.
        batch_size: Texts of one forward pass.
        progress: Show a bar.

    Raises:
        TypeError: If `texts` is not a sequence of texts.
        ValueError: If the target has no tokenizer, or an argument is out of range.
    """
    check_choice("pool", pool, ("cls", "mean"))
    check_count("batch_size", batch_size)
    most = target.config.length
    if target.config.kind != "text" or target.tokenizer is None:
        raise ValueError("target must be an encoder of texts with a tokenizer")
    if not 2 <= check_count("length", length) <= most:
        raise ValueError(f"length must be from 2 to {most}, got {length}")
    if isinstance(texts, str):
        raise TypeError("texts must be a sequence of texts, got a single one")
    file = None
    if cache is not None:
        settings = {
            "texts": [*texts],
            "length": length,
            "pool": pool,
            "layers": None if layers is None else list(layers),
            "config": repr(target.config),
            "tokenizer": target.tokenizer.read_text(encoding="utf-8"),
            "version": _VERSION,
        }
        file = Path(cache) / f"{run_digest(settings, target.params)}.npz"
        width = target.config.hidden * (1 if layers is None else len(layers))
        cached = read_features(file, (len(texts), width))
        if cached is not None:
            return cached
    tokens = tokenize(texts, target.tokenizer, length=length)
    features = target.features(
        tokens, pool=pool, layers=layers, batch_size=batch_size, progress=progress
    )
    if file is not None:
        write_features(file, features)
    return features


def read_features(file: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """Read features of a shape; None if the file is missing, damaged or of another."""
    try:
        features = read_arrays(file)["features"]
    except (FileNotFoundError, ValueError, KeyError):
        return None  # not there, or damaged: made anew
    return features if features.shape == shape else None


def write_features(file: Path, features: np.ndarray) -> None:
    """Write features to a file in one step, and make its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with staged([file]) as [part]:
        write_arrays(part, {"features": features})
