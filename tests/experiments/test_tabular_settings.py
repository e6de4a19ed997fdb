"""Classifiers of the tabular experiment and the search for their settings."""

import json

import jax
import numpy as np
import pytest
from planted_tables import SIZES, planted
from sklearn.metrics import f1_score
from sklearn.tree import DecisionTreeClassifier

from experiments.mycroft.tabular import tuning
from experiments.mycroft.tabular.market import deal, dealt, mixtures
from experiments.mycroft.tabular.select import prepare_offer, rank
from experiments.mycroft.tabular.trainer import (
    GRID,
    TREE,
    Retrainer,
    classifiers_here,
    first_models,
    in_words,
)
from experiments.mycroft.tabular.tuning import DEAL, held_pairs, search, searched


def test_retrainer_gives_the_f1_of_scikit_learn():
    table = planted()
    market = deal(table, mixtures(2), key=jax.random.key(1), **SIZES)
    received = market.offered[0][:5]
    rows = np.concatenate([market.own[0], received])
    tree = DecisionTreeClassifier(random_state=7).fit(
        table.x[rows], table.positive[rows]
    )
    test = market.test[0]
    expected = f1_score(table.positive[test], tree.predict(table.x[test]))
    models = first_models()[:3]
    jobs = [(0, received, model) for model in models] + [(0, received[:0], TREE)]
    scores = Retrainer(table, market, 7)(jobs)
    assert 0 < expected < 1
    assert scores[0] == pytest.approx(expected)
    assert scores[3] == 0
    assert all(0 <= score <= 1 for score in scores)
    balanced = DecisionTreeClassifier(
        random_state=7, min_samples_leaf=8, class_weight="balanced"
    ).fit(table.x[rows], table.positive[rows])
    expected = f1_score(table.positive[test], balanced.predict(table.x[test]))
    settings = {"min_samples_leaf": 8, "max_features": 1.0, "balanced": True}
    (score,) = Retrainer(table, market, 7)([(0, received, (TREE[0], settings))])
    assert score == pytest.approx(expected)
    assert score != scores[0]


def test_every_classifier_gets_as_many_tries_on_the_same_deal(monkeypatch):
    """None is compared by settings that were searched longer, or nearer to results."""
    table, tries = planted(), []

    def scored(self, jobs):
        jobs = [*jobs]
        tries.append((jobs, self._seed))
        name, settings = jobs[0][2]
        return [GRID[name].index(settings) == 5] * len(jobs)

    with monkeypatch.context() as patch:
        patch.setattr(Retrainer, "__call__", scored)
        patch.setattr(tuning, "STEP", 1)
        models = search(table, SIZES)
    assert models == [(name, GRID[name][5]) for name in classifiers_here()]
    n = len(GRID["XGBoost"])
    assert {len(settings) for settings in GRID.values()} == {n}
    assert {len({*map(str, settings)}) for settings in GRID.values()} == {n}
    by_name = [jobs[0][2][0] for jobs, _ in tries]
    assert by_name == list(np.repeat(classifiers_here(), n))
    assert {seed for _, seed in tries} == {DEAL}
    market, shares, _ = dealt(DEAL, table, SIZES)
    pairs = held_pairs(shares, 1)
    for jobs, _ in tries:
        assert [p for p, _, _ in jobs] == [p for p, _ in pairs]
        for (_, rows, _), (_, o) in zip(jobs, pairs, strict=True):
            assert len(rows) == 5
            assert np.isin(rows, market.offered[o]).all()


def test_the_best_settings_are_those_of_the_highest_f1(monkeypatch):
    table, name = planted(), TREE[0]
    monkeypatch.setattr(tuning, "classifiers_here", lambda: (name,))
    ((_, best),) = search(table, SIZES)
    market, shares, lots = dealt(DEAL, table, SIZES)
    ((p, o),) = held_pairs(shares, tuning.STEP)
    known, hard = table.known(market.offered[o]), table.known(market.hard[p])
    offer = prepare_offer(known, table.x[market.beside[o]], table.categorical, seed=0)
    rows = market.offered[o][rank("binning distance", offer, hard, 5, lots[p, o])]
    jobs = [(p, rows, (name, settings)) for settings in GRID[name]]
    scores = Retrainer(table, market, DEAL)(jobs)
    assert best == GRID[name][int(np.argmax(scores))]
    assert np.ptp(scores) > 0.2


def test_results_of_another_search_are_others(monkeypatch):
    facts = json.dumps(searched())
    monkeypatch.setitem(GRID, "decision tree", GRID["decision tree"][:2])
    assert json.dumps(searched()) != facts


def test_settings_in_words():
    assert in_words(TREE) == "min_samples_leaf 1, max_features 1, balanced 0"
