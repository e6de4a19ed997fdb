"""Corruptions of an owner's samples: features corrupted, or labels permuted."""

from __future__ import annotations

import jax
import numpy as np

from jaxsel.data import color_jitter, mask_patches, permute_labels, perspective

from .trainer import Samples

SPOILT = ("clean", "corrupted features", "permuted labels")
PERMUTED = 0.7


def corrupt(x: np.ndarray, key: jax.Array) -> np.ndarray:
    """Mask a patch of each image, change its contrast, and its perspective."""
    images = x[..., None]
    for i, change in enumerate((mask_patches, color_jitter, perspective)):
        images, _ = change(jax.random.fold_in(key, i), images, 1.0)
    return np.asarray(images)[..., 0]


def spoilt(offer: Samples, key: jax.Array) -> dict[str, Samples]:
    """Return an owner's samples under each corruption of `SPOILT`, all corrupted."""
    labels, _ = permute_labels(jax.random.fold_in(key, 3), offer[1], PERMUTED)
    states = offer, (corrupt(offer[0], key), offer[1]), (offer[0], np.asarray(labels))
    return dict(zip(SPOILT, states, strict=True))
