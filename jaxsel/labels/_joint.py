"""The confident joint: how often each class is labelled as each other one."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.show import compared

from ._inputs import CLOSE, Predictions, check_predictions, row_blocks

_LEAST = 2e-6  # least threshold: above `CLOSE`, the tolerance of equality
_NOTHING = 2.0  # the threshold of a class without samples: more than any probability
_TINY = 1e-100


@compared
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConfidentJoint:
    """Counts of given and true labels, and the noise that follows from them.

    Attributes:
        counts: `[K, K]` whole numbers: how many samples labelled i are of class j. Row
            i adds up to the number of labels i.
        confident: `[K, K]`: those samples alone that are counted with confidence, at
            least 1 on the diagonal.
        thresholds: `[K]`: the probability from which a sample is counted as a class.
        noise_matrix: `[K, K]`: P(given = i | true = j). Columns add up to 1.
        inverse_noise_matrix: `[K, K]`: P(true = i | given = j). Columns add up to 1.
        prior: `[K]`: shares of the true classes.
        classes: `[K]`: classes of the indices i and j.
    """

    counts: np.ndarray
    confident: np.ndarray
    thresholds: np.ndarray
    noise_matrix: np.ndarray
    inverse_noise_matrix: np.ndarray
    prior: np.ndarray
    classes: np.ndarray

    @property
    def joint(self) -> np.ndarray:
        """Shares of all samples, `[K, K]`, that add up to 1."""
        return self.counts / self.counts.sum()

    @property
    def n_errors(self) -> int:
        """Estimated number of wrong labels: all that is off the diagonal."""
        return int(self.counts.sum() - np.trace(self.counts))

    def __repr__(self) -> str:
        n = int(self.counts.sum())
        return (
            f"ConfidentJoint(n={n}, classes={len(self.classes)}, "
            f"n_errors={self.n_errors}, {self.n_errors / n:.1%} of the labels)"
        )


class ProbabilitySummary(NamedTuple):
    """Statistics of each sample's probabilities, for filters and scores.

    Attributes:
        self_confidence: Probability of the given label, `[n]`.
        top: The likeliest class, the first of equal ones, `[n]`.
        peak: Its probability, `[n]`.
        guess: The class that it is confidently counted as; -1 for none, `[n]`.
        thresholds: `[K]`.
        order: Rows class by class, `[n]`.
        starts: Where each class starts in `order`, `[K + 1]`.
    """

    self_confidence: np.ndarray
    top: np.ndarray
    peak: np.ndarray
    guess: np.ndarray
    thresholds: np.ndarray
    order: np.ndarray
    starts: np.ndarray


def confident_joint(
    pred_probs: npt.ArrayLike, y: npt.ArrayLike, *, classes: npt.ArrayLike | None = None
) -> ConfidentJoint:
    """Count given and true labels by confident predictions.

    A sample counts as class j if its probability of j is at least the mean of that
    probability over the samples labelled j; of several such classes as the most likely
    one. The counts are then scaled to the number of labels in each class. Reads the
    probabilities twice, block by block, and keeps a few numbers for each sample.

    Args:
        pred_probs: Out-of-sample probabilities, `[n, K]`. They need not add up to 1.
        y: Given labels, `[n]`.
        classes: The class of each column, `[K]`. If None, whole numbers from 0 to K - 1
            are columns, and other labels stand in sorted order.

    Returns:
        The counts, equal to those of cleanlab 2.9, and the noise that follows.

    Raises:
        TypeError: If labels are of different kinds.
        ValueError: If shapes do not fit, numbers are not between 0 and 1, or labels are
            no classes.

    References:
        Northcutt, Jiang and Chuang, Confident learning: estimating uncertainty in
        dataset labels, JAIR 70, 2021, equations 1 to 3.
    """
    predictions = check_predictions(pred_probs, y, classes)
    return joint_of(summarise(predictions), predictions)


def summarise(predictions: Predictions) -> ProbabilitySummary:
    """Summarise each sample's probabilities in one pass."""
    probs, codes = predictions.probs, predictions.codes
    n, classes = probs.shape
    self_confidence = probs[np.arange(n), codes]
    order, starts = grouped(codes, classes)
    bounds = class_thresholds(self_confidence, order, starts)
    least = bounds - CLOSE
    top, guess = np.empty(n, np.intp), np.empty(n, np.intp)
    peak = np.empty(n, probs.dtype)
    for part in row_blocks(probs):
        block = np.ascontiguousarray(probs[part])
        best = block.argmax(axis=1)
        high = block[np.arange(len(block)), best]
        counted = best.copy()
        # The most likely class counts if its probability suffices, whatever others do.
        unsure = np.flatnonzero(~(high >= least[best]))
        if unsure.size:
            counted[unsure] = _counted(block[unsure] >= least, best[unsure])
        top[part], peak[part], guess[part] = best, high, counted
    return ProbabilitySummary(self_confidence, top, peak, guess, bounds, order, starts)


def _counted(confident: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return each sample's confident class: `best` if several are, -1 if none."""
    first = confident.argmax(axis=1)
    counted = np.where(confident[np.arange(len(first)), first], first, -1)
    several = np.flatnonzero(counted >= 0)
    # Several classes are confident where the first and the last one differ.
    last = confident.shape[1] - 1 - confident[several, ::-1].argmax(axis=1)
    several = several[last != counted[several]]
    counted[several] = best[several]
    return counted


def class_thresholds(
    self_confidence: np.ndarray, order: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """Return the mean self-confidence of each class, `[K]`; 2 of no samples."""
    by_class = self_confidence[order]
    means = [
        np.mean(by_class[start:stop]) if stop > start else _NOTHING
        for start, stop in zip(starts[:-1], starts[1:], strict=True)
    ]
    return np.maximum(np.array(means), _LEAST)


def grouped(codes: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows class by class, and where each class starts, `[K + 1]`."""
    # Short integers are sorted by radix, in linear time.
    short = codes.astype(np.uint16) if classes <= 1 << 16 else codes
    counts = np.bincount(codes, minlength=classes)
    return np.argsort(short, kind="stable"), np.append(0, np.cumsum(counts))


def joint_of(summary: ProbabilitySummary, predictions: Predictions) -> ConfidentJoint:
    """Return the confident joint of a summary of the probabilities."""
    codes, size = predictions.codes, len(predictions.classes)
    sure = summary.guess >= 0
    places = summary.guess[sure] * size + codes[sure]
    table = np.bincount(places, minlength=size * size).reshape(size, size)
    np.fill_diagonal(table, np.maximum(table.diagonal(), 1))
    labels = np.bincount(codes, minlength=size)
    counts = calibrate(table, labels)
    noise, inverse, prior = _latent(counts, labels)
    return ConfidentJoint(
        counts=counts,
        confident=table.T,
        thresholds=summary.thresholds,
        noise_matrix=noise,
        inverse_noise_matrix=inverse,
        prior=prior,
        classes=predictions.classes,
    )


def calibrate(table: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Scale counts of true and given labels to the number of labels in each class.

    Args:
        table: Counts, `[K, K]`, true classes first.
        labels: How many labels of each class there are, `[K]`.

    Returns:
        `[K, K]` whole numbers, given labels first, whose rows add up to `labels`.
    """
    scaled = table / np.maximum(table.sum(axis=0), _TINY) * labels
    # Which of equal remainders is rounded up depends on the last bit, and that on the
    # order of this sum: it is cleanlab's.
    scaled = scaled / np.maximum(scaled.sum(), _TINY) * labels.sum()
    return round_rows(scaled.T)


def to_prune(counts: np.ndarray, min_per_class: int, noise_share: float) -> np.ndarray:
    """Return how many labels to suspect, `[K, K]`: true classes first, then given ones.

    The diagonal says how many are right: at least `min_per_class`, taken evenly from
    the wrong ones that there are.
    """
    table = counts.T.astype(float)
    right = table.diagonal().copy()
    kept = np.maximum(right, min_per_class)
    wrong = np.maximum(np.count_nonzero(counts.T, axis=0) - 1, 1)
    table = np.maximum(table - (kept - right) / wrong, 0)
    np.fill_diagonal(table, kept)
    # Labels that are not pruned count as right, so that columns keep their sums.
    less = table * noise_share
    np.fill_diagonal(less, kept)
    np.fill_diagonal(less, kept + (table - less).sum(axis=0))
    return round_rows(less.astype(np.int64))


def round_rows(matrix: np.ndarray) -> np.ndarray:
    """Round each row to whole numbers that add up to its own rounded sum."""
    return np.stack([_round(row.astype(float)) for row in matrix])


def _round(row: np.ndarray) -> np.ndarray:
    rounded, wanted = row.round(), row.sum().round()
    while (missing := int(wanted - rounded.sum())) != 0:
        # The largest remainders are rounded up, or the smallest ones down.
        order = np.argsort(row - rounded)
        order = order[::-1] if missing > 0 else order
        rounded[order[: abs(missing)]] += np.sign(missing)
    return rounded.astype(np.int64)


def _latent(counts: np.ndarray, labels: np.ndarray) -> tuple[Any, Any, Any]:
    """Return P(given | true), P(true | given) and P(true)."""
    by_given, true = counts.sum(axis=1), counts.sum(axis=0)
    noise = counts / np.maximum(true, _TINY)
    inverse = counts.T / np.maximum(by_given, _TINY)
    # Bayes on the diagonal: P(true) = P(given) P(true | given) / P(given | true).
    ratio = inverse.diagonal() / np.maximum(noise.diagonal(), _TINY)
    prior = np.clip(ratio * (labels / labels.sum()), CLOSE, 1)
    return _columns(noise), _columns(inverse), prior / prior.sum()


def _columns(matrix: np.ndarray) -> np.ndarray:
    """Keep rates of noise below 1, and let columns add up to 1."""
    clipped = np.clip(matrix, 0, 0.9999)
    np.fill_diagonal(clipped, matrix.diagonal())
    return clipped / np.maximum(clipped.sum(axis=0), _TINY)
