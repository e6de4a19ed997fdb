"""Rank five owners by their answers to one request (Appendix F)."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from experiments._kit.scenes.owner import new_owner
from experiments._kit.scenes.ranking import appraise_owners
from experiments._kit.scenes.trainer import Samples, Sizes, take
from jaxsel.data import color_jitter, crop_and_flip, perspective

from .choosing import PUBLISHED, choose, shared_view
from .spurious import PAIR, draw_backgrounds, mixed

OFFERS = {
    "DO-1": "a tenth natural samples",
    "DO-2": "those of DO-1, all cropped, tilted and in another contrast",
    "DO-3": "both classes before no background at all",
    "DO-4": "a hundredth natural samples",
    "DO-5": "no natural samples",
}
"""Data of the five owners, in the manner of the paper's."""

METHODS = ("func_feat", "retrieve", "random")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Owners:
    """How the owners are ranked, for each of S seeds.

    Attributes:
        budget: Samples that each may send.
        nothing: Accuracy on held-out hard samples after fine-tuning on the trainer's
            own samples alone, `[S]`.
        accuracy: The same with what each owner sent, `[S, 3, 5]`, see `METHODS`.
        everything: With all that each owner has, `[S, 5]`.
        spearman: Rank correlation of each method's accuracies with those of
            everything, `[S, 3]`; NaN where all owners are equal.
        kendall: Kendall's tau-b of the same pairs, `[S, 3]`.
        published: Accuracy with each owner's choice by FuncFeat as published,
            `[S, 5]`; without the market's messages, which have no such method.
    """

    budget: int
    nothing: np.ndarray
    accuracy: np.ndarray
    everything: np.ndarray
    spearman: np.ndarray
    kendall: np.ndarray
    published: np.ndarray


def owners_seed(
    data: Samples, sizes: Sizes, seed: int, *, pair: tuple[int, int] = PAIR
) -> dict[str, np.ndarray]:
    """Rank the owners once; the fields of `Owners` without their first axis."""
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(4)]
    scene = draw_backgrounds(data, sizes, keys[0], pair=pair)
    trainer, n = scene.trainer, sizes.offered
    rich = mixed(scene, n, 0.1)[0]
    stock = {
        "DO-1": rich,
        "DO-2": (disturb(rich[0], keys[3]), rich[1]),
        "DO-3": scene.plain,
        "DO-4": mixed(scene, n, 0.01)[0],
        "DO-5": mixed(scene, n, 0.0)[0],
    }
    owners = {
        name: new_owner(samples, 2, sizes, jax.random.fold_in(keys[1], i))
        for i, (name, samples) in enumerate(stock.items())
    }
    appraisal = appraise_owners(trainer, owners, METHODS, sizes.main, keys[2])
    published = []
    for owner in owners.values():
        rows = choose(
            PUBLISHED, shared_view(owner, trainer.shared), sizes.main, keys[2]
        )
        published.append(trainer.gain(take(owner.samples, rows))[0])
    return {**appraisal, "published": np.array(published)}


def disturb(x: np.ndarray, key: jax.Array) -> np.ndarray:
    """Crop, mirror, tilt and change the contrast of all images, `[n, h, w]`."""
    images = x[..., None]
    for i, change in enumerate((crop_and_flip, color_jitter, perspective)):
        images, _ = change(jax.random.fold_in(key, i), images, 1.0)
    return np.asarray(images)[..., 0]
