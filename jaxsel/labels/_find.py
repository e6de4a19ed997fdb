"""Find wrong labels: the first call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxsel import value
from jaxsel._aligned import check_row_order, row_index
from jaxsel._checks import check_choice, check_positive
from jaxsel._doubts import doubt_columns
from jaxsel._fingerprint import plain_repr
from jaxsel.neighbors import METRICS, Metric
from jaxsel.value import Learner

from ._blend import blend, likelier_metric
from ._filters import Filter, check_filter, suspects
from ._folds import check_samples, deal, predict_folds, probabilistic
from ._inputs import number_labels, probs_and_labels
from ._joint import joint_of, look
from ._neighbours import conflicts, nearest_others
from ._quality import QUALITIES, fuse_ranks, quality
from ._result import LabelErrors

_LOG = logging.getLogger(__name__)
RANKINGS = (*QUALITIES, "knn_shapley", "data_oob")
_SEARCH = 1e12  # multiply-adds of a search for neighbours that is made unasked
_BAGS = 256


def find_label_errors(
    x: npt.ArrayLike | None,
    y: npt.ArrayLike,
    *,
    pred_probs: npt.ArrayLike | None = None,
    learner: Learner | Any | None = None,
    folds: int = 5,
    key: jax.Array | None = None,
    filter_by: Filter = "prune_by_noise_rate",
    rank_by: str | Sequence[str] = "self_confidence",
    min_per_class: int = 1,
    noise_share: float = 1.0,
    classes: npt.ArrayLike | None = None,
    k: int = 100,
    metric: Metric | None = None,
    duplicates: float | None = 0.1,
    progress: bool = False,
) -> LabelErrors:
    """Find the labels of a table that are probably wrong, without a clean set.

    Every sample is predicted by models that have not seen its label. From these
    probabilities the confident joint estimates how many labels of each class are
    wrong, and a filter says which. Given `pred_probs`, the suspected labels are those
    of cleanlab 2.9.

    Args:
        x: Features, `[n, d]`: embeddings, or columns of like scale; `[n, ...]` for
            `FlaxLearner`. May be None with `pred_probs`.
        y: Labels, `[n]`, of any kind.
        pred_probs: Out-of-sample probabilities of a model of your own, `[n, K]`.
        learner: What predicts each fold from the others, such as
            `value.LogisticRegression()` or a classifier of scikit-learn. If None,
            logistic regression and the nearest neighbours, pooled; penalty, number of
            neighbours and powers are those of the greatest held-out likelihood.
        folds: How many folds samples are dealt out to.
        key: Shuffles samples before they are dealt out; if None, those of a class take
            turns. Learners that draw, and "data_oob", need one.
        filter_by: Which labels to suspect; see `labels.label_issues`.
        rank_by: What scores labels: "self_confidence", "normalized_margin" or
            "confidence_weighted_entropy" of the probabilities (`labels.label_scores`);
            "knn_shapley", what a sample is worth to the neighbours' predictions of the
            other folds; "data_oob", how often models that were not trained on it agree
            with its label. Or several of these, whose ranks are averaged.
        min_per_class: The filters "prune_..." leave at least so many labels in a class.
        noise_share: They take this share of the labels that are estimated to be wrong.
        classes: The class of each column of `pred_probs`, `[K]`. If None, whole numbers
            from 0 to K - 1 are columns, and other labels stand in sorted order.
        k: Neighbours of each sample: at most, for the default learner.
        metric: Their distance, "l2" or "cosine". If None, that whose neighbours predict
            some of the labels better, or "l2" where the default learner has no part.
        duplicates: Near-duplicates are samples nearer than this share of the median
            distance to the nearest other one. None does not look for them.
        progress: Whether to show a bar.

    Returns:
        The suspected labels with suggestions, scores of all labels, and estimates.

    The default learner costs the training of `folds` models for each of five penalties,
    all in one program, and n² d multiply-adds for neighbours. These are left out, with
    the duplicates, where that is above 1e12.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes do not fit, numbers are not finite, an argument is out of
            range, or something is missing that another argument needs.

    References:
        Northcutt, Jiang and Chuang, Confident learning: estimating uncertainty in
        dataset labels, JAIR 70, 2021; Jia et al., VLDB 2019; Kwon and Zou, ICML 2023.
    """
    names = check_rankings(rank_by)
    check_filter(filter_by, min_per_class, noise_share)
    check_choice("metric", metric, (None, *METRICS))
    if duplicates is not None:
        check_positive("duplicates", duplicates, zero=True)
    if pred_probs is not None and learner is not None:
        raise ValueError(
            "pred_probs and learner must not both be given: either model predicts"
        )
    check_row_order("x", x, "y", y)
    samples = None
    if pred_probs is not None:
        probs, codes, known = probs_and_labels(pred_probs, y, classes)
        about = "pred_probs"
        if x is not None:
            samples = check_samples(x, codes, known)
    else:
        if x is None:
            raise ValueError("x must be given where pred_probs are not")
        if classes is not None:
            raise ValueError("classes are for the columns of pred_probs: give both")
        codes, known = number_labels(y)
        samples = check_samples(x, codes, known)
        probs, about = np.empty(0), ""
    if samples is not None:
        doubt_columns("x", samples, x, distances=False)
    if samples is None and (wanting := [n for n in names if n not in QUALITIES]):
        raise ValueError(f"x must be given for rank_by {wanting[0]!r}")
    if "data_oob" in names and key is None:
        raise ValueError("key must be given for rank_by 'data_oob', which draws bags")

    own = bags = None
    if key is not None:
        key, own, bags = jax.random.split(key, 3)
    near = None
    blended = pred_probs is None and learner is None
    if samples is not None and (blended or duplicates is not None):
        flat = samples.reshape(len(samples), -1)
        if float(len(flat)) ** 2 * flat.shape[1] <= _SEARCH:
            if metric is None and blended:
                metric = likelier_metric(flat, codes, len(known))
            near = nearest_others(flat, k, metric=metric or "l2", progress=progress)
        else:
            _LOG.info("too many samples to look for neighbours and duplicates")
    metric = metric or "l2"
    fold = None
    if samples is not None:
        fold = deal(codes, folds, key)
    if pred_probs is None:
        assert samples is not None
        assert fold is not None
        if learner is None:
            probs, about = blend(samples, codes, len(known), fold, near)
            about += "" if near is None else f", metric={metric!r}"
        else:
            learner = probabilistic(learner)
            probs = predict_folds(learner, samples, codes, len(known), fold, own)
            about = plain_repr(learner)
        _LOG.info("probabilities of %d labels by %s", len(codes), about)

    seen = look(probs, codes)
    joint = joint_of(seen, codes, known)
    mask = suspects(
        probs,
        codes,
        seen,
        joint,
        filter_by,
        min_per_class=min_per_class,
        noise_share=noise_share,
    )
    scored = [
        quality(probs, codes, name, seen)
        if name in QUALITIES
        else _valued(name, samples, codes, fold, learner, metric, bags, progress)
        for name in names
    ]
    # One that is no probability counts by its rank, too.
    alone = len(names) == 1 and names[0] in QUALITIES
    scores = scored[0] if alone else fuse_ranks(*scored)
    rows = np.flatnonzero(mask)
    rows = rows[np.argsort(scores[rows])]
    given = known[codes]
    return LabelErrors(
        indices=rows,
        scores=scores,
        given=given,
        suggested=known[seen.top],
        pred_probs=probs,
        joint=joint,
        duplicates=None
        if near is None or duplicates is None
        else conflicts(near, codes, share=duplicates, metric=metric),
        method=f"find_label_errors({about}, folds={folds}, filter_by={filter_by!r}, "
        f"rank_by={'+'.join(names)})"
        if pred_probs is None
        else f"find_label_errors(pred_probs, filter_by={filter_by!r}, "
        f"rank_by={'+'.join(names)})",
        index=row_index(x),
    )


def check_rankings(rank_by: str | Sequence[str]) -> list[str]:
    names = [rank_by] if isinstance(rank_by, str) else list(rank_by)
    if not names:
        raise ValueError("rank_by must name one ranking or more, got none")
    for name in names:
        check_choice("rank_by", name, RANKINGS)
    return names


def _valued(
    name: str,
    samples: Any,
    codes: np.ndarray,
    fold: Any,
    learner: Learner | None,
    metric: Metric,
    key: jax.Array | None,
    progress: bool,
) -> np.ndarray:
    """Return what a ranking makes of each sample, low where suspicious."""
    if name == "knn_shapley":
        return between_folds(samples.reshape(len(samples), -1), codes, fold, metric)
    assert key is not None
    found = value.data_oob(
        value.LogisticRegression() if learner is None else learner,
        samples,
        codes,
        key=key,
        stop=value.MaxSamples(_BAGS),
        progress=progress,
    )
    values = np.asarray(found.values, np.float64)
    # One that was in all bags is as suspicious as the average.
    return np.where(np.isnan(values), np.nanmean(values), values)


def between_folds(
    x: np.ndarray, codes: np.ndarray, fold: np.ndarray, metric: Metric
) -> np.ndarray:
    """Return the KNN-Shapley value of each sample over the other folds, `[n]`.

    Each fold in turn is what the other samples are valued on; a sample's values, one
    for each fold but its own, are averaged by the number of samples in the folds.
    """
    total, weight = np.zeros(len(x)), np.zeros(len(x))
    for i in range(int(fold.max()) + 1):
        mine, others = np.flatnonzero(fold == i), np.flatnonzero(fold != i)
        if not np.isin(codes[mine], codes[others]).any():
            continue
        found = value.knn_shapley(
            x[others], codes[others], x[mine], codes[mine], metric=metric
        )
        # Times their number: a value is a share of the whole training set's utility.
        total[others] += np.asarray(found.values, np.float64) * len(mine) * len(others)
        weight[others] += len(mine)
    return total / np.maximum(weight, 1)
