"""Imbalanced pools as SelectFormer's sizes suggest them, with test samples beside.

The paper says that samples were removed, not how many. Keeping one class whole and a
ninth of it from each other one gives all seven of its sizes: that rule is inferred.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np

from experiments._kit.seeds import at_once
from experiments._kit.texts import read_texts
from jaxsel.data import Dataset, load
from jaxsel.models import Target

from .vit import LAYERS, as_images, pretrained

KEPT = 9
"""The kept class stays whole; each other one is cut to a ninth of it."""

MOST = 2000
"""Samples of the kept class at most, so that seconds are enough for a purchase."""

TEST = 3000
"""Test samples at most."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """Samples with features of a public encoder, and their labels.

    Attributes:
        x: Features for a linear model, `[n, d]` float32.
        y: `[n]` int32.
        n_classes: C.
    """

    x: np.ndarray
    y: np.ndarray
    n_classes: int


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Encoded(Source):
    """Samples that a transformer reads too.

    Attributes:
        inputs: `Tokens` or images.
        features: Of the public encoder, after each of some layers, `[n, layers H]`.
        target: The public encoder, with a fresh head.
    """

    inputs: Any
    features: np.ndarray
    target: Target

    def take(self, rows: np.ndarray) -> Any:
        """Return the inputs of some samples."""
        return jax.tree.map(lambda array: array[rows], self.inputs)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """Samples offered, and those by which a purchase is judged; all rows of a source.

    Attributes:
        rows: Offered, `[n]`.
        own: The model owner's, without labels, as imbalanced.
        test: `[m]`: classes as frequent as in the source.
        kept: The kept class.
    """

    rows: np.ndarray
    own: np.ndarray
    test: np.ndarray
    kept: int


def deal(source: Source, key: jax.Array, most: int = MOST, *, own: float = 0.0) -> Pool:
    """Deal a pool and test samples, none to both.

    The kept class is drawn among those that are at least four fifths as large as the
    largest, so that a pool has samples enough. Sizes are the same for all keys, so that
    nothing is compiled anew.

    Args:
        source: All samples.
        key: Of all that is drawn.
        most: Samples of the kept class at most.
        own: How many samples the model owner has for one of the pool's.
    """
    y = source.y
    draw = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    order = draw.permutation(len(y))
    held = min(0.25, TEST / len(y))
    test, remaining = list[np.ndarray](), list[np.ndarray]()
    for c in range(source.n_classes):
        rows = order[y[order] == c]
        cut = round(held * len(rows))
        test.append(rows[:cut])
        remaining.append(rows[cut:])
    sizes = np.array([len(rows) for rows in remaining])
    large = np.flatnonzero(sizes >= 0.8 * sizes.max())
    # By the smallest of them, so that all keys give pools of one size.
    kept_size = min(int(sizes[large].min() / (1 + own)), most)
    kept = int(draw.choice(large))
    limits = np.minimum(round(kept_size / KEPT), (sizes / (1 + own)).astype(int))
    limits[kept] = kept_size
    offered = [rows[:limit] for rows, limit in zip(remaining, limits, strict=True)]
    others = [
        rows[limit : limit + round(own * limit)]
        for rows, limit in zip(remaining, limits, strict=True)
    ]
    return Pool(
        rows=draw.permutation(np.concatenate(offered)),
        test=draw.permutation(np.concatenate(test)),
        own=draw.permutation(np.concatenate(others)),
        kept=kept,
    )


def _texts(name: str, most: int) -> Callable[[bool], Encoded]:
    def read(progress: bool) -> Encoded:
        texts = read_texts(name, most, progress=progress)
        width = texts.target.config.hidden
        return Encoded(
            x=_scaled(texts.features[:, -width:]),  # of the last layer
            y=texts.labels,
            n_classes=texts.n_classes,
            inputs=texts.tokens,
            features=texts.features,
            target=texts.target,
        )

    return read


def _fashion(progress: bool) -> Encoded:
    del progress
    return _images(load("fashion_mnist", split="train[:20000]"))


def digits() -> Encoded:
    """Return handwritten digits as the ViT reads them, which saw others of them."""
    return _images(load("mnist", split="train[20000:22000]"))


def _images(data: Dataset) -> Encoded:
    images, target = as_images(data), pretrained(n_classes=10)
    small = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    return Encoded(
        x=_scaled(small.reshape(len(images), -1)),
        y=np.asarray(data.y, np.int32),
        n_classes=10,
        inputs=images,
        features=target.features(images, layers=LAYERS, batch_size=256),
        target=target,
    )


def _scaled(x: np.ndarray) -> np.ndarray:
    """Centre the features, and give them the mean squared length of one row."""
    x = x - x.mean(axis=0)
    x /= np.sqrt(np.mean(np.sum(x * x, axis=1)))
    return x.astype(np.float32)


def _once(read: Callable[[bool], Encoded]) -> Callable[[bool], Encoded]:
    """Return a reader that reads once in a process, whichever thread comes first."""
    lock, cached = threading.Lock(), list[Encoded]()

    def again(progress: bool) -> Encoded:
        with lock:
            if not cached:
                cached.append(read(progress))
        return cached[0]

    return again


SOURCES: dict[str, Callable[[bool], Encoded]] = {
    "movie_polarity": _once(_texts("movie_polarity", 10_568)),
    "tweets": _once(_texts("tweets", 8100)),
    "reuters_r8": _once(_texts("reuters_r8", 7674)),
    "newsgroups": _once(_texts("newsgroups", 18_846)),
    "fashion_mnist": _once(_fashion),
}
"""Readers by data set, of whether to show progress: of texts by MiniLM, of images by
pixels, and by a small ViT that has seen digits only. Each reads once in a process."""

QUICK = ("movie_polarity", "fashion_mnist")
"""Pools of the quick run of proxies: one of texts, and one of images."""

NAMES = {
    "movie_polarity": "Movie polarity",
    "tweets": "Tweets",
    "reuters_r8": "Reuters R8",
    "newsgroups": "20 Newsgroups",
    "fashion_mnist": "Fashion-MNIST",
}


def read_all(progress: bool, names: Sequence[str] | None = None) -> dict[str, Encoded]:
    """Read sources side by side, by name; all if `names` is None."""
    names = [*SOURCES] if names is None else names
    read = at_once(lambda name: SOURCES[name](progress), names)
    return dict(zip(names, read, strict=True))


def kind(name: str) -> Literal["text", "image"]:
    """Return the kind of inputs of a data set."""
    return "image" if name == "fashion_mnist" else "text"
