"""Networks of `benchmarks.networks`: their samples, layers and trainings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxsel import attribute, data, models

from ._setups import Data, digits

FILTERS, POSTS, TARGETS = 8, 600, 100


class Setup(NamedTuple):
    """Samples, a network, its training, and the settings of its measurement.

    Attributes:
        load: Loads the samples.
        recipe: The network and its training.
        least: The least score that one of ours must have, if there is one.
        seeds: Runs a subset.
        k: Neighbours of the baseline.
        networks: Over which scores are averaged, or 1 for methods of one alone.
        solver: Of `network_influence` and `source`; None leaves the choice to them.
        peers: Whether dattri is measured, too.
        chunk_size: Subsets trained together.
        texts: Loads the samples' texts and the targets', if they are texts.
    """

    load: Callable[[], Data]
    recipe: attribute.Recipe
    least: float | None = None
    seeds: int = 2
    k: int = 5
    networks: int = 5
    solver: str | None = None
    peers: bool = False
    chunk_size: int = 5
    texts: Callable[[], tuple[list[str], list[str]]] | None = None


def perceptron(*sizes: int) -> Any:
    """Return a perceptron with rectifiers and torch's initial weights."""

    def init(key: jax.Array, x: jax.Array) -> Any:
        pairs = zip(sizes, sizes[1:], strict=False)
        return [
            _uniform(jax.random.fold_in(key, i), (a + 1, b), a)
            for i, (a, b) in enumerate(pairs)
        ]

    def apply(params: Any, x: jax.Array) -> jax.Array:
        *hidden, last = params
        for layer in hidden:
            x = jax.nn.relu(x @ layer[:-1] + layer[-1])
        return x @ last[:-1] + last[-1]

    return init, apply


def cnn() -> Any:
    """Return a network of one convolution, with torch's initial weights."""

    def init(key: jax.Array, x: jax.Array) -> Any:
        keys = jax.random.split(key, 3)
        inputs = 16 * FILTERS
        return {
            "kernel": _uniform(keys[0], (3, 3, 1, FILTERS), 9),
            "bias": _uniform(keys[1], (FILTERS,), 9),
            "out": _uniform(keys[2], (inputs + 1, 10), inputs),
        }

    def apply(params: Any, x: jax.Array) -> jax.Array:
        # Convolutions of many networks at once are slow on CPUs; products are not.
        image = jnp.pad(x.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
        near = [image[:, i : i + 8, j : j + 8] for i in range(3) for j in range(3)]
        kernel = params["kernel"].reshape(9, FILTERS)
        image = jax.nn.relu(jnp.stack(near, -1) @ kernel + params["bias"])
        image = image.reshape(-1, 4, 2, 4, 2, FILTERS).mean((2, 4))
        flat = image.transpose(0, 3, 1, 2).reshape(len(image), -1)  # as torch does
        return flat @ params["out"][:-1] + params["out"][-1]

    return init, apply


def _uniform(key: jax.Array, shape: tuple[int, ...], inputs: int) -> jax.Array:
    return jax.random.uniform(key, shape, minval=-1, maxval=1) / inputs**0.5


def mnist() -> Data:
    """Load 5,000 training samples and 500 targets."""
    parts = (
        data.load("mnist", split="train[:5000]"),
        data.load("mnist", split="test[:500]"),
    )
    arrays = [
        array
        for part in parts
        for array in (
            ((part.x.reshape(len(part), -1) / 255 - 0.1307) / 0.3081).astype(
                np.float32
            ),
            np.asarray(part.y, np.int64),
        )
    ]
    return Data(*arrays)


def last_inputs(params: Any, apply: Any, x: jax.Array) -> jax.Array:
    """Compute the inputs of the last layer: outputs with the identity in its place."""
    last = params["out"] if isinstance(params, dict) else params[-1]
    identity = jnp.eye(len(last), len(last) - 1)
    if isinstance(params, dict):
        return apply({**params, "out": identity}, x)
    return apply([*params[:-1], identity], x)


def bm25(texts: list[str], targets: list[str]) -> np.ndarray:
    """Score texts for each target as a query, `[t, n]`."""
    import bm25s

    def words(of: list[str]) -> Any:
        return bm25s.tokenize(of, stopwords="en", return_ids=False, show_progress=False)

    index = bm25s.BM25()
    index.index(words(texts), show_progress=False)
    return np.stack([index.get_scores(query) for query in words(targets)])


def post_texts() -> tuple[list[str], list[str]]:
    """Load the texts of posts and targets."""
    part = data.load("newsgroups", split=f"train[:{POSTS + TARGETS}]")
    texts = [str(text) for text in part.x]
    return texts[:POSTS], texts[POSTS:]


def posts() -> Data:
    """Load posts and targets, as features of length 1."""
    part = data.load("newsgroups", split=f"train[:{POSTS + TARGETS}]")
    x = models.text_features(
        [str(text) for text in part.x],
        models.load_target(models.prepare_model("minilm")),
        length=64,
        cache=models.cache_folder("features"),
    )
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    y = np.asarray(part.y, np.int64)
    return Data(x[:POSTS], y[:POSTS], x[POSTS:], y[POSTS:])


def _recipe(model: Any, rate: float, momentum: float, epochs: int, size: int) -> Any:
    return attribute.Recipe(
        model, optax.sgd(rate, momentum or None), epochs=epochs, batch_size=size
    )


SETUPS = {
    "logistic, batches of 32": Setup(
        mnist, _recipe(perceptron(784, 10), 0.01, 0, 20, 32), 0.7, 1, 10, 1, "cg"
    ),
    "logistic, batches of 64": Setup(
        mnist, _recipe(perceptron(784, 10), 0.01, 0, 20, 64), 0.7, 1, 10, 1, "cg"
    ),
    "perceptron": Setup(
        mnist,
        _recipe(perceptron(784, 128, 64, 10), 0.01, 0.9, 50, 64),
        0.45,
        k=10,
        networks=3,
        solver="ekfac",
    ),
    "cnn": Setup(digits, _recipe(cnn(), 0.1, 0.9, 30, 50), peers=True),
    "head": Setup(
        posts,
        _recipe(perceptron(384, 20), 0.5, 0.9, 30, 50),
        peers=True,
        texts=post_texts,
    ),
}
