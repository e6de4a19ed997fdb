"""Real texts for proxies to choose from, and a target that is fine-tuned on some."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from flax import nnx

from jaxsel.data import load
from jaxsel.models import (
    Target,
    Tokens,
    cache_folder,
    load_target,
    prepare_model,
    text_features,
    tokenize,
)

LENGTH = 48
"""Tokens of a text; a twentieth of the texts is longer, and cut off."""

LAYERS = (0, 2, 4, 6)
"""Of the public encoder: features are the means of rows after each of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Texts:
    """Texts of one source, ready to be dealt out.

    Attributes:
        name: The data set.
        tokens: n texts.
        features: Features by the public encoder, `[n, len(LAYERS) H]`, see `LAYERS`.
        labels: `[n]`.
        n_classes: Number of classes.
        target: The public encoder, with a fresh head.
        words: The texts themselves, strings `[n]`.
    """

    name: str
    tokens: Tokens
    features: np.ndarray
    labels: np.ndarray
    n_classes: int
    target: Target
    words: np.ndarray

    def inputs(self, rows: np.ndarray) -> Tokens:
        """Return the tokens of some texts."""
        return jax.tree.map(lambda array: array[rows], self.tokens)


def read_texts(name: str, most: int, *, progress: bool = False) -> Texts:
    """Return at most `most` texts of a data set, encoded; features are cached on disk.

    The draw balances the classes as far as their texts reach.

    Raises:
        FileNotFoundError: If the data set is not prepared; it names the command.
    """
    data = load(name, split="train")
    y = np.asarray(data.y).astype(np.int32)
    order = np.random.default_rng(0).permutation(len(y))
    turns = np.empty(len(y), int)
    for c in np.unique(y):
        rows = order[y[order] == c]
        turns[rows] = np.arange(len(rows))
    rows = np.sort(order[np.argsort(turns[order], kind="stable")[:most]])
    # As objects: NumPy would give each text the length of the longest.
    words = np.array([str(text) for text in np.asarray(data.x)[rows]], dtype=object)
    folder = prepare_model("minilm")
    n_classes = int(y.max()) + 1
    target = load_target(folder, n_classes=n_classes, read="mean", rngs=nnx.Rngs(0))
    assert target.tokenizer is not None
    return Texts(
        name=name,
        tokens=tokenize(list(words), target.tokenizer, length=LENGTH),
        features=text_features(
            list(words),
            load_target(folder),
            length=LENGTH,
            layers=LAYERS,
            cache=cache_folder("features"),
            progress=progress,
        ),
        labels=y[rows],
        n_classes=n_classes,
        target=target,
        words=words,
    )
