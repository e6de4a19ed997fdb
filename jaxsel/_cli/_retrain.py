"""Methods of `jaxsel value` that retrain a model on parts of TRAIN."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxsel.value import ESTIMATORS

if TYPE_CHECKING:
    from jaxsel import Values

RETRAINING = tuple(name for name, estimator in ESTIMATORS.items() if estimator.command)
LEARNERS = {
    "logistic": "LogisticRegression",
    "ridge": "RidgeRegression",
    "naive_bayes": "GaussianNB",
    "nearest_centroid": "NearestCentroid",
    "knn": "KNN",
}
SCORES = ("accuracy", "balanced_accuracy", "f1_macro", "neg_log_loss", "roc_auc", "r2")
OPTIONS = {"learner": None, "score": "utility", "samples": "stop", "seed": "key"}
"""Options of these methods only, and the argument that each needs, if any."""


def retraining(
    args: argparse.Namespace,
) -> tuple[Callable[..., Values], dict[str, Any]]:
    """Return a function of TRAIN and VAL, and its options, defaults included."""
    from jaxsel.value import MaxSamples

    method: str = args.method
    options: dict[str, Any] = {
        "learner": args.learner or "logistic",
        "seed": 0 if args.seed is None else args.seed,
    }
    taken = ESTIMATORS[method].arguments
    if "utility" in taken:
        options["score"] = args.score or "accuracy"
    if "stop" in taken:
        default = 10_000 if method == "banzhaf" else 1000
        options["samples"] = default if args.samples is None else args.samples
        MaxSamples(options["samples"])  # refuses some, before anything is read
    if "alpha" in taken:
        options["alpha"] = 16.0 if args.alpha is None else args.alpha
        options["beta"] = 1.0 if args.beta is None else args.beta
    return functools.partial(_value, method, options), options


def _value(
    method: str,
    options: dict[str, Any],
    x: Any,
    y: Any,
    x_val: Any = None,
    y_val: Any = None,
    **where: Any,
) -> Values:
    import jax
    import numpy as np

    from jaxsel import value

    learner = getattr(value, LEARNERS[options["learner"]])()
    shown = {name: options[name] for name in ("alpha", "beta") if name in options}
    if "samples" in options:
        shown["stop"] = value.MaxSamples(options["samples"])
    x, key = np.asarray(x, np.float32), jax.random.key(options["seed"])
    function = ESTIMATORS[method].function
    if "utility" not in ESTIMATORS[method].arguments:
        return function(learner, x, y, key=key, **shown, **where)
    utility = value.ModelUtility(
        learner, x, y, np.asarray(x_val, np.float32), y_val, metric=options["score"]
    )
    return function(utility, key=key, **shown, **where)
