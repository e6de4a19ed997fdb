"""Starved classes: five ways to choose, at several budgets."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from experiments._kit.scenes.owner import new_owner
from experiments._kit.scenes.starved import draw_starved
from experiments._kit.scenes.trainer import Samples, Sizes, take

from .choosing import PUBLISHED, SELECTORS, choose, shared_view


@dataclasses.dataclass(frozen=True, kw_only=True)
class Starved:
    """Results for each of S seeds; `SELECTORS` names the axis of length 4.

    Accuracies are fractions in [0, 1]; their last axis holds two of them: on held-out
    hard samples, and on test samples of all classes.

    Attributes:
        budgets: Samples that the owner may send, `[B]`.
        weak: The starved classes, `[S, n_weak]`.
        weak_before: Validation accuracy of the trainer's model on them, `[S]`.
        strong_before: The same on the other classes, `[S]`.
        n_held_out: Held-out hard samples, `[S]`.
        nothing: Accuracy after fine-tuning on the trainer's own samples, `[S, 2]`.
        everything: With all that the owner has, `[S, 2]`.
        accuracy: With the chosen samples, `[S, 4, B, 2]`.
        sent: How many samples that was, `[S, 4, B]`.
        published: Accuracy with the choice of FuncFeat as published, `[S, B, 2]`.
        published_sent: How many samples that was, with those that fill it, `[S, B]`.
    """

    budgets: np.ndarray
    weak: np.ndarray
    weak_before: np.ndarray
    strong_before: np.ndarray
    n_held_out: np.ndarray
    nothing: np.ndarray
    everything: np.ndarray
    accuracy: np.ndarray
    sent: np.ndarray
    published: np.ndarray
    published_sent: np.ndarray


FOREIGN = Sizes(net="mlp", side=8, offered=10)
"""Sizes for an owner who holds another source, instead of a share of the data."""


def starved_seed(
    data: Samples, sizes: Sizes, seed: int, *, foreign: Samples | None = None
) -> dict[str, np.ndarray]:
    """Run the experiment once; the fields of `Starved` without their first axis.

    Args:
        data: Samples to deal to trainer and owner.
        sizes: How large the experiment is.
        seed: Seed of all draws.
        foreign: The owner's samples instead of its share of `data`.
    """
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(3)]
    scene = draw_starved(data, sizes, keys[0])
    trainer, offer = scene.trainer, scene.offer if foreign is None else foreign
    owner = new_owner(offer, scene.n_classes, sizes, keys[1])
    view = shared_view(owner, trainer.shared)
    chosen = [
        [choose(how, view, budget, keys[2]) for budget in sizes.budgets]
        for how in (*SELECTORS, PUBLISHED)
    ]
    accuracy = [[trainer.gain(take(offer, rows)) for rows in line] for line in chosen]
    sent = [[len(rows) for rows in line] for line in chosen]
    return {
        "weak": scene.weak,
        "weak_before": scene.before[0],
        "strong_before": scene.before[1],
        "n_held_out": np.array(len(trainer.held_out[1])),
        "nothing": trainer.gain(take(offer, np.empty(0, int))),
        "everything": trainer.gain(offer),
        "accuracy": np.array(accuracy[:-1]),
        "sent": np.array(sent[:-1]),
        "published": np.array(accuracy[-1]),
        "published_sent": np.array(sent[-1]),
    }
