"""Rankings of labels, the most suspicious first: one table for checks and scores."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from jaxsel import value
from jaxsel._inputs.checks import check_choice
from jaxsel.neighbors import Metric
from jaxsel.value import Learner

from ._inputs import Predictions
from ._joint import ProbabilitySummary
from ._quality import QUALITIES, fuse_ranks, quality
from ._table import Table

_BAGS = 256


class Evidence(NamedTuple):
    """Input of rankings; parts that a ranking needs are present.

    Attributes:
        predictions: Out-of-sample probabilities.
        summary: Their statistics.
        table: Samples; None if only probabilities are known.
        learner: To train on bags; None takes logistic regression.
        key: Draws bags.
        progress: Whether to show a bar.
    """

    predictions: Predictions
    summary: ProbabilitySummary
    table: Table | None
    learner: Learner | Any | None
    key: jax.Array | None
    progress: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranking:
    """A score of labels, low where suspicious, and its needs.

    Attributes:
        score: Returns the score of each label, `[n]`.
        unit: Whether scores are from 0 to 1; others count by their ranks.
        samples: Whether it needs samples.
        draws: Its need of a key, in words; empty if none.
    """

    score: Callable[[Evidence], np.ndarray]
    unit: bool = False
    samples: bool = False
    draws: str = ""


def check_rankings(
    rank_by: str | Sequence[str], *, samples: bool, key: jax.Array | None
) -> list[str]:
    """Return the names of rankings; raise a ValueError if one lacks its needs."""
    names = [rank_by] if isinstance(rank_by, str) else list(rank_by)
    if not names:
        raise ValueError("rank_by must name one ranking or more, got none")
    for name in names:
        check_choice("rank_by", name, RANKINGS)
        if RANKINGS_BY_NAME[name].samples and not samples:
            raise ValueError(f"x must be given for rank_by {name!r}")
        if (drawn := RANKINGS_BY_NAME[name].draws) and key is None:
            raise ValueError(f"key must be given for rank_by {name!r}, which {drawn}")
    return names


def rank_labels(names: Sequence[str], evidence: Evidence) -> np.ndarray:
    """Return the score of each label by one ranking or several, `[n]`, from 0 to 1."""
    rankings = [RANKINGS_BY_NAME[name] for name in names]
    scores = [ranking.score(evidence) for ranking in rankings]
    alone = len(rankings) == 1 and rankings[0].unit
    return scores[0] if alone else fuse_ranks(*scores)


def between_folds(
    x: np.ndarray, codes: np.ndarray, fold: np.ndarray, metric: Metric
) -> np.ndarray:
    """Return the KNN-Shapley value of each sample over the other folds, `[n]`.

    Each fold in turn is the validation set of the other samples; a sample's values, one
    for each other fold, are averaged by the number of samples in the folds.
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


def _by_probabilities(method: str, evidence: Evidence) -> np.ndarray:
    return quality(evidence.predictions, method, evidence.summary)


def _by_neighbours(evidence: Evidence) -> np.ndarray:
    table = cast(Table, evidence.table)
    flat = table.rows.reshape(len(table.rows), -1)
    return between_folds(flat, table.codes, table.fold, table.metric)


def _by_bags(evidence: Evidence) -> np.ndarray:
    table = cast(Table, evidence.table)
    learner = evidence.learner
    values = value.data_oob(
        value.LogisticRegression() if learner is None else learner,
        table.samples,
        table.codes,
        key=cast(jax.Array, evidence.key),
        stop=value.MaxSamples(_BAGS),
        progress=evidence.progress,
    )
    agreement = np.asarray(values.values, np.float64)
    # A sample that was in all bags is as suspicious as the average.
    return np.where(np.isnan(agreement), np.nanmean(agreement), agreement)


RANKINGS_BY_NAME = {
    name: Ranking(score=functools.partial(_by_probabilities, name), unit=True)
    for name in QUALITIES
} | {
    "knn_shapley": Ranking(score=_by_neighbours, samples=True),
    "data_oob": Ranking(score=_by_bags, samples=True, draws="draws bags"),
}
RANKINGS = tuple(RANKINGS_BY_NAME)
