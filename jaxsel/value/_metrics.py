"""Metrics of predicted scores against validation labels, for many models at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Float, Integer, Real

MetricName = Literal[
    "accuracy",
    "balanced_accuracy",
    "neg_log_loss",
    "f1_macro",
    "roc_auc",
    "likelihood",
    "r2",
]

# Of scores [B, m, C] and classes [m], to [B].
MetricFunction: TypeAlias = Callable[[jax.Array, jax.Array], jax.Array]

_GRID = 2.0**14  # steps of log odds that are told apart, by unit
_HALF_EPSILON = 2.0**-53  # of float64: from 1 to the next smaller number
_SURE = 8.0  # log odds above which it may matter
_ZERO = -745.1332  # log of the smallest number of float64
_LEAST = -36.04365  # log of float64's epsilon, where scikit-learn cuts probabilities


def predicted(scores: jax.Array, axis: int = -1) -> jax.Array:
    """Return the class of the highest score along an axis, the first of equal ones."""
    classes = scores.shape[axis]
    if classes > 16:
        return scores.argmax(axis)
    # XLA's argmax on CPUs takes twice as long.

    def of(c: int) -> jax.Array:
        return jax.lax.index_in_dim(scores, c, axis, keepdims=False)

    best = of(0)
    index = jnp.zeros(best.shape, jnp.int32)
    for c in range(1, classes):
        better = of(c) > best
        best, index = jnp.maximum(best, of(c)), jnp.where(better, c, index)
    return index


def accuracy(
    scores: Float[jax.Array, "B m C"], y: Integer[jax.Array, " m"]
) -> Float[jax.Array, " B"]:
    """Return the share of samples with the highest score at their class, `[B]`."""
    return jnp.mean(predicted(scores) == y[None], axis=-1)


def balanced_accuracy(
    scores: Float[jax.Array, "B m C"], y: Integer[jax.Array, " m"]
) -> Float[jax.Array, " B"]:
    """Return the mean over classes of the share found, `[B]`."""
    onehot = jax.nn.one_hot(y, scores.shape[-1], dtype=jnp.float32)
    right = (predicted(scores) == y[None]).astype(jnp.float32)
    size = onehot.sum(0)
    hits = jnp.matmul(right, onehot, precision="highest")
    recall = hits / jnp.maximum(size, 1)[None]
    return recall.sum(-1) / jnp.sum(size > 0).astype(recall.dtype)


def f1_macro(
    scores: Float[jax.Array, "B m C"], y: Integer[jax.Array, " m"]
) -> Float[jax.Array, " B"]:
    """Return the mean F1 over classes that occur or are predicted, `[B]`."""
    classes = scores.shape[-1]
    onehot = jax.nn.one_hot(y, classes, dtype=jnp.float32)
    guess = jax.nn.one_hot(predicted(scores), classes, dtype=jnp.float32)
    both = jnp.einsum("bmc,mc->bc", guess, onehot, precision="highest")
    sizes = guess.sum(1) + onehot.sum(0)[None]
    count = jnp.sum(sizes > 0, axis=-1).astype(sizes.dtype)
    return (2 * both / jnp.maximum(sizes, 1)).sum(-1) / count


def roc_auc(
    scores: Float[jax.Array, "B m C"], y: Integer[jax.Array, " m"]
) -> Float[jax.Array, " B"]:
    """Return the area under the ROC curve, `[B]`.

    Of more than two classes the mean over classes of each against the rest, by
    probability. Ties count half. Probabilities that float64 does not tell apart tie, as
    in scikit-learn: 1 is equal to 1 - 1e-17. Costs a sort of the samples for each
    class.
    """
    classes = scores.shape[-1]
    if classes == 2:
        return _area(_sureness(scores, 1), y == 1)
    size = jax.nn.one_hot(y, classes, dtype=jnp.float32).sum(0)
    counted = (size > 0) & (size < len(y))
    areas = [_area(_sureness(scores, c), y == c) for c in range(classes)]
    total = jnp.where(counted, jnp.stack(areas, -1), 0).sum(-1)
    return total / jnp.maximum(counted.sum(), 1).astype(total.dtype)


def neg_log_loss(
    scores: Float[jax.Array, "B m C"], y: Integer[jax.Array, " m"]
) -> Float[jax.Array, " B"]:
    """Return the mean log probability of the right class, in nats, `[B]`.

    Probabilities are cut at float64's epsilon, as scikit-learn does.
    """
    return jnp.mean(jnp.maximum(_right(scores, y), _LEAST), axis=-1)


def likelihood(
    scores: Float[jax.Array, "B m C"], y: Integer[jax.Array, " m"]
) -> Float[jax.Array, " B"]:
    """Return the mean probability of the right class, `[B]`."""
    return jnp.mean(jnp.exp(_right(scores, y)), axis=-1)


def r2(
    scores: Float[jax.Array, "B m 1"], y: Real[jax.Array, " m"]
) -> Float[jax.Array, " B"]:
    """Return the share of the targets' variance that is explained, `[B]`."""
    residual = jnp.sum((scores[..., 0] - y[None]) ** 2, axis=-1)
    return 1 - residual / jnp.sum((y - y.mean()) ** 2)


def _right(scores: jax.Array, y: jax.Array) -> jax.Array:
    log_p = jax.nn.log_softmax(scores, axis=-1)
    return jnp.take_along_axis(log_p, y[None, :, None], axis=-1)[..., 0]


def _sureness(scores: jax.Array, c: int) -> jax.Array:
    """Return numbers in the order of a class's probability in float64, `[B, m]`."""
    rest = jax.nn.logsumexp(jnp.delete(scores, c, axis=-1), axis=-1)
    odds = _minus(scores[..., c], rest)
    if scores.shape[-1] > 2:  # rounded, so that equal probabilities are equal
        odds = jnp.round(odds * _GRID) / _GRID
    # Near 1, probabilities are multiples of float64's half epsilon; near 0, 0 itself.
    steps = jnp.round(jnp.exp(-jnp.maximum(odds, _SURE)) / _HALF_EPSILON)
    odds = jnp.where(odds > _SURE, -jnp.log(steps * _HALF_EPSILON), odds)
    # Scores that are log probabilities already have the digits.
    total = jax.nn.logsumexp(scores, axis=-1)
    known = (jnp.abs(total) < 1e-5).all(-1, keepdims=True)
    return jnp.maximum(jnp.where(known, scores[..., c], odds), _ZERO)


def _minus(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a - b, 0 where both are the same infinity."""
    return jnp.where(a == b, 0, a - b)


def _area(lead: jax.Array, positive: jax.Array) -> jax.Array:
    def area(lead: jax.Array) -> jax.Array:
        ordered = jnp.sort(lead)
        below = jnp.searchsorted(ordered, lead, side="left")
        to = jnp.searchsorted(ordered, lead, side="right")
        rank = (below + to).astype(jnp.float32) / 2  # from 0, ties in the middle
        n = positive.sum()
        # Mann-Whitney: the positives' ranks, less those among themselves.
        over = jnp.sum(jnp.where(positive, rank, 0)) - n.astype(jnp.float32) ** 2 / 2
        return over / jnp.maximum(n * (len(lead) - n), 1).astype(over.dtype)

    return jax.vmap(area)(lead)


SCORERS: dict[str, MetricFunction] = {
    scorer.__name__: scorer
    for scorer in (
        accuracy,
        balanced_accuracy,
        neg_log_loss,
        f1_macro,
        roc_auc,
        likelihood,
        r2,
    )
}
OF_PROBABILITIES = ("neg_log_loss", "likelihood", "roc_auc")
"""Metrics that need a learner with probabilities."""


def measure_of(metric: str | MetricFunction) -> MetricFunction:
    """Return the function of a name, or the function itself."""
    return metric if callable(metric) else SCORERS[metric]


def measured(
    metric: str | MetricFunction, scores: jax.Array, y: jax.Array
) -> jax.Array:
    """Return a metric of each model, `[B]`, NaN for those with a score that is NaN."""
    values = measure_of(metric)(scores, y)
    return jnp.where(jnp.isnan(scores).any((1, 2)), jnp.nan, values)


@functools.lru_cache(maxsize=16)
def host_measure(metric: str | MetricFunction) -> MetricFunction:
    """Return the function of a name, compiled, or the function itself."""
    return metric if callable(metric) else jax.jit(SCORERS[metric])


def chance_level(metric: str, classes: int) -> float:
    """Return the metric of a model with equal probability for every class."""
    if metric == "neg_log_loss":
        import math

        return -math.log(classes)
    return {"roc_auc": 0.5, "f1_macro": 0.0, "r2": 0.0}.get(metric, 1 / max(classes, 1))
