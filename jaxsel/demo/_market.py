"""A trainer with blind spots, five owners of digits, and how the trainer buys."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
import scipy.special
from flax import nnx

from jaxsel.data import Dataset, flip_labels, gaussian_noise
from jaxsel.models import Params, logits
from jaxsel.value import knn_shapley

OWNERS = {
    "clean": "clean digits of all classes",
    "wrong labels": "digits of all classes, 70% of them with a wrong label",
    "corrupted pixels": "digits of all classes under heavy noise",
    "wrong classes": "clean digits of the classes that the trainer masters already",
    "small but good": "clean digits of the weak classes",
}
"""Samples that each owner offers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Market:
    """One draw of the scenario; images are flattened, pixels in [0, 1]."""

    n_classes: int
    weak: np.ndarray  # classes that the trainer has one example of, ascending
    x_train: np.ndarray
    y_train: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    x: np.ndarray  # the owners' offers
    y: np.ndarray
    y_true: np.ndarray  # the labels that should come with them
    owner: np.ndarray  # index into `OWNERS`


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

    The trainer has `n_val` validation examples, and to train on `per_class` examples of
    each class, but one of each of `n_weak` weak classes.

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
    y_offered[owner == 1] = flipped
    x_offered[owner == 2] = np.reshape(noisy, (len(noisy), -1))
    return Market(
        n_classes=n_classes,
        weak=weak,
        **{"x_train": x[train], "y_train": y[train], "x_val": x[val], "y_val": y[val]},
        **{"x": x_offered, "y": y_offered, "y_true": y[rows], "owner": owner},
    )


def appraise(
    market: Market, graphdef: nnx.GraphDef, params: Params
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value every owner's samples for this trainer.

    One call to `knn_shapley` values them together with the trainer's own, so that
    samples like the trainer's are worth less. Shapley values are linear in the utility:
    weighted by the trainer's error, they are those of an accuracy in which an example
    counts as much as the trainer errs on it.

    Returns:
        Weighted values and plain ones, `[n]` each; and the share of each class in the
        trainer's error, `[classes]`.
    """
    probability = scipy.special.softmax(logits(graphdef, params, market.x_val), axis=1)
    error = 1 - probability[np.arange(len(market.y_val)), market.y_val]
    rows = knn_shapley(
        np.concatenate([market.x_train, market.x]),
        np.concatenate([market.y_train, market.y]),
        *(market.x_val, market.y_val),
        k=5,
        reduce=None,
    )
    rows = np.asarray(rows.values, np.float64)[:, len(market.x_train) :]
    by_class = np.bincount(market.y_val, weights=error, minlength=market.n_classes)
    return np.average(rows, 0, error), rows.mean(0), by_class / error.sum()


def choose(
    values: np.ndarray,
    harmless: np.ndarray,
    labels: np.ndarray,
    shares: np.ndarray,
    budget: int,
) -> np.ndarray:
    """Choose samples to buy: each class gets its share, the best samples first.

    A value is the mean contribution to every coalition, so it does not fall when other
    samples like it are bought. The shares keep the budget from going to one class; the
    part that a class cannot use goes to the best of the others.

    Args:
        values: `[n]`, higher is better.
        harmless: `[n]` of bool: samples that may be bought at all.
        labels: The class that each sample claims, `[n]`.
        shares: Share of the budget for each class, `[classes]`, summing to 1.
        budget: Number of samples to buy; fewer are bought if fewer are harmless.
    """
    order = np.lexsort((-values, ~harmless))
    # Rank of each sample within its class, best first.
    by_class = np.zeros(len(labels), int)
    for c in range(len(shares)):
        rows = order[labels[order] == c]
        by_class[rows] = np.arange(len(rows))
    # Places lost to rounding go to the classes that lost most (Hamilton).
    quota = np.floor(shares * budget)
    spare = budget - int(quota.sum())
    quota[np.argsort(quota - shares * budget, kind="stable")[:spare]] += 1
    first = np.lexsort((-values, by_class >= quota[labels], ~harmless))
    return first[: min(budget, int(harmless.sum()))]
