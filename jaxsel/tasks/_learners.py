"""Models that applications train again: from a training set to test accuracies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import jax
import numpy as np
from flax import nnx

from jaxsel._inputs.checks import check_count, check_positive
from jaxsel.models import CNN, MLP, accuracy, fit

Learner = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, jax.Array], float]
"""`accuracy(x, y, x_test, y_test, key)`: train on (x, y), return the share right."""

Test = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retrain:
    """A model that is trained from scratch at every call, by `jaxsel.models.fit`.

    The same key gives the same initial weights, so that training sets are compared
    under equal conditions; every set is trained for the same number of steps.

    Attributes:
        kind: "mlp" (without hidden layers: logistic regression) or "cnn".
        hidden: Units of each hidden layer, or channels of each block.
        steps: Training steps.
        batch_size: Examples in a step.
        learning_rate: Of the first step; it falls to 0 along a cosine.
        weight_decay: Decoupled weight decay.
    """

    kind: Literal["mlp", "cnn"]
    hidden: tuple[int, ...]
    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float

    def __post_init__(self) -> None:
        for size in self.hidden:
            check_count("hidden", size)
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        check_positive("learning_rate", self.learning_rate)
        check_positive("weight_decay", self.weight_decay, zero=True)

    def __call__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        x_test: np.ndarray,
        y_test: np.ndarray,
        key: jax.Array,
    ) -> float:
        """Train on `(x, y)`, and return the accuracy on the test set, in 0..1."""
        return self.on(x, y, [(x_test, y_test)], key)[0]

    def on(
        self, x: np.ndarray, y: np.ndarray, tests: Sequence[Test], key: jax.Array
    ) -> list[float]:
        """Train once, and return the accuracy on each of several test sets."""
        classes = int(max(labels.max() for labels in (y, *(t[1] for t in tests)))) + 1
        key_model, key_fit = jax.random.split(key)
        rngs = nnx.Rngs(key_model)
        if self.kind == "cnn":
            shape = x.shape[1:]
            model: CNN | MLP = CNN(shape, classes, channels=self.hidden, rngs=rngs)
        else:
            width = int(np.prod(x.shape[1:]))
            model = MLP(width, *self.hidden, classes, rngs=rngs)
        graphdef, params = nnx.split(model, nnx.Param)
        params = fit(
            graphdef,
            params,
            x,
            y,
            key=key_fit,
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
        )
        return [accuracy(graphdef, params, *test) for test in tests]


def retrain_logistic(
    *,
    steps: int = 500,
    batch_size: int = 64,
    learning_rate: float = 1e-2,
    weight_decay: float = 0.0,
) -> Retrain:
    """Return multinomial logistic regression, as a learner for the applications.

    Args:
        steps: Training steps.
        batch_size: Examples in a step.
        learning_rate: Of the first step; it falls to 0 along a cosine.
        weight_decay: Decoupled weight decay.

    Raises:
        ValueError: If a number is out of range.
    """
    return retrain_mlp(
        hidden=(),
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
    )


def retrain_mlp(
    *,
    hidden: Sequence[int] = (100,),
    steps: int = 500,
    batch_size: int = 64,
    learning_rate: float = 1e-2,
    weight_decay: float = 0.0,
) -> Retrain:
    """Return a multilayer perceptron, as a learner for the applications.

    Args:
        hidden: Units of each hidden layer.
        steps: Training steps.
        batch_size: Examples in a step.
        learning_rate: Of the first step; it falls to 0 along a cosine.
        weight_decay: Decoupled weight decay.

    Raises:
        ValueError: If a number is out of range.
    """
    return Retrain(
        kind="mlp",
        hidden=tuple(hidden),
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
    )


def retrain_cnn(
    *,
    channels: Sequence[int] = (16, 32),
    steps: int = 500,
    batch_size: int = 64,
    learning_rate: float = 3e-3,
    weight_decay: float = 0.0,
) -> Retrain:
    """Return a small convolutional network, as a learner for the applications.

    Args:
        channels: Channels of each block of convolution and pooling.
        steps: Training steps.
        batch_size: Examples in a step.
        learning_rate: Of the first step; it falls to 0 along a cosine.
        weight_decay: Decoupled weight decay.

    Raises:
        ValueError: If a number is out of range.
    """
    return Retrain(
        kind="cnn",
        hidden=tuple(channels),
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
    )


LOGISTIC, MLP_LEARNER, CNN_LEARNER = retrain_logistic(), retrain_mlp(), retrain_cnn()


class Scorer:
    """Test accuracies of one learner by rows of one training set, under one key.

    Each set of rows is trained on once, in ascending order.

    Args:
        learner: The model to train.
        x: The training set, `[n, ...]`.
        y: Its classes, `[n]`.
        tests: One or more test sets.
        key: Key of every training.
    """

    def __init__(
        self,
        learner: Learner,
        x: np.ndarray,
        y: np.ndarray,
        tests: Sequence[Test],
        key: jax.Array,
    ):
        self._learner, self._x, self._y = learner, x, y
        self._tests, self._key = tests, key
        self._known: dict[bytes, np.ndarray] = {}

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the accuracy on each test set after training on some rows."""
        rows = np.sort(rows)
        name = rows.tobytes()
        if name not in self._known:
            self._known[name] = self._train(self._x[rows], self._y[rows])
        return self._known[name]

    def _train(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        learner, key = self._learner, self._key
        if isinstance(learner, Retrain):  # trains once for all test sets
            accuracies = learner.on(x, y, self._tests, key)
        else:
            accuracies = [float(learner(x, y, *test, key)) for test in self._tests]
        if not all(0 <= share <= 1 for share in accuracies):
            raise ValueError(
                f"learner must return accuracies between 0 and 1, got {accuracies}"
            )
        return np.array(accuracies)
