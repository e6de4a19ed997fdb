"""Pure kernels of confident learning: for programs of your own."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int32, Integer

from jaxsel._inputs.checks import check_choice
from jaxsel._inputs.show import brief

from ._inputs import CLOSE
from ._quality import QUALITIES, Quality

_LEAST = 2 * CLOSE


@brief
class ConfidentCounts(NamedTuple):
    """Confident counts, not calibrated.

    Attributes:
        counts: `[K, K]`: samples of each given class by the class they are counted as.
        thresholds: `[K]`: the probability from which samples are counted.
    """

    counts: Int32[jax.Array, "K K"]
    thresholds: Float[jax.Array, " K"]


def confident_counts(
    pred_probs: Float[jax.Array, "n K"], y: Integer[jax.Array, " n"]
) -> ConfidentCounts:
    """Count given and confident classes: a pure kernel.

    Equals `confident_joint(...).confident` but for the rounding of thresholds. Classes
    without samples have the threshold 2: none is counted as these.

    Args:
        pred_probs: Out-of-sample probabilities, `[n, K]`.
        y: Given classes, `[n]`, from 0 to K - 1.

    Returns:
        Counts and thresholds. Costs a few passes over the probabilities.

    References:
        Northcutt, Jiang and Chuang, Confident learning, JAIR 70, 2021, equations 1, 2.
    """
    classes = pred_probs.shape[1]
    onehot = jax.nn.one_hot(y, classes, dtype=pred_probs.dtype)
    size = onehot.sum(0)
    mean = jnp.sum(pred_probs * onehot, axis=0) / jnp.maximum(size, 1)
    thresholds = jnp.where(size > 0, jnp.maximum(mean, _LEAST), 2)
    confident = pred_probs >= (thresholds - CLOSE)[None]
    many = confident.sum(1)
    guess = jnp.where(many > 1, pred_probs.argmax(1), confident.argmax(1))
    counts = jnp.zeros((classes, classes), jnp.int32)
    # Samples without a confident class have the guess 0, and add 0.
    counts = counts.at[y, guess].add((many > 0).astype(jnp.int32))
    diagonal = jnp.arange(classes)
    return ConfidentCounts(counts.at[diagonal, diagonal].max(1), thresholds)


def label_quality(
    pred_probs: Float[jax.Array, "n K"],
    y: Integer[jax.Array, " n"],
    *,
    method: Quality = "normalized_margin",
) -> Float[jax.Array, " n"]:
    """Score labels by their probabilities: a pure kernel.

    Args:
        pred_probs: `[n, K]`.
        y: Given classes, `[n]`, from 0 to K - 1.
        method: See `label_scores`, which this equals.

    Returns:
        `[n]`, from 0 (worst) to 1.

    Raises:
        ValueError: If `method` is unknown.
    """
    check_choice("method", method, QUALITIES)
    classes = pred_probs.shape[1]
    confidence = jnp.take_along_axis(pred_probs, y[:, None], axis=1)[:, 0]
    if method == "self_confidence":
        return confidence
    if method == "normalized_margin":
        is_label = jnp.arange(classes)[None] == y[:, None]
        rival = jnp.where(is_label, -jnp.inf, pred_probs).max(1)
        return (confidence - rival + 1) / 2
    entropy = jax.scipy.special.entr(jnp.maximum(pred_probs, 0)).sum(1)
    ratio = (
        entropy
        / jnp.log(jnp.asarray(classes, confidence.dtype))
        / jnp.maximum(confidence, CLOSE)
    )
    return jnp.log(ratio + 1) / jnp.maximum(ratio, CLOSE)
