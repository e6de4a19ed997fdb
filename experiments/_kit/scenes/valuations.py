"""Values as functions for the applications, some of which train models again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

import jaxsel
from jaxsel import value
from jaxsel._results.types import Values
from jaxsel.report import Figure
from jaxsel.tasks import Curves

Valuation = Callable[..., Values]

KNN = ("KNN-Shapley", "KNN-Banzhaf", "KNN-LOO")
MAX = "max-KNN-Shapley"
RETRAINED = ("TMC-Shapley", "G-Shapley", "LOO", "Banzhaf", "Data-OOB")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """Sample budgets of the values that are estimated by sampling.

    Attributes:
        permutations: Permutations of TMC-Shapley.
        tolerance: Truncation tolerance of `jaxsel.value.tmc_shapley`.
        passes: Passes of G-Shapley.
        coalitions: Coalitions of the Banzhaf value.
        bags: Bags of Data-OOB.
    """

    permutations: int = 64
    tolerance: float = 0.05
    passes: int = 256
    coalitions: int = 1024
    bags: int = 256


def knn_methods(*, k: int = 5, foreign: bool = False) -> dict[str, Valuation]:
    """Return the KNN values; with the maximum over validation points if `foreign`."""

    def by(function: Any, **options: Any) -> Valuation:
        def call(x: Any, y: Any, x_val: Any, y_val: Any, key: jax.Array) -> Values:
            del key
            return function(x, y, x_val, y_val, k=k, **options)

        return call

    functions = jaxsel.knn_shapley, jaxsel.knn_banzhaf, jaxsel.knn_loo
    methods = {name: by(f) for name, f in zip(KNN, functions, strict=True)}
    return methods | ({MAX: by(jaxsel.knn_shapley, reduce="max")} if foreign else {})


def retrained_methods(
    learner: value.Learner, samples: Samples, *, only: tuple[str, ...] = RETRAINED
) -> dict[str, Valuation]:
    """Return the values that train a learner again and again.

    Args:
        learner: The learner; G-Shapley takes logistic regression in its place.
        samples: Sample budget of each value.
        only: Names of the values wanted.
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


def figure_of(curves: Curves, methods: tuple[str, ...], name: str) -> Figure:
    """Draw the curves of some methods under another name."""
    chosen = {m: curves.curves[m] for m in methods if m in curves.curves}
    return dataclasses.replace(curves, name=name, curves=chosen).figure()
