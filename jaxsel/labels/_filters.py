"""Filters: which labels to suspect, by probabilities and the confident joint."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_choice, check_count, check_positive

from ._inputs import CLOSE, Predictions, check_predictions
from ._joint import ProbabilitySummary, joint_of, summarise, to_prune
from ._quality import quality

Filter = Literal[
    "prune_by_noise_rate",
    "prune_by_class",
    "both",
    "confident_learning",
    "predicted_neq_given",
    "low_normalized_margin",
    "low_self_confidence",
]
FILTERS = (
    "prune_by_noise_rate",
    "prune_by_class",
    "both",
    "confident_learning",
    "predicted_neq_given",
    "low_normalized_margin",
    "low_self_confidence",
)


@dataclasses.dataclass(frozen=True)
class FilterRule:
    """Options of `label_issues`, checked."""

    filter_by: str
    min_per_class: int
    noise_share: float

    def __post_init__(self) -> None:
        check_choice("filter_by", self.filter_by, FILTERS)
        check_count("min_per_class", self.min_per_class, minimum=0)
        if check_positive("noise_share", self.noise_share, zero=True) > 1:
            raise ValueError(f"noise_share must be from 0 to 1, got {self.noise_share}")


def label_issues(
    pred_probs: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    filter_by: Filter = "prune_by_noise_rate",
    min_per_class: int = 1,
    noise_share: float = 1.0,
    classes: npt.ArrayLike | None = None,
) -> np.ndarray:
    """Return which labels are probably wrong, as a mask `[n]` of bool.

    The same labels as `cleanlab.filter.find_label_issues` of cleanlab 2.9 returns. Of
    samples with equal numbers where a filter cuts, those count that NumPy's `argsort`
    puts first, as there. Labels within 1e-6 of the largest probability are
    never suspected, except by the filters "low_...".

    Args:
        pred_probs: Out-of-sample probabilities, `[n, K]`. They need not add up to 1.
        y: Given labels, `[n]`.
        filter_by: "prune_by_noise_rate": of the labels i, as many as the confident
            joint says are of class j, by the margin of j over i. "prune_by_class": of
            the labels i, as many as it says are wrong, by the lowest probability of i.
            "both": what these two share. "confident_learning": samples that are counted
            off the joint's diagonal. "predicted_neq_given": other classes are more
            likely. "low_normalized_margin", "low_self_confidence": the lowest scores,
            as many as "confident_learning" finds.
        min_per_class: The first three leave at least this many labels in each class.
        noise_share: The first three take this share of the joint's wrong labels.
        classes: The class of each column; see `confident_joint`.

    Raises:
        TypeError: If labels are of different kinds.
        ValueError: If shapes do not fit, numbers are not between 0 and 1, or an
            argument is out of range.

    References:
        Northcutt, Jiang and Chuang, Confident learning, JAIR 70, 2021, section 3.2.
    """
    rule = FilterRule(filter_by, min_per_class, noise_share)
    predictions = check_predictions(pred_probs, y, classes)
    summary = summarise(predictions)
    joint = joint_of(summary, predictions)
    counts = to_prune(joint.counts, rule.min_per_class, rule.noise_share)
    return suspects(predictions, summary, rule, counts)


def suspects(
    predictions: Predictions,
    summary: ProbabilitySummary,
    rule: FilterRule,
    table: np.ndarray,
) -> np.ndarray:
    """Return the mask of `label_issues`.

    Args:
        predictions: Probabilities and labels.
        summary: Statistics of the probabilities.
        rule: Which labels to suspect.
        table: Counts of `to_prune`.
    """
    probs, codes, filter_by = predictions.probs, predictions.codes, rule.filter_by
    differs = _differs(codes, summary)
    confident = (summary.guess >= 0) & (summary.guess != codes) & differs
    if filter_by == "confident_learning":
        return confident
    if filter_by == "predicted_neq_given":
        return differs
    if filter_by.startswith("low_"):
        scores = quality(predictions, filter_by.removeprefix("low_"), summary)
        return first_of(scores, int(confident.sum()))
    order, starts = summary.order, summary.starts
    mask = np.zeros(len(codes), bool)
    for k, (start, stop) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        # cleanlab takes none of a class of one sample either.
        if stop - start <= max(rule.min_per_class, 1):
            continue
        rows = order[start:stop]
        suspected = np.ones(len(rows), bool)
        if filter_by != "prune_by_noise_rate":
            suspected &= first_of(
                summary.self_confidence[rows], len(rows) - table[k, k]
            )
        if filter_by != "prune_by_class":
            suspected &= _by_margin(probs, rows, k, table[:, k], differs[rows])
        mask[rows] = suspected
    return mask & differs


def _differs(codes: np.ndarray, summary: ProbabilitySummary) -> np.ndarray:
    """Return where the given label is not predicted, nor all but so."""
    raised = summary.self_confidence + summary.self_confidence.dtype.type(CLOSE)
    # Of equal ones the first class is predicted.
    ahead = (summary.peak > raised) | ((summary.peak == raised) & (summary.top < codes))
    return (summary.top != codes) & ahead


def _by_margin(
    probs: np.ndarray, rows: np.ndarray, k: int, many: np.ndarray, differs: np.ndarray
) -> np.ndarray:
    """Mark the samples labelled k with the largest margins of other classes.

    Args:
        probs: `[n, K]`.
        rows: The samples labelled k.
        k: Their label.
        many: How many of each class to take, `[K]`.
        differs: Which samples may be suspected: others need not be found.
    """
    suspected = np.zeros(len(rows), bool)
    open_ = np.flatnonzero(differs)
    others = np.flatnonzero(many > 0)
    others = others[others != k]
    if not open_.size or not others.size:
        return suspected
    # Those that may not be suspected have margins of 1e-6 at most: where enough of the
    # others are above that, they are out of the race.
    block = probs[rows[open_]]
    lead = np.ascontiguousarray((block - block[:, k : k + 1]).T)
    enough = (lead > 2 * CLOSE).sum(axis=1) >= many
    for j in others:
        if enough[j]:
            cut = first_of(-lead[j], int(many[j]), exact=False)
            if cut is not None:
                suspected[open_[cut]] = True
                continue
        margin = probs[rows, j] - probs[rows, k]
        suspected |= first_of(-margin, int(many[j]))
    return suspected


def first_of(values: np.ndarray, count: int, *, exact: bool = True) -> Any:
    """Return the mask of the `count` numbers that come first in `np.argsort`.

    Args:
        values: `[n]`.
        count: Number to mark; may exceed n.
        exact: Whether to sort where equal numbers meet at the cut: if not, None is
            returned there.
    """
    if count <= 0:
        return np.zeros(len(values), bool)
    if count >= len(values):
        return np.ones(len(values), bool)
    # Selection is linear; only ties at the cut need the order of `argsort`.
    cut = np.partition(values, count - 1)[count - 1]
    mask = values <= cut
    if np.count_nonzero(mask) > count:
        if not exact:
            return None
        mask = np.zeros(len(values), bool)
        mask[np.argsort(values)[:count]] = True
    return mask
