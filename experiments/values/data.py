"""The study's data: small pictures, a census table, texts, and their embeddings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from experiments._kit.scenes.samples import Part
from jaxsel.data import info, load
from jaxsel.models import (
    available_models,
    cache_folder,
    load_target,
    prepare_model,
    text_features,
)
from jaxsel.tasks import train_embedding

TEXTS, ENCODER = "movie_polarity", "minilm"
VALUED_TEXTS = 1000
SIDE, LARGE = 8, 14
_OTHER = 4000  # rows that embeddings are made of, apart from those that are valued
_OTHER_TEXTS = 500
_LENGTH = 48


@dataclasses.dataclass(frozen=True)
class Projection:
    """Principal components of held-out data, which are never valued.

    Attributes:
        mean: `[d]`.
        axes: `[d, p]`.
    """

    mean: np.ndarray
    axes: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the components of samples `[n, ...]`, `[n, p]`."""
        flat = np.asarray(x, np.float32).reshape(len(x), -1)
        return (flat - self.mean) @ self.axes


def project(other: np.ndarray, width: int) -> Projection:
    """Return the first principal components of other data, `[m, ...]`."""
    flat = np.asarray(other, np.float64).reshape(len(other), -1)
    mean = flat.mean(0)
    axes = np.linalg.svd(flat - mean, full_matrices=False)[2][:width].T
    return Projection(mean.astype(np.float32), axes.astype(np.float32))


def shrink(x: np.ndarray, side: int) -> np.ndarray:
    """Return grey images in 0..1 with `side` pixels along a side, `[n, s, s, 1]`.

    Squares are averaged, after padding with black to a multiple of `side`.
    """
    images = np.asarray(x, np.float32).reshape(len(x), *x.shape[1:3])
    if x.dtype == np.uint8:
        images = images / np.float32(255)
    edge = -images.shape[1] % side
    before, after = edge // 2, edge - edge // 2
    images = np.pad(images, ((0, 0), (before, after), (before, after)))
    square = images.shape[1] // side
    return images.reshape(len(x), side, square, side, square).mean((2, 4))[..., None]


def pictures(name: str, side: int = SIDE, *, crop: int = 0) -> Part:
    """Return MNIST or Fashion-MNIST, shrunk; other data are the first rows.

    Args:
        name: Name of the data set.
        side: Pixels along a side.
        crop: Pixels to cut off at each edge beforehand.
    """
    data = load(name, split="train[:20000]")
    end = data.x.shape[1] - crop
    x, y = shrink(data.x[:, crop:end, crop:end], side), np.asarray(data.y)
    return Part(x[_OTHER:], y[_OTHER:], x[:_OTHER], y[:_OTHER])


def census() -> Part:
    """Return Adult, its numbers standardised by other rows."""
    data = load("adult", split="train")
    x, y = np.asarray(data.x, np.float32).copy(), np.asarray(data.y)
    other = x[:_OTHER]
    numbers = np.flatnonzero(~np.isin(other, (0, 1)).all(0))
    mean, spread = other[:, numbers].mean(0), other[:, numbers].std(0)
    x[:, numbers] = (x[:, numbers] - mean) / spread
    return Part(x[_OTHER:], y[_OTHER:], x[:_OTHER], y[:_OTHER])


def texts_there() -> bool:
    """Return whether the reviews and their encoder are prepared on this machine."""
    models = {model.name: model.path for model in available_models()}
    return info(TEXTS).path is not None and models[ENCODER] is not None


def texts(*, valued: int = VALUED_TEXTS, progress: bool = False) -> dict[str, Part]:
    """Return film reviews as mean word embeddings, and as MiniLM's last layer."""
    data = load(TEXTS, split=f"train[:{_OTHER_TEXTS + valued}]")
    y = np.asarray(data.y)
    target = load_target(prepare_model(ENCODER))
    layers = (0, target.config.layers)
    features = text_features(
        [str(text) for text in data.x],
        target,
        length=_LENGTH,
        layers=layers,
        cache=cache_folder("features"),
        progress=progress,
    )
    names = "mean word embeddings", "MiniLM"
    halves = dict(zip(names, np.split(features, len(layers), axis=1), strict=True))
    m = _OTHER_TEXTS
    return {name: Part(x[m:], y[m:], x[:m], y[:m]) for name, x in halves.items()}


def network(
    x: np.ndarray, y: np.ndarray, seed: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the body of a small CNN trained on images `[n, s, s, 1]`."""
    key = jax.random.fold_in(jax.random.key(20_000), seed)
    return train_embedding(x, y, kind="cnn", steps=200, key=key)
