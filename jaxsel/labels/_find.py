"""Find wrong labels: the first call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.alignment import check_row_order, row_index
from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel._runs.fingerprint import plain_repr
from jaxsel.neighbors import METRICS, Metric
from jaxsel.value import Learner

from ._blend import blend
from ._filters import Filter, FilterRule, suspects
from ._folds import predict_folds, probabilistic
from ._inputs import Predictions, check_predictions, number_labels
from ._joint import joint_of, summarise, to_prune
from ._neighbours import conflicts
from ._rank import Evidence, check_rankings, rank_labels
from ._result import LabelErrors
from ._table import Table, TableOptions

_LOG = logging.getLogger(__name__)


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

    The default learner costs the training of `folds` models for each of five penalties
    (twice for tables of at most 32 columns of numbers), and n² d multiply-adds for
    neighbours. These are left out, with the duplicates, where that is above 1e12.

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
    names = check_rankings(rank_by, samples=x is not None, key=key)
    rule = FilterRule(filter_by, min_per_class, noise_share)
    check_choice("metric", metric, (None, *METRICS))
    k = check_count("k", k)
    if duplicates is not None:
        check_positive("duplicates", duplicates, zero=True)
    if pred_probs is not None and learner is not None:
        raise ValueError(
            "pred_probs and learner must not both be given: either model predicts"
        )
    if pred_probs is None and classes is not None:
        raise ValueError("classes are for the columns of pred_probs: give both")
    check_row_order("x", x, "y", y)
    index = row_index(x)
    fold_key, fit_key, bag_key = [None] * 3 if key is None else jax.random.split(key, 3)
    default = pred_probs is None and learner is None
    options = TableOptions(
        folds=folds,
        key=fold_key,
        k=k if default or duplicates is not None else None,
        metric="l2" if metric is None and not default else metric,
        progress=progress,
    )
    if pred_probs is not None:
        predictions = check_predictions(pred_probs, y, classes)
        known = predictions.codes, predictions.classes
        table = None if x is None else Table.of(x, *known, options)
    elif x is not None:
        table = Table.of(x, *number_labels(y), options)
        predictions = (
            blend(table)
            if learner is None
            else _cross_validated(learner, table, fit_key)
        )
        _LOG.info(
            "probabilities of %d labels by %s",
            len(predictions.codes),
            predictions.source,
        )
    else:
        raise ValueError("x must be given where pred_probs are not")

    summary = summarise(predictions)
    joint = joint_of(summary, predictions)
    counts = to_prune(joint.counts, rule.min_per_class, rule.noise_share)
    mask = suspects(predictions, summary, rule, counts)
    evidence = Evidence(predictions, summary, table, learner, bag_key, progress)
    scores = rank_labels(names, evidence)
    rows = np.flatnonzero(mask)
    near = None if table is None else table.near
    pairs = (
        None
        if near is None or duplicates is None
        else conflicts(near, predictions.codes, share=duplicates)
    )
    return LabelErrors(
        indices=rows[np.argsort(scores[rows])],
        scores=scores,
        given=predictions.classes[predictions.codes],
        suggested=predictions.classes[summary.top],
        pred_probs=predictions.probs,
        members=predictions.members,
        joint=joint,
        duplicates=pairs,
        method=f"find_label_errors({predictions.source}, filter_by={filter_by!r}, "
        f"rank_by={'+'.join(names)})",
        index=index,
    )


def _cross_validated(learner: Any, table: Table, key: jax.Array | None) -> Predictions:
    """Predict each fold of a table by a learner trained on the others."""
    learner = probabilistic(learner)
    codes, classes = table.codes, table.classes
    probs = predict_folds(learner, table.samples, codes, classes, table.fold, key)
    source = f"{plain_repr(learner)}, folds={table.folds}"
    return Predictions(probs, codes, classes, source=source)
