"""Imbalanced pools by SelectFormer's rule, with the test samples beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from jaxsel.data import load
from jaxsel.demo.scenes.texts import read_texts

KEPT = 9
"""The kept class stays whole; each other one is cut to a ninth of its size."""

MOST = 2000
"""Samples of the kept class at most, so that seconds are enough for a purchase."""

TEST = 3000
"""Test samples at most."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """Samples with features of a public encoder, and their labels.

    Attributes:
        x: `[n, d]` float32.
        y: `[n]` int32.
        n_classes: C.
    """

    x: np.ndarray
    y: np.ndarray
    n_classes: int


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """Samples offered, and those by which a purchase is judged.

    Attributes:
        rows: Of the source, offered, `[n]`.
        test: Of the source, `[m]`: classes as frequent as in the source.
        kept: The kept class.
    """

    rows: np.ndarray
    test: np.ndarray
    kept: int


def deal(source: Source, key: jax.Array, most: int = MOST) -> Pool:
    """Deal a pool and test samples, none to both.

    The kept class is drawn among those that are at least four fifths as large as the
    largest, so that a pool has samples enough. Sizes are the same for all keys, so that
    nothing is compiled anew.

    Args:
        source: All samples.
        key: Of all that is drawn.
        most: Samples of the kept class at most.
    """
    y = source.y
    draw = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    order = draw.permutation(len(y))
    held = min(0.25, TEST / len(y))
    test, rest = list[np.ndarray](), list[np.ndarray]()
    for c in range(source.n_classes):
        rows = order[y[order] == c]
        cut = round(held * len(rows))
        test.append(rows[:cut])
        rest.append(rows[cut:])
    sizes = np.array([len(rows) for rows in rest])
    large = np.flatnonzero(sizes >= 0.8 * sizes.max())
    whole = min(sizes[large].min(), most)
    kept = int(draw.choice(large))
    limits = np.full(source.n_classes, round(whole / KEPT))
    limits[kept] = whole
    parts = [rows[:limit] for rows, limit in zip(rest, limits, strict=True)]
    return Pool(
        rows=draw.permutation(np.concatenate(parts)),
        test=draw.permutation(np.concatenate(test)),
        kept=kept,
    )


def _texts(name: str, most: int) -> Callable[[bool], Source]:
    def read(progress: bool) -> Source:
        texts = read_texts(name, most, progress=progress)
        width = texts.target.config.hidden
        x = texts.features[:, -width:]  # of the last layer
        return _scaled(x, texts.labels, texts.n_classes)

    return read


def _images(progress: bool) -> Source:
    del progress
    data = load("fashion_mnist", split="train[:20000]")
    x = np.asarray(data.as_features(), np.float32).reshape(-1, 14, 2, 14, 2)
    return _scaled(
        x.mean(axis=(2, 4)).reshape(len(x), -1), np.asarray(data.y, np.int32), 10
    )


def _scaled(x: np.ndarray, y: np.ndarray, n_classes: int) -> Source:
    """Centre the features, and give them the mean squared length of one row."""
    x = x - x.mean(axis=0)
    x /= np.sqrt(np.mean(np.sum(x * x, axis=1)))
    return Source(x=x.astype(np.float32), y=y, n_classes=n_classes)


SOURCES: dict[str, Callable[[bool], Source]] = {
    "movie_polarity": _texts("movie_polarity", 10_568),
    "tweets": _texts("tweets", 8100),
    "reuters_r8": _texts("reuters_r8", 7674),
    "newsgroups": _texts("newsgroups", 8000),
    "fashion_mnist": _images,
}
"""Readers by data set, of whether to show progress: of texts by MiniLM, of pixels."""
