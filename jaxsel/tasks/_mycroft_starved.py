"""Starved classes: the trainer has a tenth of their data, an owner has plenty."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from ._mycroft_owner import SELECTORS, choose, new_owner
from ._mycroft_trainer import Samples, Sizes, Trainer, hire, take


@dataclasses.dataclass(frozen=True, kw_only=True)
class Starved:
    """What came of it, for each of S seeds; `SELECTORS` names the axis of length 4.

    Accuracies are fractions in [0, 1]; their last axis holds two of them: on held-out
    hard samples, and on test samples of all classes.

    Attributes:
        budgets: Samples that the owner may send, `[B]`.
        weak: The starved classes, `[S, n_weak]`.
        weak_before: Validation accuracy of the trainer's model on them, `[S]`.
        strong_before: The same on the other classes, `[S]`.
        n_held_out: Held-out hard samples, `[S]`.
        nothing: Accuracy after fine-tuning on what the trainer has, `[S, 2]`.
        everything: With all that the owner has, `[S, 2]`.
        accuracy: With what was chosen, `[S, 4, B, 2]`.
        sent: How many samples that was, `[S, 4, B]`.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """A trainer that lacks samples of some classes, and an owner that has them.

    Attributes:
        trainer: The trainer.
        offer: The owner's samples.
        classes: Number of classes.
        weak: The starved ones, `[n_weak]`, ascending.
        before: Validation accuracy on the starved classes and on the others, `[2]`.
    """

    trainer: Trainer
    offer: Samples
    classes: int
    weak: np.ndarray
    before: np.ndarray


def draw_starved(data: Samples, sizes: Sizes, key: jax.Array) -> Scene:
    """Deal samples out to a trainer and an owner, none of them to two.

    The owner has as many samples of each class.

    Raises:
        ValueError: If there are too few samples.
    """
    keys = [jax.random.fold_in(key, i) for i in range(3)]
    y, classes = data[1], int(data[1].max()) + 1
    weak = np.sort(jax.random.permutation(keys[0], classes)[: sizes.weak])
    order = np.asarray(jax.random.permutation(keys[1], len(y)))
    wanted = np.full(classes, sizes.own)
    wanted[weak] = max(1, round(sizes.kept * sizes.own))
    own, order = deal(y, order, wanted)
    offered, order = deal(y, order, np.full(classes, sizes.offered // classes))
    if len(order) < sizes.val + sizes.test:
        raise ValueError(f"data must hold more samples, got {len(y)}")
    val, test = np.split(order[: sizes.val + sizes.test], [sizes.val])
    trainer = hire(
        take(data, own),
        take(data, val),
        take(data, test),
        wanted=weak,
        classes=classes,
        sizes=sizes,
        key=keys[2],
    )
    right, is_weak = trainer.net.right(*take(data, val)), np.isin(y[val], weak)
    before = np.array([right[is_weak].mean(), right[~is_weak].mean()])
    return Scene(
        trainer=trainer,
        offer=take(data, offered),
        classes=classes,
        weak=weak,
        before=before,
    )


def deal(
    y: np.ndarray, order: np.ndarray, per_class: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Take the first samples of each class off a shuffled order.

    Args:
        y: All labels, `[n]`.
        order: Rows that are left.
        per_class: How many to take of classes 0, 1, ...

    Returns:
        The rows taken, and those left after that.

    Raises:
        ValueError: If a class has too few.
    """
    rows = [order[y[order] == c][:n] for c, n in enumerate(per_class)]
    if any(len(row) < n for row, n in zip(rows, per_class, strict=True)):
        raise ValueError(f"data must hold more samples, got {len(y)}")
    taken = np.concatenate(rows)
    return taken, order[~np.isin(order, taken)]


def starved_seed(data: Samples, sizes: Sizes, seed: int) -> dict[str, np.ndarray]:
    """Run the experiment once; the fields of `Starved` without their first axis."""
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(3)]
    scene = draw_starved(data, sizes, keys[0])
    trainer, offer = scene.trainer, scene.offer
    owner = new_owner(offer, scene.classes, sizes, keys[1])
    view = owner.view(trainer.shared)
    chosen = [
        [choose(how, view, budget, keys[2]) for budget in sizes.budgets]
        for how in SELECTORS
    ]
    return {
        "weak": scene.weak,
        "weak_before": scene.before[0],
        "strong_before": scene.before[1],
        "n_held_out": np.array(len(trainer.held_out[1])),
        "nothing": trainer.gain(take(offer, np.empty(0, int))),
        "everything": trainer.gain(offer),
        "accuracy": np.array(
            [[trainer.gain(take(offer, rows)) for rows in line] for line in chosen]
        ),
        "sent": np.array([[len(rows) for rows in line] for line in chosen]),
    }
