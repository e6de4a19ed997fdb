"""A small ViT, pretrained on digits: the public encoder of images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments._kit.store import remembered
from jaxsel.data import Dataset, load
from jaxsel.models import (
    Classifier,
    EncoderConfig,
    Target,
    cache_folder,
    finetune,
)

CONFIG = EncoderConfig(
    kind="image",
    layers=6,
    heads=4,
    hidden=64,
    intermediate=128,
    side=28,
    patch=7,
    channels=1,
)
LAYERS = (0, 2, 4, 6)
"""Features are the means of rows after each of them, as of MiniLM."""

_DIGITS = 10_000
_TRAINING = {"epochs": 8, "batch_size": 64, "learning_rate": 1e-3}


def pretrained(*, n_classes: int) -> Target:
    """Return the encoder with a fresh head; its training is kept on disk.

    Args:
        n_classes: Of the fresh head.

    Raises:
        FileNotFoundError: If mnist is not prepared; it names the command.
    """
    stored = remembered(
        cache_folder("experiments") / "vit.npz",
        {"config": repr(CONFIG), "training": _TRAINING, "digits": _DIGITS},
        _pretrain,
    )
    graphdef, params = _digits_model()
    leaves = [stored[str(i)] for i in range(len(stored))]
    # Leaves are stored by position, so that a fresh model has to give the structure.
    params = jax.tree.unflatten(jax.tree.structure(params), map(jnp.asarray, leaves))
    model = Classifier(CONFIG, n_classes, read="mean", rngs=nnx.Rngs(1))
    model.encoder = nnx.merge(graphdef, params).encoder
    graphdef, params = nnx.split(model)
    return Target(config=CONFIG, graphdef=graphdef, params=params, read="mean")


def _digits_model() -> tuple[nnx.GraphDef[Any], Any]:
    return nnx.split(Classifier(CONFIG, 10, read="mean", rngs=nnx.Rngs(0)))


def _pretrain() -> dict[str, np.ndarray]:
    """Train on digits, and return the parameters in their order."""
    data = load("mnist", split=f"train[:{_DIGITS}]")
    trained = finetune(
        *_digits_model(),
        as_images(data),
        np.asarray(data.y, np.int32),
        key=jax.random.key(0),
        **_TRAINING,
    )
    leaves = jax.tree.leaves(trained.params)
    return {str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)}


def as_images(data: Dataset) -> np.ndarray:
    """Return a data set's pixels from -1 to 1, `[n, 28, 28, 1]` float32.

    An empty patch of zeros would have rows of nearly no variance; no small network
    approximates the reciprocal square root there.
    """
    pixels = np.asarray(data.as_features(), np.float32).reshape(-1, 28, 28, 1)
    return 2 * pixels - 1
