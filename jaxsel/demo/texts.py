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
    finetune,
    load_target,
    prepare_model,
    text_features,
    tokenize,
)
from jaxsel.proxy import Training

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


@dataclasses.dataclass(frozen=True)
class Deal:
    """Texts of each party, for one seed.

    Attributes:
        pool: Rows that the data owner offers.
        own: Rows that the model owner has without labels, to distil on.
    """

    pool: np.ndarray
    own: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of the pool and the other splits.

    Attributes:
        pool: Samples offered.
        own: Samples that the model owner has, of the same kind.
        kept: Samples of the kept class for each sample of another class; 1 for a pool
            as balanced as its source.
        bootstrap: Share of the pool that is bought at random.
        budget: Share of the pool that is bought, the bootstrap set counted.
    """

    pool: int
    own: int
    kept: int = 1
    bootstrap: float = 0.05
    budget: float = 0.2


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


def deal(labels: np.ndarray, sizes: Sizes, key: jax.Array) -> Deal:
    """Deal texts out, none to two.

    An imbalanced pool has one class, drawn anew each time, `kept` times as often as
    each of the others; so have the samples that the model owner has.

    Raises:
        ValueError: If there are too few.
    """
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), len(labels)))
    n_classes = int(labels.max()) + 1
    share = np.full(n_classes, 1 / n_classes)
    if sizes.kept > 1:
        share[:] = 1 / (sizes.kept + n_classes - 1)
        kept = jax.random.randint(jax.random.fold_in(key, 1), (), 0, n_classes)
        share[int(kept)] *= sizes.kept
    parts: list[list[np.ndarray]] = [[], []]
    for c in range(n_classes):
        rows = order[labels[order] == c]
        counts = [round(size * share[c]) for size in (sizes.pool, sizes.own)]
        if len(rows) < sum(counts):
            raise ValueError(
                f"labels must hold at least {sum(counts)} of class {c}, got {len(rows)}"
            )
        parts[0].append(rows[: counts[0]])
        parts[1].append(rows[counts[0] : sum(counts)])
    shuffled = []
    for i, part in enumerate(parts):
        rows = np.concatenate(part)
        turn = jax.random.permutation(jax.random.fold_in(key, 2 + i), len(rows))
        shuffled.append(rows[np.asarray(turn)])
    return Deal(*shuffled)


TUNING = Training(6, 16, 1e-4)
"""How the target is fine-tuned on the bootstrap set."""


def tuned(texts: Texts, rows: np.ndarray, key: jax.Array) -> Target:
    """Return the target, fine-tuned on some texts."""
    result = finetune(
        texts.target.graphdef,
        texts.target.params,
        texts.inputs(rows),
        texts.labels[rows],
        key=key,
        **dataclasses.asdict(TUNING),
    )
    return dataclasses.replace(texts.target, params=result.params)
