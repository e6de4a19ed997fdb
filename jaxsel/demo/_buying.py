"""Valuing an owner's offer, and spending a budget on the best of it."""

from __future__ import annotations

import numpy as np
import scipy.special
from flax import nnx

from jaxsel.models import Params, logits
from jaxsel.value import knn_shapley

from ._market import Market


def appraise(
    market: Market, graphdef: nnx.GraphDef, params: Params
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value every owner's samples for this trainer.

    One call to `knn_shapley` values the owners' samples together with the trainer's
    own, so that samples like the trainer's are worth less, and gives a row for each
    validation example. Two means over the rows answer two questions. The plain mean:
    is the sample any good? The mean weighted by the trainer's error: does this trainer
    lack it? Shapley values are linear in the utility, so the latter is the Shapley
    value for an accuracy in which an example counts as much as the trainer errs on it.

    Args:
        market: The trainer's samples, and the owners' offers.
        graphdef: Static part of the trainer's model.
        params: Its parameters, trained on the trainer's samples.

    Returns:
        Values weighted by the trainer's error, `[n]`; plain values, `[n]`; and the
        share of each class in the trainer's error, `[classes]`.
    """
    probability = scipy.special.softmax(logits(graphdef, params, market.x_val), axis=1)
    error = 1 - probability[np.arange(len(market.y_val)), market.y_val]
    rows = knn_shapley(
        np.concatenate([market.x_train, market.x]),
        np.concatenate([market.y_train, market.y]),
        market.x_val,
        market.y_val,
        k=5,
        reduce=None,
    )
    rows = np.asarray(rows.values, np.float64)[:, len(market.x_train) :]
    by_class = np.bincount(market.y_val, weights=error, minlength=market.n_classes)
    return np.average(rows, 0, error), rows.mean(0), by_class / error.sum()


def choose(
    values: np.ndarray,
    harmless: np.ndarray,
    labels: np.ndarray,
    shares: np.ndarray,
    budget: int,
) -> np.ndarray:
    """Choose samples to buy: each class gets its share, the best samples first.

    A value is the mean contribution to every coalition, so it does not fall when other
    samples like it are bought. The shares keep the budget from going to one class.

    Args:
        values: `[n]`, higher is better.
        harmless: `[n]` of bool: samples that may be bought at all.
        labels: The class that each sample claims, `[n]`.
        shares: Share of the budget for each class, `[classes]`, summing to 1. The part
            that a class cannot use goes to the best of the others.
        budget: Number of samples to buy.

    Returns:
        Indices, `[<= budget]`: fewer only if fewer are harmless.
    """
    order = np.lexsort((-values, ~harmless))
    # Rank of each sample within its class, best first.
    by_class = np.zeros(len(labels), int)
    for c in range(len(shares)):
        rows = order[labels[order] == c]
        by_class[rows] = np.arange(len(rows))
    # Largest remainders (Hamilton): places lost to rounding go to the classes that
    # lost most.
    quota = np.floor(shares * budget)
    spare = budget - int(quota.sum())
    quota[np.argsort(quota - shares * budget, kind="stable")[:spare]] += 1
    within = by_class < quota[labels]
    first = np.lexsort((-values, ~within, ~harmless))
    return first[: min(budget, int(harmless.sum()))]
