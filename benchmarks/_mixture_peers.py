"""RegMix's regressions of a metric on mixtures, beside `mixture_response`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

LEAVES = 20, 10, 5, 2

Predict = Callable[[np.ndarray], Any]
"""From mixtures `[m, D]` to metrics `[m]`."""


def linear(mixtures: np.ndarray, metrics: np.ndarray) -> Predict:
    """Fit RegMix's linear regression."""
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(mixtures, metrics).predict


def trees(mixtures: np.ndarray, metrics: np.ndarray) -> Predict:
    """Fit RegMix's boosted trees, at a rate of .01 up to 1,000 rounds.

    It stops early by hundreds of further runs. Here five folds of the 64 choose the
    number of rounds, and the least number of runs in a leaf: LightGBM's own, 20, is
    nearly a third of all.

    Raises:
        ImportError: If LightGBM is not installed.
    """
    lightgbm = importlib.import_module("lightgbm")
    tried: list[tuple[float, int, dict[str, Any]]] = []
    for leaf in LEAVES:
        options = {"learning_rate": 0.01, "seed": 42, "verbosity": -1}
        options |= {"objective": "regression", "num_threads": 1}
        options["min_data_in_leaf"] = leaf
        examples = lightgbm.Dataset(mixtures, metrics, free_raw_data=False)
        folds = lightgbm.cv(options, examples, 1000, nfold=5, stratified=False, seed=42)
        errors = np.asarray(folds["valid l2-mean"])
        tried.append((float(errors.min()), int(errors.argmin()) + 1, options))
    _, rounds, options = min(tried, key=lambda entry: entry[0])
    examples = lightgbm.Dataset(mixtures, metrics)
    return lightgbm.train(options, examples, rounds).predict


def regmix(
    kind: str,
    fit: Callable[[np.ndarray, np.ndarray], Predict],
    mixtures: np.ndarray,
    metrics: np.ndarray,
    held: np.ndarray,
    candidates: np.ndarray,
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Yield predictions and choices of a regression of metrics and of logarithms."""
    for scale in ("", " of logarithms"):
        predict = fit(mixtures, np.log(metrics) if scale else metrics)
        name, back = f"RegMix, {kind}{scale}", np.exp if scale else np.asarray
        predicted = predict(candidates)
        mean = candidates[np.argsort(predicted, kind="stable")[:100]].mean(0)
        chosen = candidates[np.argmin(predicted)]
        choices = {name: chosen, f"{name}, mean of the best 100": mean}
        yield {name: back(predict(held))}, choices
