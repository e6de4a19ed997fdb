"""Embeddings that record their training rows."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Literal

import jax
import numpy as np
import numpy.typing as npt
from flax import nnx

from jaxsel._inputs.checks import check_choice, check_count
from jaxsel.models import CNN, MLP, Params, fit, logits


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Embedding:
    """Layers of a classifier before its last, with hashes of its training rows.

    Call it with samples `[n, ...]` to get features `[n, d]`.

    Attributes:
        graphdef: Static part of the layers.
        params: Their parameters.
        shape: Shape of a sample.
        trained_on: A 64-bit hash of each row that it was trained on, sorted.
    """

    graphdef: nnx.GraphDef
    params: Params
    shape: tuple[int, ...]
    trained_on: np.ndarray

    def __call__(self, x: npt.ArrayLike) -> np.ndarray:
        """Return the features of samples `[n, ...]`, `[n, d]` float32.

        Args:
            x: Samples of `shape`; bytes count as 0..1.

        Raises:
            ValueError: If samples have another shape.
        """
        return np.asarray(logits(self.graphdef, self.params, self._check(x)))

    def seen(self, x: npt.ArrayLike) -> np.ndarray:
        """Return which samples it was trained on, `[n]` of bool.

        Rows are compared in full, as float32; bytes count as 0..1.
        """
        return np.isin(_hashes(self._check(x)), self.trained_on)

    def __repr__(self) -> str:
        return f"Embedding(shape={self.shape}, trained on {len(self.trained_on)} rows)"

    def _check(self, x: npt.ArrayLike) -> np.ndarray:
        x = pixels(np.asarray(x))
        if x.shape[1:] != self.shape:
            raise ValueError(
                f"x must hold samples of shape {self.shape}, got {x.shape[1:]}"
            )
        return x


def train_embedding(
    x_other: npt.ArrayLike,
    y_other: npt.ArrayLike,
    *,
    kind: Literal["cnn", "mlp"] = "cnn",
    hidden: int = 64,
    steps: int = 500,
    learning_rate: float = 3e-3,
    key: jax.Array,
) -> Embedding:
    """Train a small classifier on other data, and return all but its last layer.

    Other data are another data set, or other classes of the same one. An embedding that
    has seen the rows being valued, wrong labels included, makes them look better than
    they are: the applications warn where it has.

    Args:
        x_other: Images `[n, h, w, c]`, or a table `[n, d]` with `kind="mlp"`. Bytes
            count as 0..1.
        y_other: Classes `[n]`, whole numbers of any two or more values.
        kind: "cnn", two blocks of convolution and pooling (see `jaxsel.models.CNN`), or
            "mlp", one hidden layer.
        hidden: Units of the hidden layer of "mlp": its features.
        steps: Training steps of 64 examples.
        learning_rate: Of the first step.
        key: Key of the initial weights and of the minibatches.

    Returns:
        The embedding. Features of "cnn" are the last pooled map, flattened; of "mlp"
        the rectified hidden units.

    Costs `64 * steps` forward and backward passes, plus a hash of each row.

    Raises:
        ValueError: If there is only one class, or shapes do not fit.
        TypeError: If labels are not whole numbers.
    """
    check_choice("kind", kind, ("cnn", "mlp"))
    x, y = pixels(np.asarray(x_other)), np.asarray(y_other)
    if not np.issubdtype(y.dtype, np.integer):
        raise TypeError(f"y_other must hold whole numbers, got dtype {y.dtype}")
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y_other must hold two or more classes, got {len(classes)}")
    key_model, key_fit = jax.random.split(key)
    rngs = nnx.Rngs(key_model)
    if kind == "cnn":
        model: CNN | MLP = CNN(x.shape[1:], len(classes), rngs=rngs)
    else:
        width = int(np.prod(x.shape[1:]))
        model = MLP(width, check_count("hidden", hidden), len(classes), rngs=rngs)
    graphdef, params = nnx.split(model, nnx.Param)
    params = fit(
        graphdef,
        params,
        x,
        codes.astype(np.int32),
        key=key_fit,
        steps=steps,
        learning_rate=learning_rate,
    )
    graphdef, params = nnx.split(_Body(nnx.merge(graphdef, params)), nnx.Param)
    return Embedding(
        graphdef=graphdef,
        params=params,
        shape=x.shape[1:],
        trained_on=np.unique(_hashes(x)),
    )


def pixels(x: np.ndarray) -> np.ndarray:
    """Return float32; bytes as 0..1."""
    scaled = x.astype(np.float32)
    return scaled / np.float32(255) if x.dtype == np.uint8 else scaled


class _Body(nnx.Module):
    """A classifier with the identity as its last layer."""

    def __init__(self, model: Any):
        if hasattr(model, "dense"):
            model.dense = _Identity()
        else:
            model.layers[-1] = _Identity()
        self.model = model

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.model(x)


class _Identity(nnx.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return x


def _hashes(x: np.ndarray) -> np.ndarray:
    """Hash each row of float32 numbers, `[n]` uint64; -0 counts as 0."""
    flat = np.ascontiguousarray((x + np.float32(0)).reshape(len(x), -1))
    digests = [hashlib.blake2b(row, digest_size=8).digest() for row in flat]
    return np.frombuffer(b"".join(digests), np.uint64)
