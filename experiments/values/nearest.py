"""KNN-LOO's curve: how soon it finds wrong labels, by the number of validation points.

Leave-one-out changes only the K nearest of a validation point. With m of them, m K / n
is how often a training point is among these on average, so that a study with few
validation points finds KNN-LOO near random.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

import jaxsel
from experiments._kit.scenes.samples import Part
from jaxsel.data import flip_labels
from jaxsel.tasks import detection_curve

MEASURES = ("KNN-Shapley", "KNN-LOO")
SETTINGS = ("ten classes", "T-shirts and shirts")
INSPECTED = (0.1, 0.2, 0.3, 0.5)
"""Shares inspected at which the share found is recorded."""

_PAIR = (0, 6)
_WRONG = 0.1
_K = 5


class CurveSizes(NamedTuple):
    """Training points, and numbers of validation points.

    Attributes:
        n: Training points.
        n_val: Numbers of validation points; smaller sets are subsets of larger ones.
    """

    n: int = 1000
    n_val: tuple[int, ...] = (25, 50, 100, 200, 400, 800)


def nearest_seed(part: Part, sizes: CurveSizes, seed: int) -> dict[str, np.ndarray]:
    """Detect a tenth of wrong labels in each of `SETTINGS`, for one seed.

    Returns:
        "auc", `[settings, n_val, measures]`; "found", the share found at each of
        `INSPECTED`, `[settings, n_val, measures, shares]`; "zero", the share of points
        whose KNN-LOO is zero, `[settings, n_val]`.
    """
    key = jax.random.key((17 << 16) + seed)
    pair = np.isin(part.y, _PAIR)
    scenes = (part.x, part.y), (part.x[pair], (part.y[pair] == _PAIR[1]).astype(int))
    shape = len(SETTINGS), len(sizes.n_val), len(MEASURES)
    auc, zero = np.zeros(shape), np.zeros(shape[:2])
    shares_found = np.zeros((*shape, len(INSPECTED)))
    for s, (x, y) in enumerate(scenes):
        deal, flips = jax.random.split(jax.random.fold_in(key, s))
        order = np.asarray(jax.random.permutation(deal, len(y)))
        order = order[: sizes.n + max(sizes.n_val)]
        features, labels = x[order].reshape(len(order), -1), y[order]
        noisy, wrong = (
            np.asarray(a)
            for a in flip_labels(
                flips, labels[: sizes.n], _WRONG, n_classes=int(y.max()) + 1
            )
        )
        for i, m in enumerate(sizes.n_val):
            val = slice(sizes.n, sizes.n + m)
            arrays = features[: sizes.n], noisy, features[val], labels[val]
            both = [
                np.asarray(function(*arrays, k=_K).values, np.float64)
                for function in (jaxsel.knn_shapley, jaxsel.knn_loo)
            ]
            for j, values in enumerate(both):
                curve = detection_curve(values, wrong)
                auc[s, i, j] = curve.auc
                shares_found[s, i, j] = np.interp(
                    INSPECTED, curve.inspected, curve.found
                )
            # Values other than zero are 1 / (K m) at least: below 1e-9 is rounding.
            zero[s, i] = np.mean(np.abs(both[MEASURES.index("KNN-LOO")]) < 1e-9)
    return {"auc": auc, "found": shares_found, "zero": zero}
