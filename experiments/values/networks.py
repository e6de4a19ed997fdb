"""Attributions of networks beside networks that are trained on half of the points.

The study values points for models that are quickly trained again. Here are the linear
datamodelling scores of all attributions of `jaxsel.attribute`, and of values that know
no network.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import jaxsel
from experiments._kit.scenes.samples import Part
from jaxsel import attribute, models, tasks
from jaxsel.tasks import RANDOM, train_embedding

SCENES: tuple[str, ...] = (
    "digits, perceptron",
    "MNIST, perceptron",
    "MNIST, CNN",
    "reviews, MiniLM's head",
)
ATTRIBUTED = tuple(attribute.ATTRIBUTIONS)
HIDDEN = "KNN-Shapley, last hidden layer"
COLUMNS = (*ATTRIBUTED, "KNN-Shapley", HIDDEN, "cosine", RANDOM)
"""Methods, the columns of results."""

_K, _UNITS = 5, 16
_LINEAR = SCENES[3]  # its inputs are the last hidden layer


class NetworkSizes(NamedTuple):
    """Training points and targets, subsets, networks of a method, and epochs."""

    n: int = 400
    n_val: int = 40
    subsets: int = 50
    networks: int = 3
    epochs: int = 15


FULL_NETWORKS = NetworkSizes(n=1000, n_val=200, subsets=100, networks=5, epochs=30)


def networks_seed(
    parts: Mapping[str, Part], sizes: NetworkSizes, seed: int
) -> dict[str, np.ndarray]:
    """Score each method beside networks that are trained on halves, for one seed.

    Args:
        parts: Samples of some of `SCENES`.
        sizes: How many of them, and how often to train.
        seed: Deals the samples, and draws all else.

    Returns:
        "lds", `[scenes, columns]`, NaN for missing scenes; "ceiling", the score that
        the networks of other seeds reach, `[scenes]`; "accuracy", `[scenes]`.

    References:
        Park et al., TRAK: attributing model behavior at scale, ICML 2023, definition
        2.3.
    """
    lds = np.full((len(SCENES), len(COLUMNS)), np.nan)
    ceiling, accuracy = np.full((2, len(SCENES)), np.nan)
    for i, scene in enumerate(SCENES):
        if scene in parts:
            lds[i], ceiling[i], accuracy[i] = _scores(scene, parts[scene], sizes, seed)
    return {"lds": lds, "ceiling": ceiling, "accuracy": accuracy}


def _scores(
    scene: str, part: Part, sizes: NetworkSizes, seed: int
) -> tuple[np.ndarray, float, float]:
    rng = np.random.default_rng((31, seed))
    rows = rng.permutation(len(part.y))[: sizes.n + sizes.n_val]
    x, y = part.x[rows].astype(np.float32), part.y[rows]
    if scene != SCENES[2]:
        x = x.reshape(len(x), -1)
    arrays = x[: sizes.n], y[: sizes.n], x[sizes.n :], y[sizes.n :]
    key = jax.random.fold_in(jax.random.key(31), seed)
    recipe = _recipe(scene, x.shape[1:], int(part.y.max()) + 1, sizes.epochs)
    # Runs of other keys than those that the attributions train.
    truth = tasks.retrain_subsets(
        recipe, *arrays, key=jax.random.fold_in(key, 1), subsets=sizes.subsets
    )
    scored = [
        tasks.lds(scores, truth, key=key)
        for scores in _methods(scene, recipe, arrays, sizes, key)
    ]
    whole = tasks.retrain_subsets(
        recipe,
        *arrays,
        key=key,
        subsets=np.ones((1, sizes.n), bool),
        seeds=sizes.networks,
        output="margin",
    )
    right = float((whole.outputs > 0).mean())
    ceiling = scored[0].ceiling
    assert ceiling is not None  # runs of each subset are two, of other seeds
    return np.array([s.mean for s in scored]), ceiling, right


@functools.cache  # programs are compiled once for a recipe, not for its equals
def _recipe(
    scene: str, shape: tuple[int, ...], n_classes: int, epochs: int
) -> attribute.Recipe:
    def perceptron(rngs: Any) -> Any:
        return models.MLP(shape[0], _UNITS, n_classes, rngs=rngs)

    def cnn(rngs: Any) -> Any:
        return models.CNN(shape, n_classes, channels=(8, 16), rngs=rngs)

    def head(rngs: Any) -> Any:
        return models.MLP(shape[0], n_classes, rngs=rngs)

    model = (perceptron, perceptron, cnn, head)[SCENES.index(scene)]
    return attribute.Recipe(
        model, optax.sgd(0.05, momentum=0.9), epochs=epochs, batch_size=50
    )


def _methods(
    scene: str,
    recipe: attribute.Recipe,
    arrays: tuple[np.ndarray, ...],
    sizes: NetworkSizes,
    key: jax.Array,
) -> list[Any]:
    """Return scores `[t, n]` in the order of `COLUMNS`."""
    x, y, x_val, y_val = arrays
    attributed = [
        method.function(
            recipe,
            *arrays,
            key=key,
            # Those of one run predict that run, and cost trainings for each target.
            seeds=1 if method.same_run else sizes.networks,
            reduce=None,
        )
        for method in attribute.ATTRIBUTIONS.values()
    ]
    flat, flat_val = x.reshape(len(x), -1), x_val.reshape(len(x_val), -1)
    hidden = flat, flat_val
    if scene != _LINEAR:
        kind = "cnn" if x.ndim > 2 else "mlp"
        body = train_embedding(x, y, kind=kind, hidden=_UNITS, steps=200, key=key)
        hidden = body(x), body(x_val)
    unit, unit_val = (a / np.linalg.norm(a, axis=1)[:, None] for a in (flat, flat_val))
    return [
        *attributed,
        jaxsel.knn_shapley(flat, y, flat_val, y_val, k=_K, reduce=None),
        jaxsel.knn_shapley(hidden[0], y, hidden[1], y_val, k=_K, reduce=None),
        (unit_val @ unit.T) * np.where(y == y_val[:, None], 1, -1),
        jax.random.normal(key, (len(x_val), len(x))),
    ]
