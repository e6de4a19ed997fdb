"""A market in miniature: a trainer with blind spots, and five owners of digits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from jaxsel.data import Dataset, flip_labels, gaussian_noise

OWNERS = (
    "clean",
    "wrong labels",
    "corrupted pixels",
    "wrong classes",
    "small but good",
)
"""The owners by the kind of their samples; see `draw_market`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Market:
    """One draw of the scenario; pixels are in [0, 1].

    Attributes:
        n_classes: Number of classes.
        weak: The classes that the trainer has one example of, ascending.
        x_train: The trainer's own images, flattened, `[n_train, d]`.
        y_train: Their labels, `[n_train]`.
        x_val: The trainer's validation images, `[n_val, d]`.
        y_val: Their labels, `[n_val]`.
        x: The owners' offers, `[n, d]`.
        y: The labels they come with, `[n]`.
        y_true: The labels they should come with, `[n]`.
        owner: Index into `OWNERS`, `[n]`.
    """

    n_classes: int
    weak: np.ndarray
    x_train: np.ndarray
    y_train: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    x: np.ndarray
    y: np.ndarray
    y_true: np.ndarray
    owner: np.ndarray


def draw_market(
    data: Dataset,
    *,
    key: jax.Array,
    n_weak: int = 3,
    per_class: int = 12,
    n_val: int = 200,
    sizes: Sequence[int] = (220, 220, 220, 220, 60),
) -> Market:
    """Deal images out to a trainer and five owners, none of them to two.

    The trainer has `n_val` validation examples of all classes, and to train on
    `per_class` examples of each class, but one of each weak class. The owners offer:
    clean images; images of which 70 % have a wrong label; images under Gaussian noise
    of standard deviation 0.5; images of the classes that the trainer masters already;
    and a few clean images of the weak classes.

    Args:
        data: Images to deal out.
        key: Key of every draw.
        n_weak: Number of weak classes.
        per_class: The trainer's examples of each other class.
        n_val: Validation examples.
        sizes: Number of samples that each owner offers.

    Returns:
        The market.

    Raises:
        ValueError: If there are too few images.
    """
    keys = [jax.random.fold_in(key, i) for i in range(4)]
    x, y, n_classes = data.as_features(), data.y, data.n_classes
    weak = np.sort(jax.random.permutation(keys[0], n_classes)[:n_weak])
    remaining = np.asarray(jax.random.permutation(keys[1], len(y)))
    is_weak = np.isin(y, weak)

    def take(n: int, among: np.ndarray) -> np.ndarray:
        nonlocal remaining
        taken = remaining[among[remaining]][:n]
        if len(taken) < n:
            raise ValueError(f"data must hold more images, got {len(y)}")
        remaining = remaining[~np.isin(remaining, taken)]
        return taken

    anything = np.ones(len(y), bool)
    val = take(n_val, anything)
    train = np.concatenate(
        [take(1 if c in weak else per_class, y == c) for c in range(n_classes)]
    )
    # The owners of particular classes first: the others take any images.
    small, wrong_classes = take(sizes[4], is_weak), take(sizes[3], ~is_weak)
    clean, wrong_labels, corrupted = (take(n, anything) for n in sizes[:3])

    flipped, _ = flip_labels(keys[2], y[wrong_labels], 0.7, n_classes=n_classes)
    images = x[corrupted].reshape(-1, *data.x.shape[1:])
    noisy, _ = gaussian_noise(keys[3], images, scale=0.5)
    rows = np.concatenate([clean, wrong_labels, corrupted, wrong_classes, small])
    owner = np.repeat(np.arange(len(OWNERS)), sizes)
    x_offered, y_offered = x[rows], y[rows]
    y_offered[owner == OWNERS.index("wrong labels")] = flipped
    x_offered[owner == OWNERS.index("corrupted pixels")] = np.reshape(
        noisy, (len(noisy), -1)
    )
    return Market(
        n_classes=n_classes,
        weak=weak,
        x_train=x[train],
        y_train=y[train],
        x_val=x[val],
        y_val=y[val],
        x=x_offered,
        y=y_offered,
        y_true=y[rows],
        owner=owner,
    )
