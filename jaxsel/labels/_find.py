"""Find wrong labels: the first call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from jaxsel import value
from jaxsel._aligned import check_row_order, row_index
from jaxsel._checks import check_choice, check_count, check_features, check_positive
from jaxsel._doubts import doubt, doubt_columns
from jaxsel._fingerprint import plain_repr
from jaxsel._frames import foreign_columns, gapped_columns
from jaxsel.neighbors import METRICS, Metric
from jaxsel.tables import TableEncoder
from jaxsel.value import Learner

from ._blend import blend, likelier_metric
from ._columns import on_one_scale
from ._filters import Filter, check_filter, suspects
from ._folds import check_samples, deal, predict_folds, probabilistic
from ._inputs import number_labels, probs_and_labels
from ._joint import joint_of, summarise
from ._neighbours import Near, conflicts, nearest_others
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

    Every sample is predicted by models that have not seen its label. By these
    probabilities the confident joint counts suspects, and a filter chooses them: given
    `pred_probs`, the same labels as cleanlab 2.9. Where classes overlap, most suspects
    are hard rather than wrong: `n_errors` and `wrong` estimate flips apart from overlap
    (`labels.estimate_noise`).

    Args:
        x: Features, `[n, d]`: embeddings, or columns in any units, which the default
            learner and the neighbours see on one scale; `[n, ...]` for `FlaxLearner`.
            Texts, dates and gaps of a data frame are encoded (`tables.TableEncoder`).
            May be None with `pred_probs`.
        y: Labels, `[n]`, of any kind.
        pred_probs: Out-of-sample probabilities of a model of your own, `[n, K]`.
        learner: Classifier that predicts each fold from the others, such as
            `value.LogisticRegression()` or a classifier of scikit-learn. If None,
            logistic regression and the nearest neighbours, pooled; penalty, number of
            neighbours and powers are those of the greatest held-out likelihood.
        folds: Number of folds.
        key: Shuffles samples before they are dealt out; if None, those of a class take
            turns. Learners that draw, and "data_oob", need one.
        filter_by: Which labels to suspect; see `labels.label_issues`.
        rank_by: Score of labels: "self_confidence", "normalized_margin" or
            "confidence_weighted_entropy" of the probabilities (`labels.label_scores`);
            "knn_shapley", the value of a sample to the neighbours' predictions of the
            other folds; "data_oob", how often models that were not trained on it agree
            with its label. Or several of these, whose ranks are averaged.
        min_per_class: The filters "prune_..." leave at least this many in a class.
        noise_share: They take this share of the labels that are estimated to be wrong.
        classes: The class of each column of `pred_probs`, `[K]`. If None, whole numbers
            from 0 to K - 1 are columns, and other labels stand in sorted order.
        k: Neighbours of each sample: at most, for the default learner.
        metric: Their distance, "l2" or "cosine". If None, the one by which neighbours
            predict some of the labels better, or "l2" where the default learner has no
            part.
        duplicates: Near-duplicates are samples nearer than this share of the median
            distance to the nearest other one. None does not look for them.
        progress: Whether to show a bar.

    Returns:
        The suspected labels with suggestions, scores of all labels, and estimates.

    The default learner costs the training of `folds` models for each of five penalties,
    all in one program (twice for tables of at most 32 columns of numbers), and n² d
    multiply-adds for neighbours. These are left out, with the duplicates, where that is
    above 1e12.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes do not fit, numbers are not finite, an argument is out of
            range, or something is missing that another argument needs.

    References:
        Northcutt, Jiang and Chuang, Confident learning: estimating uncertainty in
        dataset labels, JAIR 70, 2021; Jia et al., VLDB 2019; Kwon and Zou, ICML 2023.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat(["cat", "dog"], 30)
        >>> x = rng.normal(size=(60, 2)) + 5.0 * (y == "dog")[:, None]
        >>> y[[3, 40]] = "dog", "cat"  # two wrong labels
        >>> errors = jaxsel.find_label_errors(x, y)
        >>> print(np.sort(errors.indices))
        [ 3 40]
        >>> print(errors.given[3], errors.suggested[3])
        dog cat
    """
    names = check_rankings(rank_by)
    check_filter(filter_by, min_per_class, noise_share)
    check_choice("metric", metric, (None, *METRICS))
    k = check_count("k", k)
    if duplicates is not None:
        check_positive("duplicates", duplicates, zero=True)
    if pred_probs is not None and learner is not None:
        raise ValueError(
            "pred_probs and learner must not both be given: either model predicts"
        )
    if pred_probs is None and x is None:
        raise ValueError("x must be given where pred_probs are not")
    if pred_probs is None and classes is not None:
        raise ValueError("classes are for the columns of pred_probs: give both")
    if x is None and (wanting := [n for n in names if n not in QUALITIES]):
        raise ValueError(f"x must be given for rank_by {wanting[0]!r}")
    if "data_oob" in names and key is None:
        raise ValueError("key must be given for rank_by 'data_oob', which draws bags")
    check_row_order("x", x, "y", y)
    index = row_index(x)
    if foreign := foreign_columns(x):
        doubt(
            f"x has columns that are no numbers, {foreign}: they are encoded as "
            "jaxsel.tables.TableEncoder does"
        )
        x = TableEncoder().fit_transform(x)
    elif gapped := gapped_columns(x):
        doubt(
            f"x has gaps, as in column {gapped[0]!r}: they are filled and marked as "
            "jaxsel.tables.TableEncoder does"
        )
        x = TableEncoder().fit_transform(x)

    fold_key = fit_key = bag_key = None
    if key is not None:
        fold_key, fit_key, bag_key = jax.random.split(key, 3)
    probs = members = table = None
    if pred_probs is None:
        codes, known = number_labels(y)
    else:
        probs, codes, known = probs_and_labels(pred_probs, y, classes)
    default = pred_probs is None and learner is None
    if x is not None:
        samples = check_samples(x, codes, known)
        doubt_columns("x", samples, x, distances=False)
        table = _Table.of(
            x,
            samples,
            codes,
            deal(codes, folds, fold_key),
            metric="l2" if metric is None and not default else metric,
            k=k if default or duplicates is not None else None,
            progress=progress,
        )
    about = "pred_probs"
    if probs is None:
        assert table is not None  # x is given where pred_probs are not
        if learner is None:
            probs, members, about = blend(
                table.rows, codes, len(known), table.fold, table.near
            )
            about += "" if table.near is None else f", metric={table.metric!r}"
        else:
            learner = probabilistic(learner)
            probs = predict_folds(
                learner, table.samples, codes, len(known), table.fold, fit_key
            )
            about = plain_repr(learner)
        about += f", folds={folds}"
        _LOG.info("probabilities of %d labels by %s", len(codes), about)

    summary = summarise(probs, codes)
    joint = joint_of(summary, codes, known)
    mask = suspects(
        probs,
        codes,
        summary,
        joint,
        filter_by,
        min_per_class=min_per_class,
        noise_share=noise_share,
    )
    scored = [
        quality(probs, codes, name, summary)
        if name in QUALITIES
        else _valued(name, table, codes, learner, bag_key, progress)
        for name in names
    ]
    # One that is no probability counts by its rank, too.
    alone = len(names) == 1 and names[0] in QUALITIES
    scores = scored[0] if alone else fuse_ranks(*scored)
    rows = np.flatnonzero(mask)
    rows = rows[np.argsort(scores[rows])]
    pairs = None
    if table is not None and table.near is not None and duplicates is not None:
        pairs = conflicts(table.near, codes, share=duplicates, metric=table.metric)
    return LabelErrors(
        indices=rows,
        scores=scores,
        given=known[codes],
        suggested=known[summary.top],
        pred_probs=probs,
        members=members,
        joint=joint,
        duplicates=pairs,
        method=f"find_label_errors({about}, filter_by={filter_by!r}, "
        f"rank_by={'+'.join(names)})",
        index=index,
    )


class _Table(NamedTuple):
    """Samples with their folds and neighbours.

    Attributes:
        samples: As passed, `[n, ...]` float32.
        rows: On one scale, `[n, ...]` float32.
        fold: `[n]`.
        metric: Distance of the neighbours.
        near: Each sample's neighbours; None if there are too many samples to search.
    """

    samples: np.ndarray
    rows: np.ndarray
    fold: np.ndarray
    metric: Metric
    near: Near | None

    @classmethod
    def of(
        cls,
        x: Any,
        samples: np.ndarray,
        codes: np.ndarray,
        fold: np.ndarray,
        *,
        metric: Metric | None,
        k: int | None,
        progress: bool,
    ) -> _Table:
        """Scale the columns, and search neighbours where that is affordable.

        Args:
            x: Samples as passed: float64 has the digits of columns around 1e9.
            samples: The same, checked.
            codes: Labels.
            fold: Of each sample.
            metric: None chooses it by the likelihood of the labels.
            k: Neighbours of each sample; None searches none.
            progress: Whether to show a bar.
        """
        array = check_features("x", x) if samples.ndim == 2 else samples
        rows = on_one_scale(np.asarray(array))
        flat = rows.reshape(len(rows), -1)
        if k is None or float(len(flat)) ** 2 * flat.shape[1] > _SEARCH:
            if k is not None:
                _LOG.info("too many samples to look for neighbours and duplicates")
            return cls(samples, rows, fold, metric or "l2", None)
        near = None
        if metric is None:
            metric, near = likelier_metric(flat, codes, int(codes.max()) + 1)
        if near is None or near.indices.shape[1] < min(k, len(flat) - 1):
            near = nearest_others(flat, k, metric=metric, progress=progress)
        near = Near(near.distances[:, :k], near.indices[:, :k])
        return cls(samples, rows, fold, metric, near)


def check_rankings(rank_by: str | Sequence[str]) -> list[str]:
    names = [rank_by] if isinstance(rank_by, str) else list(rank_by)
    if not names:
        raise ValueError("rank_by must name one ranking or more, got none")
    for name in names:
        check_choice("rank_by", name, RANKINGS)
    return names


def _valued(
    name: str,
    table: _Table | None,
    codes: np.ndarray,
    learner: Learner | None,
    key: jax.Array | None,
    progress: bool,
) -> np.ndarray:
    """Return the value of each sample by a ranking, low where suspicious."""
    assert table is not None
    if name == "knn_shapley":
        flat = table.rows.reshape(len(table.rows), -1)
        return between_folds(flat, codes, table.fold, table.metric)
    assert key is not None
    values = value.data_oob(
        value.LogisticRegression() if learner is None else learner,
        table.samples,
        codes,
        key=key,
        stop=value.MaxSamples(_BAGS),
        progress=progress,
    )
    agreement = np.asarray(values.values, np.float64)
    # One that was in all bags is as suspicious as the average.
    return np.where(np.isnan(agreement), np.nanmean(agreement), agreement)


def between_folds(
    x: np.ndarray, codes: np.ndarray, fold: np.ndarray, metric: Metric
) -> np.ndarray:
    """Return the KNN-Shapley value of each sample over the other folds, `[n]`.

    Each fold in turn is the validation set of the other samples; a sample's values, one
    for each fold but its own, are averaged by the number of samples in the folds.
    """
    total, weight = np.zeros(len(x)), np.zeros(len(x))
    for i in range(int(fold.max()) + 1):
        held_out, others = np.flatnonzero(fold == i), np.flatnonzero(fold != i)
        if not np.isin(codes[held_out], codes[others]).any():
            continue
        shapley = value.knn_shapley(
            x[others], codes[others], x[held_out], codes[held_out], metric=metric
        )
        # Times their number: a value is a share of the whole training set's utility.
        total[others] += (
            np.asarray(shapley.values, np.float64) * len(held_out) * len(others)
        )
        weight[others] += len(held_out)
    return total / np.maximum(weight, 1)
