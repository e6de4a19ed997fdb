"""The values that the study compares, as functions for the applications."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsel
from jaxsel import value
from jaxsel._types import Values

from ._application import RANDOM

Valuation = Callable[..., Values]

KNN = ("KNN-Shapley", "KNN-Banzhaf", "KNN-LOO")
MAX = "max-KNN-Shapley"
RETRAINED = ("TMC-Shapley", "G-Shapley", "LOO", "Banzhaf", "Data-OOB")
PENALTY = 3.0
METHODS = (KNN[0], MAX, *KNN[1:], *RETRAINED, RANDOM)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """How much the sampled values may cost.

    Attributes:
        permutations: Of TMC-Shapley.
        tolerance: Where its permutations end, see `jaxsel.value.tmc_shapley`.
        passes: Of G-Shapley.
        coalitions: Of the Banzhaf value.
        bags: Of Data-OOB.
    """

    permutations: int = 64
    tolerance: float = 0.05
    passes: int = 256
    coalitions: int = 1024
    bags: int = 256


def logistic() -> value.LogisticRegression:
    """Return the logistic regression that is trained again, to a loose tolerance."""
    return value.LogisticRegression(l2=PENALTY, tol=0.3)


def knn_methods(*, k: int = 5, foreign: bool = False) -> dict[str, Valuation]:
    """Return the KNN values; with the maximum over validation points if `foreign`."""

    def by(function: Any, **options: Any) -> Valuation:
        def call(x: Any, y: Any, x_val: Any, y_val: Any, key: jax.Array) -> Values:
            del key
            return function(x, y, x_val, y_val, k=k, **options)

        return call

    functions = jaxsel.knn_shapley, jaxsel.knn_banzhaf, jaxsel.knn_loo
    found = {name: by(f) for name, f in zip(KNN, functions, strict=True)}
    return found | ({MAX: by(jaxsel.knn_shapley, reduce="max")} if foreign else {})


def retrained_methods(
    learner: value.Learner, samples: Samples, *, only: tuple[str, ...] = RETRAINED
) -> dict[str, Valuation]:
    """Return the values that train a learner again and again.

    Args:
        learner: What is trained. G-Shapley takes logistic regression whatever it is.
        samples: How much each may cost.
        only: Names of those wanted.
    """

    def utility(x: Any, y: Any, x_val: Any, y_val: Any) -> value.ModelUtility:
        return value.ModelUtility(learner, x, y, x_val, y_val)

    stop = value.MaxSamples

    def tmc(x: Any, y: Any, x_val: Any, y_val: Any, key: jax.Array) -> Values:
        return value.tmc_shapley(
            utility(x, y, x_val, y_val),
            key=key,
            stop=stop(samples.permutations),
            tolerance=samples.tolerance,
        )

    def g(x: Any, y: Any, x_val: Any, y_val: Any, key: jax.Array) -> Values:
        chosen = (
            learner
            if isinstance(learner, (value.LogisticRegression, value.FlaxLearner))
            else value.LogisticRegression()
        )
        return value.g_shapley(
            chosen, x, y, x_val, y_val, key=key, stop=stop(samples.passes)
        )

    def loo(x: Any, y: Any, x_val: Any, y_val: Any, key: jax.Array) -> Values:
        return value.loo(utility(x, y, x_val, y_val), key=key)

    def banzhaf(x: Any, y: Any, x_val: Any, y_val: Any, key: jax.Array) -> Values:
        return value.banzhaf(
            utility(x, y, x_val, y_val), key=key, stop=stop(samples.coalitions)
        )

    def oob(x: Any, y: Any, x_val: Any, y_val: Any, key: jax.Array) -> Values:
        del x_val, y_val
        return value.data_oob(learner, x, y, key=key, stop=stop(samples.bags))

    every: dict[str, Valuation] = dict(
        zip(RETRAINED, (tmc, g, loo, banzhaf, oob), strict=True)
    )
    return {name: every[name] for name in only}


class PaddedUtility:
    """A utility whose model always sees as many points, so that it is compiled once.

    Args:
        learner: What is trained.
        x: Training features, `[n, d]`.
        y: Training classes, `[n]`.
        x_val: Validation features.
        y_val: Validation classes.
        capacity: Points that the model sees: those beyond n are in no coalition.

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
        # All sizes up to a power of two are one program.
        size = 1 << (len(y) - 1).bit_length()
        rows = np.arange(size) % len(y)
        utility = value.ModelUtility(
            self._learner, flat(x)[rows], y[rows], flat(x_test), y_test
        )
        return float(utility(np.arange(size)[None] < len(y))[0])
