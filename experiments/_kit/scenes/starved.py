"""Starved classes: a trainer has a tenth of their data, and an owner has plenty."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from .trainer import Samples, Sizes, Trainer, hire, take


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """A trainer that lacks samples of some classes, and an owner that has them.

    Attributes:
        trainer: The trainer.
        offer: The owner's samples.
        n_classes: Number of classes.
        weak: The starved ones, `[n_weak]`, ascending.
        before: Validation accuracy on the starved classes and on the others, `[2]`.
    """

    trainer: Trainer
    offer: Samples
    n_classes: int
    weak: np.ndarray
    before: np.ndarray


def draw_starved(data: Samples, sizes: Sizes, key: jax.Array) -> Scene:
    """Deal samples out to a trainer and an owner, none of them to two.

    The owner has as many samples of each class.

    Raises:
        ValueError: If there are too few samples.
    """
    keys = [jax.random.fold_in(key, i) for i in range(3)]
    y, n_classes = data[1], int(data[1].max()) + 1
    weak = np.sort(jax.random.permutation(keys[0], n_classes)[: sizes.weak])
    order = np.asarray(jax.random.permutation(keys[1], len(y)))
    wanted = np.full(n_classes, sizes.own)
    wanted[weak] = max(1, round(sizes.kept * sizes.own))
    trainer_rows, order = deal(y, order, wanted)
    offered, order = deal(y, order, np.full(n_classes, sizes.offered // n_classes))
    if len(order) < sizes.val + sizes.test:
        raise ValueError(f"data must hold more samples, got {len(y)}")
    val, test = np.split(order[: sizes.val + sizes.test], [sizes.val])
    trainer = hire(
        take(data, trainer_rows),
        take(data, val),
        take(data, test),
        wanted=weak,
        n_classes=n_classes,
        sizes=sizes,
        key=keys[2],
    )
    right, is_weak = trainer.net.right(*take(data, val)), np.isin(y[val], weak)
    before = np.array([right[is_weak].mean(), right[~is_weak].mean()])
    return Scene(
        trainer=trainer,
        offer=take(data, offered),
        n_classes=n_classes,
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
        per_class: Number of samples to take of classes 0, 1, ...

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
