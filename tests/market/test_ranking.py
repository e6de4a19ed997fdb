"""Ranking owners, and comparing rankings."""

import math

import numpy as np
import pytest
from scipy import stats

from jaxsel.market import rank, ranking_agreement

from .cases import sent

SCORES = {"north": 0.5, "east": 0.7, "west": 0.5, "south": 0.9}


def answers():
    return [sent(owner=owner) for owner in SCORES]


def test_order_and_ties():
    calls = []

    def score(answer):
        calls.append(answer.owner)
        return SCORES[answer.owner]

    ranking = rank(answers(), score, baseline=0.6)
    assert calls == list(SCORES)
    assert ranking.owners == ("south", "east", "north", "west")
    np.testing.assert_allclose(ranking.mean, [0.9, 0.7, 0.5, 0.5])
    np.testing.assert_allclose(ranking.gain, [0.3, 0.1, -0.1, -0.1])
    assert ranking.stderr is None
    assert repr(ranking).startswith("Ranking('south': 0.9, 'east': 0.7")
    table = ranking.to_pandas()
    assert list(table.columns) == ["score", "gain"]
    assert list(table.index) == list(ranking.owners)


def test_seeds():
    draws = np.random.default_rng(0).normal(size=(4, 5))
    seeds = dict(zip(SCORES, draws, strict=True))
    ranking = rank(answers(), lambda answer: seeds[answer.owner], baseline=draws[0])
    order = np.argsort(-draws.mean(axis=1))
    np.testing.assert_allclose(ranking.scores, draws[order])
    np.testing.assert_allclose(ranking.stderr, stats.sem(draws[order], axis=1))
    assert "stderr" in ranking.to_pandas()


def test_agreement_is_that_of_scipy():
    rng = np.random.default_rng(1)
    owners = [f"o{i}" for i in range(9)]
    a, b = (rng.integers(0, 5, 9).astype(float) for _ in range(2))
    found = ranking_agreement(
        dict(zip(owners, a, strict=True)), dict(zip(owners[::-1], b[::-1], strict=True))
    )
    assert found.spearman == pytest.approx(stats.spearmanr(a, b).statistic)
    assert found.kendall == pytest.approx(stats.kendalltau(a, b).statistic)
    ranking = rank(answers(), lambda answer: SCORES[answer.owner])
    assert ranking_agreement(ranking, SCORES).spearman == pytest.approx(1)
    reverse = {owner: -score for owner, score in SCORES.items()}
    assert ranking_agreement(reverse, ranking).kendall == pytest.approx(-1)
    level = ranking_agreement(ranking, dict.fromkeys(SCORES, 1.0))
    assert math.isnan(level.spearman)
    assert math.isnan(level.kendall)


def test_refuses():
    with pytest.raises(ValueError, match="answers must hold one at least"):
        rank([], lambda answer: 1.0)
    with pytest.raises(ValueError, match="one from each owner: 'north'"):
        rank([sent(), sent()], lambda answer: 1.0)
    with pytest.raises(ValueError, match="score of 'north' must be a finite number"):
        rank([sent()], lambda answer: math.nan)
    with pytest.raises(ValueError, match="as many numbers each, got \\[1, 2\\]"):
        rank([sent()], lambda answer: 1.0, baseline=[1.0, 2.0])
    with pytest.raises(ValueError, match="only one has 'east'"):
        ranking_agreement({"west": 1.0}, {"west": 1.0, "east": 2.0})
    with pytest.raises(ValueError, match="two owners at least"):
        ranking_agreement({"west": 1.0}, {"west": 1.0})
