"""Figures 2a and 2b with the study's main proposal: KNN values of pretrained features.

Both sides get the same search: KNN values and values that train a logistic regression
again take pixels as well as features, and for each the metric, or the penalty, is the
best of two on rows that are never valued.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxsel
from experiments._kit.scenes.valuations import MAX, Samples, retrained_methods
from jaxsel import value
from jaxsel.data import flip_labels
from jaxsel.tasks import RANDOM, detection_curve, random_values

from .data import project
from .images import FIRST, Encoded

SETTINGS = ("noisy", "instance")
SPACES = ("features", "pixels")
"""Inputs of a method."""
KNN = ("KNN-Shapley", MAX, "KNN-LOO")
AGAIN = ("TMC-Shapley", "G-Shapley", "LOO")
COLUMNS = (*((m, space) for m in (*KNN, *AGAIN) for space in SPACES), (RANDOM, ""))
"""Methods with their inputs, the columns of results."""
METRICS, PENALTIES = ("l2", "cosine"), (0.3, 3.0)
WIDTH = 16
"""Principal components of pixels and of features that are trained on."""

_K = 5
_RATE = 0.1
_FUNCTIONS = {
    KNN[0]: jaxsel.knn_shapley,
    MAX: functools.partial(jaxsel.knn_shapley, reduce="max"),
    KNN[2]: jaxsel.knn_loo,
}


class PretrainedSizes(NamedTuple):
    """Training and validation points, and samples of the values that train again."""

    n: int = 300
    n_val: int = 200
    samples: Samples = Samples()


class Space(NamedTuple):
    """A representation of all rows, and the setting that suits it.

    Attributes:
        rows: `[n, d]`.
        setting: A metric, or a penalty.
        accuracy: Accuracy of that setting, the best one, on the other rows.
    """

    rows: np.ndarray
    setting: str | float
    accuracy: float


def knn_space(rows: np.ndarray, y: np.ndarray, other: int) -> Space:
    """Choose the metric by which 5 neighbours classify the first rows best.

    Args:
        rows: `[n, d]`.
        y: `[n]`.
        other: Number of first rows, which vote for each other.
    """
    first, labels = rows[:other].astype(np.float64), y[:other]

    def accuracy(metric: str) -> float:
        x = first
        if metric == "cosine":
            x = x / np.linalg.norm(x, axis=1, keepdims=True)
        squares = (x**2).sum(1)
        distances = squares[:, None] + squares - 2 * x @ x.T
        np.fill_diagonal(distances, np.inf)  # no row votes for itself
        near = labels[np.argsort(distances, axis=1)[:, :_K]]
        guess = [np.bincount(votes).argmax() for votes in near]
        return float(np.mean(np.array(guess) == labels))

    return _best(rows, accuracy, METRICS)


def trained_space(rows: np.ndarray, y: np.ndarray, other: int) -> Space:
    """Choose the penalty by which logistic regression classifies the first rows best.

    By threefold cross-validation.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    def accuracy(penalty: float) -> float:
        model = LogisticRegression(C=1 / penalty, max_iter=1000)
        return float(cross_val_score(model, rows[:other], y[:other], cv=3).mean())

    return _best(rows, accuracy, PENALTIES)


def spaces_of(data: Encoded) -> dict[str, dict[str, Space]]:
    """Return the inputs of KNN values ("knn") and of others ("again"), by `SPACES`.

    KNN values take all pixels or all features; a logistic regression, which is trained
    thousands of times, takes their first principal components, on one scale.
    """
    full = dict(zip(SPACES, (data.features[FIRST], _flat(data.x)), strict=True))
    few = {
        name: project(rows[: data.other], WIDTH)(rows) for name, rows in full.items()
    }
    scaled = {name: rows / rows[: data.other].std() for name, rows in few.items()}
    return {
        "knn": {s: knn_space(rows, data.y, data.other) for s, rows in full.items()},
        "again": {
            s: trained_space(rows, data.y, data.other) for s, rows in scaled.items()
        },
    }


class Scene(NamedTuple):
    """A training set with bad points, as rows of the data.

    Attributes:
        train: `[n]`.
        val: `[m]`.
        labels: Classes of the training points, `[n]`, as they are given.
        bad: Mask of wrong or foreign training points, `[n]`.
    """

    train: np.ndarray
    val: np.ndarray
    labels: np.ndarray
    bad: np.ndarray


def pretrained_seed(
    fashion: Encoded, mnist: Encoded, sizes: PretrainedSizes, seed: int
) -> dict[str, np.ndarray]:
    """Detect wrong labels of Fashion-MNIST, and clothes among digits, for one seed.

    Returns:
        "auc", `[settings, columns]`; "curves", the share found by the number inspected,
        `[settings, columns, n + 1]`; "accuracy", of the best metric or penalty on the
        other rows, `[settings, 2, spaces]`, KNN values first.
    """
    key = jax.random.key((23 << 16) + seed)
    both, foreign = with_foreign(mnist, fashion)
    auc, curves, accuracy = [], [], []
    for i, data in enumerate((fashion, both)):
        deal, draws = jax.random.split(jax.random.fold_in(key, i))
        scene = planted(data, sizes, deal, foreign if i else None)
        spaces = spaces_of(data)
        detections = [
            detection_curve(v, scene.bad)
            for v in _values(scene, spaces, data.y, sizes, draws)
        ]
        auc.append([curve.auc for curve in detections])
        curves.append([curve.found for curve in detections])
        accuracy.append(
            [[by_space[s].accuracy for s in SPACES] for by_space in spaces.values()]
        )
    return {
        "auc": np.array(auc),
        "curves": np.array(curves),
        "accuracy": np.array(accuracy),
    }


def with_foreign(data: Encoded, foreign: Encoded) -> tuple[Encoded, np.ndarray]:
    """Append the other rows of foreign images; also return their new rows."""
    m, n = foreign.other, len(data.y)
    joined = Encoded(
        x=np.concatenate([data.x, foreign.x[:m]]),
        y=np.concatenate([data.y, foreign.y[:m]]),
        features={
            name: np.concatenate([data.features[name], foreign.features[name][:m]])
            for name in data.features
        },
        other=data.other,
    )
    return joined, np.arange(n, n + m)


def planted(
    data: Encoded, sizes: PretrainedSizes, key: jax.Array, foreign: np.ndarray | None
) -> Scene:
    """Split rows, and corrupt a tenth of the training points.

    Args:
        data: Rows; rows in `foreign` are never dealt.
        sizes: Numbers of points.
        key: Key of the draws.
        foreign: Rows that replace training points, under classes drawn at random; if
            None, labels become one of the other classes.
    """
    deal, spoil, classes = jax.random.split(key, 3)
    stop = len(data.y) if foreign is None else int(foreign[0])
    n = sizes.n
    order = np.asarray(jax.random.permutation(deal, np.arange(data.other, stop)))
    train, val = order[:n].copy(), order[n : n + sizes.n_val]
    labels, n_classes = data.y[train], int(data.y.max()) + 1
    if foreign is None:
        flipped, bad = flip_labels(spoil, labels, _RATE, n_classes=n_classes)
        return Scene(train, val, np.asarray(flipped), np.asarray(bad))
    count = round(_RATE * n)
    bad = np.arange(n) < count  # an order of rows means nothing
    train[:count] = np.asarray(jax.random.permutation(spoil, foreign))[:count]
    drawn = np.asarray(jax.random.randint(classes, (count,), 0, n_classes))
    return Scene(train, val, np.concatenate([drawn, labels[count:]]), bad)


def _values(
    scene: Scene,
    spaces: Mapping[str, Mapping[str, Space]],
    y: np.ndarray,
    sizes: PretrainedSizes,
    key: jax.Array,
) -> list[np.ndarray]:
    """Return the values by each of `COLUMNS`, `[n]`."""
    values = []
    for method, what in COLUMNS:
        if method == RANDOM:
            values.append(random_values(jax.random.fold_in(key, 1), sizes.n))
            continue
        space = spaces["knn" if method in KNN else "again"][what]
        arrays = (
            space.rows[scene.train],
            scene.labels,
            space.rows[scene.val],
            y[scene.val],
        )
        if method in KNN:
            values.append(_FUNCTIONS[method](*arrays, k=_K, metric=space.setting))
        else:
            learner = value.LogisticRegression(l2=float(space.setting), tol=0.3)
            again = retrained_methods(learner, sizes.samples, only=(method,))
            values.append(again[method](*arrays, key))
    return [np.asarray(result.values, np.float64) for result in values]


def _best(
    rows: np.ndarray,
    accuracy: Callable[[Any], float],
    settings: Sequence[str] | Sequence[float],
) -> Space:
    reached = [accuracy(setting) for setting in settings]
    best = int(np.argmax(reached))
    return Space(rows.astype(np.float32), settings[best], reached[best])


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1)
