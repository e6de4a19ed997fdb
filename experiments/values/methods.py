"""The learners that the study trains again, and the names of all its values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments._kit.scenes.valuations import KNN, MAX, RETRAINED
from jaxsel import value
from jaxsel.tasks import RANDOM

PENALTY = 3.0
SHAPLEY = ("KNN-Shapley", "TMC-Shapley", "G-Shapley")
LEFT_OUT = ("KNN-LOO", "LOO")
STUDIED = (SHAPLEY[0], MAX, LEFT_OUT[0], *SHAPLEY[1:], LEFT_OUT[1], RANDOM)
"""Values that the study compares."""
OURS = tuple(m for m in (*KNN, *RETRAINED) if m not in STUDIED)
"""Values that the study lacks, and which can refute none of its claims."""
METHODS = (*STUDIED, *OURS)


def named(method: str) -> str:
    """Return a method's name for a table, marked if the study lacks it."""
    return f"{method} (ours)" if method in OURS else method


def logistic() -> value.LogisticRegression:
    """Return the logistic regression that is trained again, to a loose tolerance."""
    return value.LogisticRegression(l2=PENALTY, tol=0.3)


class PaddedUtility:
    """A utility padded to `capacity` points, so that its model is compiled once.

    Args:
        learner: Model that is trained.
        x: Training features, `[n, d]`.
        y: Training classes, `[n]`.
        x_val: Validation features.
        y_val: Validation classes.
        capacity: Points that the model sees; points beyond n are in no coalition.

    Attributes:
        n: Number of training points.
    """

    def __init__(
        self,
        learner: value.Learner,
        x: np.ndarray,
        y: np.ndarray,
        x_val: np.ndarray,
        y_val: np.ndarray,
        *,
        capacity: int,
    ):
        self.n = len(y)
        self._missing = capacity - self.n
        # Repeated rows fill the padding; masks never include them.
        rows = np.arange(capacity) % self.n
        self._inner = value.ModelUtility(learner, x[rows], y[rows], x_val, y_val)

    def __call__(self, masks: Any, key: Any) -> jax.Array:
        """Return the utility of each coalition, `[B]`."""
        return self.evaluate(masks, key)[0]

    def evaluate(
        self, masks: Any, key: Any, start: Any = None
    ) -> tuple[jax.Array, Any]:
        """Return utilities and parameters: see `ModelUtility.evaluate`."""
        wide = jnp.pad(jnp.asarray(masks), ((0, 0), (0, self._missing)))
        return self._inner.evaluate(wide, key, start)


class Exact:
    """Logistic regression by Newton's method, as a learner for the applications.

    Args:
        learner: Solves it.
    """

    def __init__(self, learner: value.LogisticRegression):
        self._learner = learner

    def __repr__(self) -> str:
        return f"Exact({self._learner!r})"

    def __call__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        x_test: np.ndarray,
        y_test: np.ndarray,
        key: jax.Array,
    ) -> float:
        """Train on `(x, y)`, and return the accuracy on the test set."""
        del key
        flat = lambda a: np.asarray(a, np.float32).reshape(len(a), -1)
        # Pad to a power of two, so that most sizes share a compiled program.
        size = 1 << (len(y) - 1).bit_length()
        rows = np.arange(size) % len(y)
        utility = value.ModelUtility(
            self._learner, flat(x)[rows], y[rows], flat(x_test), y_test
        )
        return float(utility(np.arange(size)[None] < len(y))[0])
