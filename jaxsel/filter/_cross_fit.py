"""Losses of a whole benchmark set, none under a model that has seen the sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import as_array, check_count, check_same_length

from ._inputs import as_losses

Fit: TypeAlias = Callable[
    [np.ndarray, np.ndarray, jax.Array],
    Callable[[np.ndarray, np.ndarray], npt.ArrayLike],
]
"""`fit(x, y, key)` trains a model and returns its `losses(x, y) -> [k]`."""


def cross_fitted_losses(
    fit: Fit,
    x: npt.ArrayLike | jax.Array,
    y: npt.ArrayLike | jax.Array,
    *,
    folds: int = 5,
    key: jax.Array,
) -> np.ndarray:
    """Compute every benchmark sample's loss under a model trained on the other folds.

    A single split of the benchmark set would leave only one part for the losses and
    another for the model. Here every sample gives a loss, and each model is trained on
    `1 - 1 / folds` of the set. Classes are spread evenly over the folds.

    Args:
        fit: `fit(x, y, key)` trains a model on `[k, ...]` samples and returns its
            `losses(x, y) -> [k']`, of other samples.
        x: The benchmark's samples, `[m, ...]`.
        y: Their labels, `[m]`.
        folds: How many parts, and models; at most m.
        key: Deals the samples out; fold i's model gets `fold_in(key, i)`.

    Returns:
        Losses, `[m]`: the `benchmark_losses` of `loss_threshold`. Train the model for
        the other samples' losses on all of the benchmark set.

    Raises:
        TypeError: If `folds` is no whole number.
        ValueError: If `folds` is less than 2 or more than m, the lengths differ, or
            `fit`'s losses are not finite or not one for each sample.
    """
    samples, labels = np.asarray(as_array("x", x)), np.asarray(as_array("y", y))
    check_same_length("x", samples, "y", labels)
    if labels.ndim != 1:
        raise ValueError(f"y must have shape [m], got {labels.shape}")
    m, folds = len(samples), check_count("folds", folds, minimum=2)
    if folds > m:
        raise ValueError(f"folds must be at most the {m} samples, got {folds}")
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, folds), m))
    fold = np.empty(m, np.int64)
    # Sorted by class and dealt out in turn, a class differs by one at most between
    # folds; the stable sort keeps the random order within a class.
    fold[order[np.argsort(labels[order], kind="stable")]] = np.arange(m) % folds
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for i in range(folds):
        train, held_out = (np.flatnonzero(rows) for rows in (fold != i, fold == i))
        losses = fit(samples[train], labels[train], jax.random.fold_in(key, i))
        part = as_losses(
            "the losses that fit returns", losses(samples[held_out], labels[held_out])
        )
        check_same_length(f"the losses of fold {i}", part, "its samples", held_out)
        parts.append((held_out, part))
    out = np.empty(m, np.result_type(*(part for _, part in parts)))
    for held_out, part in parts:
        out[held_out] = part
    return out
