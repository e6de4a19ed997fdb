"""Scores of labels by their probabilities, and their fusion: low where suspicious."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from jaxsel._inputs.checks import (
    as_array,
    check_choice,
    check_finite,
    check_same_length,
)

from ._inputs import Predictions, check_predictions, row_blocks
from ._joint import ProbabilitySummary

Quality = Literal["normalized_margin", "self_confidence", "confidence_weighted_entropy"]
QUALITIES = ("normalized_margin", "self_confidence", "confidence_weighted_entropy")

_LEAST = 1e-6


def label_scores(
    pred_probs: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    rank_by: Quality = "normalized_margin",
    classes: npt.ArrayLike | None = None,
) -> np.ndarray:
    """Return the quality of each label, `[n]`, from 0 (worst) to 1.

    The same as `cleanlab.rank.get_label_quality_scores` of cleanlab 2.9.

    Args:
        pred_probs: Out-of-sample probabilities, `[n, K]`.
        y: Given labels, `[n]`.
        rank_by: "normalized_margin": (p(given) - the largest other p + 1) / 2.
            "self_confidence": p(given). "confidence_weighted_entropy": log(r + 1) / r,
            r being the entropy over log K, divided by p(given).
        classes: The class of each column; see `confident_joint`.

    Raises:
        TypeError: If labels are of different kinds.
        ValueError: If shapes do not fit, numbers are not between 0 and 1, or `rank_by`
            is unknown.

    References:
        Northcutt, Jiang and Chuang, Confident learning, JAIR 70, 2021, section 3.2;
        Kuan and Mueller, Model-agnostic label quality scoring to detect real-world
        label errors, ICML DataPerf 2022.
    """
    check_choice("rank_by", rank_by, QUALITIES)
    return quality(check_predictions(pred_probs, y, classes), rank_by)


def quality(
    predictions: Predictions, method: str, summary: ProbabilitySummary | None = None
) -> np.ndarray:
    """Return the scores of checked predictions; see `label_scores`."""
    probs, codes = predictions.probs, predictions.codes
    if method == "self_confidence":
        return (
            probs[np.arange(len(codes)), codes]
            if summary is None
            else summary.self_confidence
        )
    wide = method == "confidence_weighted_entropy"
    scores = np.empty(len(codes), np.float64 if wide else probs.dtype)
    for part in row_blocks(probs):
        block = np.ascontiguousarray(probs[part])
        rows, label = np.arange(len(block)), codes[part]
        confidence = block[rows, label]
        if method == "normalized_margin":
            scores[part] = (
                confidence - _rival(block, rows, label, part, summary) + 1
            ) / 2
            continue
        block = np.maximum(block, 0)
        entropy = -np.sum(special.xlogy(block, block), axis=1)
        ratio = entropy / np.log(block.shape[1]) / np.maximum(confidence, _LEAST)
        scores[part] = np.log(ratio + 1) / np.maximum(ratio, _LEAST)
    return scores


def _rival(
    block: np.ndarray,
    rows: np.ndarray,
    given: np.ndarray,
    part: slice,
    summary: ProbabilitySummary | None,
) -> np.ndarray:
    """Return the largest probability of another class than the given one."""
    if summary is None:
        top = block.argmax(axis=1)
        rivals = block[rows, top]
    else:
        top, rivals = summary.top[part], summary.peak[part].copy()
    same = np.flatnonzero(top == given)
    without = block[same]
    without[np.arange(len(same)), given[same]] = -np.inf
    rivals[same] = without.max(axis=1)
    return rivals


def fuse_ranks(*scores: npt.ArrayLike) -> np.ndarray:
    """Return the mean rank of each label over several scores, `[n]`, from 0 to 1.

    Each score is replaced by its rank, equal ones by their mean rank, so that scores of
    any scale count alike. Costs a sort of each.

    Args:
        *scores: `[n]` each, low where suspicious.

    Raises:
        ValueError: If there are none, shapes differ, or a number is not finite.
    """
    from scipy import stats

    if not scores:
        raise ValueError("scores must be one array or more, got none")
    arrays = [np.asarray(as_array("scores", score)) for score in scores]
    total = np.zeros(len(arrays[0]))
    for array in arrays:
        if array.ndim != 1:
            raise ValueError(f"scores must have shape [n], got {array.shape}")
        check_same_length("scores", arrays[0], "other scores", array)
        check_finite("scores", array)
        total += stats.rankdata(array) - 0.5
    return total / (len(arrays) * max(len(total), 1))
