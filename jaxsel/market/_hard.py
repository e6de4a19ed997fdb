"""The hard set: misclassified validation samples, split into shown and held out."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import as_array, check_count, check_finite, check_same_length
from jaxsel._inputs.usual_mistakes import doubt

from ._schema import listed, misspelt


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HardSet:
    """Misclassified validation samples, by their row there, ascending.

    Attributes:
        shared: Array of shape `[s]`: rows of samples shown to owners.
        held_out: Array of shape `[h]`: rows of samples that measure the gain.
        split: Whether the two are disjoint. False if there were too few to split: then
            each is the whole hard set, and scores on it favour what resembles it.
    """

    shared: np.ndarray
    held_out: np.ndarray
    split: bool

    def __repr__(self) -> str:
        how = "disjoint" if self.split else "the same: too few to split"
        return (
            f"HardSet({len(self.shared)} shared, {len(self.held_out)} held out, {how})"
        )


def hard_set(
    predictions: npt.ArrayLike | jax.Array,
    labels: npt.ArrayLike | jax.Array,
    *,
    key: jax.Array,
    held_out: float = 0.5,
    minimum: int = 10,
    per_class: bool = True,
) -> HardSet:
    """Find the validation samples that a model gets wrong, and split them in two.

    Args:
        predictions: Array of shape `[n]`, the predicted classes, or `[n, classes]`,
            scores of which the highest decides.
        labels: Array of shape `[n]`, the right classes: integers where `predictions`
            are scores.
        key: Key of the split.
        held_out: Fraction to hold out, above 0 and below 1.
        minimum: Split only if each side then has at least this many samples.
        per_class: Whether to split each class in the same proportion, as far as whole
            numbers allow, rather than the hard samples as a whole.

    Returns:
        A `HardSet`; `round(held_out * h)` of the h hard samples are held out.

    Raises:
        TypeError: If labels and predictions are not of one kind.
        ValueError: If the arguments differ in length or lie out of range, no
            prediction is wrong, or classes differ from labels in case or blanks only.

    References:
        Mycroft: Towards Effective and Efficient External Data Augmentation, section
        4.1, item 4. The paper splits "if large enough"; `minimum` says how large.
    """
    y = np.asarray(as_array("labels", labels))
    if y.ndim != 1 or not len(y):
        raise ValueError(f"labels must have shape [n] with n >= 1, got {y.shape}")
    predicted = _classes(np.asarray(as_array("predictions", predictions)), y)
    check_same_length("predictions", predicted, "labels", y)
    check_count("minimum", minimum)
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must be above 0 and below 1, got {held_out}")
    wrong = np.flatnonzero(predicted != y)
    if not len(wrong):
        raise ValueError(
            f"predictions must have errors to learn from, but all {len(y)} are right"
        )
    n_held_out = round(held_out * len(wrong))
    if min(n_held_out, len(wrong) - n_held_out) < minimum:
        return HardSet(shared=wrong, held_out=wrong, split=False)
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), len(wrong)))
    if per_class:
        order = order[_interleaved(y[wrong[order]], jax.random.fold_in(key, 1))]
    return HardSet(
        shared=np.sort(wrong[order[n_held_out:]]),
        held_out=np.sort(wrong[order[:n_held_out]]),
        split=True,
    )


def _classes(predictions: np.ndarray, y: np.ndarray) -> np.ndarray:
    if predictions.ndim == 2 and predictions.shape[1]:
        check_finite("predictions", predictions)
        if y.dtype.kind not in "biu":
            raise TypeError(
                "labels must be integers where predictions are scores, got dtype "
                f"{y.dtype}"
            )
        n_classes = predictions.shape[1]
        if y.min() < 0 or y.max() >= n_classes:
            raise ValueError(
                f"labels must lie in [0, {n_classes}), the classes that predictions "
                f"has scores of, got values from {y.min()} to {y.max()}"
            )
        return predictions.argmax(axis=1)
    if predictions.ndim != 1:
        raise ValueError(
            f"predictions must have shape [n] or [n, classes], got {predictions.shape}"
        )
    if (predictions.dtype.kind in "USO") != (y.dtype.kind in "USO"):
        raise TypeError(
            "predictions and labels must be classes of one kind, got dtypes "
            f"{predictions.dtype} and {y.dtype}"
        )
    if predictions.dtype.kind in "USO":
        predictions, y = predictions.astype(str), y.astype(str)
    other = misspelt(predictions, y)
    if len(other):
        raise ValueError(
            f"predictions must write classes as labels do ({listed(y)}), but have "
            f"{listed(other)}, which differ in case or blanks only"
        )
    if len(np.unique(y)) > 1 and not np.isin(predictions, y).any():
        doubt(
            f"no prediction ({listed(predictions)}) is a class of labels "
            f"({listed(y)}), so that all samples are hard: are classes called alike?"
        )
    return predictions


def _interleaved(y: np.ndarray, key: jax.Array) -> np.ndarray:
    """Order samples so that any first part holds each class in proportion.

    The r-th sample of a class of c comes at the place (r + u) / c, with u drawn at
    random for each class: otherwise small classes would always come late.
    """
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    starts = np.cumsum(counts) - counts
    by_class = np.argsort(codes, kind="stable")
    rank = np.empty(len(y))
    rank[by_class] = np.arange(len(y)) - np.repeat(starts, counts)
    start = np.asarray(jax.random.uniform(key, (len(classes),)))
    return np.argsort((rank + start[codes]) / counts[codes], kind="stable")
