"""Errors at equal trainings: what is counted, and what pages show of the record."""

import itertools
import json
import math
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks import _error_tables, _games, _shapiq, errors, nearest
from jaxsel import value

ROOT = Path(__file__).parents[2]
RECORD = _error_tables.Record.load(errors.RECORD)


def test_the_page_is_made_from_the_record():
    assert (errors.HERE / "ERRORS.md").read_text() == _error_tables.as_text(RECORD)


def test_the_guide_shows_the_record():
    page = (ROOT / "docs/retraining.md").read_text()
    assert _error_tables.as_guide(RECORD) in page
    assert f"shapiq {RECORD.shapiq}" in page


def test_every_estimator_was_measured():
    assert set(RECORD.rows) <= set(itertools.product(_games.GAMES, errors.A_POINT))
    for row in RECORD.rows.values():
        for name, setting in _shapiq.SETTINGS.items():
            seeds = RECORD.searched if setting.search else RECORD.seeds
            assert not seeds or row[f"shapiq {name}"].seeds == seeds


def test_records_are_read_as_written(tmp_path):
    RECORD.save(tmp_path / "kept.json")
    assert _error_tables.Record.load(tmp_path / "kept.json") == RECORD


def test_the_best_peer_is_chosen_by_true_errors():
    record = _error_tables.Record(2, 1, "0")
    runs = {_error_tables.OURS: [1.0, 1.0], "shapiq a": [3.0, 3.0], "shapiq b": [2, 2]}
    record.add("game", 10, {n: {"squares": s, "seconds": 0} for n, s in runs.items()})
    name, score = _error_tables.best(record.rows["game", 10])
    assert (name, score.error) == ("shapiq b", 2.0)
    assert _error_tables.times(score, record.rows["game", 10][_error_tables.OURS]) == (
        "2.00"
    )


def test_gaps_that_may_be_chance_are_marked():
    near = _error_tables.Score(1.0, 0.2, 0.0, 20), _error_tables.Score(0.8, 0.2, 0.0, 9)
    assert _error_tables.times(*near) == "~1.25"


@pytest.fixture
def game(tmp_path):
    table = np.arange(16.0) ** 2
    exact = _games.shapley(table, 4)
    np.savez(tmp_path / "game.npz", table=table, exact=exact)
    return tmp_path / "game.npz"


class Fake:
    """An estimator that asks for as many utilities as it likes."""

    spends = 0

    def __init__(self, n, random_state, **_):
        self.n = n

    def approximate(self, budget, game):
        game([[bit == "1" for bit in f"{i:04b}"] for i in range(budget + self.spends)])
        return {(i,): 1.0 for i in range(self.n)}


@pytest.fixture
def fake_shapiq(monkeypatch):
    estimators = types.SimpleNamespace(Fake=Fake)
    package = types.SimpleNamespace(__version__="0")
    monkeypatch.setitem(sys.modules, "shapiq", package)
    monkeypatch.setitem(sys.modules, "shapiq.approximator", estimators)
    monkeypatch.setattr(_shapiq, "SETTINGS", {"it": _shapiq.Setting("Fake", {})})


def test_peers_are_measured(game, fake_shapiq, capsys):
    _shapiq.main(str(game), 4, 6, 3, 1)
    answer = json.loads(capsys.readouterr().out)
    exact = np.load(game)["exact"]
    expected = np.mean((1 - exact) ** 2)
    assert answer["runs"]["shapiq it"]["squares"] == pytest.approx([expected] * 3)


def test_peers_get_no_more_utilities(game, fake_shapiq, monkeypatch):
    monkeypatch.setattr(Fake, "spends", 1)
    with pytest.raises(RuntimeError, match="it took 9 utilities of 8"):
        _shapiq.main(str(game), 4, 6, 3, 1)


def test_ours_gets_no_more_utilities(monkeypatch):
    """`adjusted_semivalue` sees its budget, besides no players and all."""
    n, budget, asked = 6, 24, set()
    table = np.random.default_rng(0).normal(size=2**n)

    def utility(masks, key):
        rows = np.asarray(masks) @ (1 << np.arange(n))
        asked.update(rows.tolist())
        return table[rows]

    game = value.as_utility(utility, n)
    stop = value.MaxSamples(errors.pairs(budget))
    value.adjusted_semivalue(game, stop=stop, key=jax.random.key(0))
    assert len(asked) == budget + 2


def test_exact_values():
    n = 4
    table = np.random.default_rng(0).normal(size=2**n)
    expected = np.zeros(n)
    for order in itertools.permutations(range(n)):
        inside = 0
        for player in order:
            expected[player] += table[inside | 1 << player] - table[inside]
            inside |= 1 << player
    assert np.allclose(_games.shapley(table, n), expected / math.factorial(n))


def test_threshold_values_by_their_formula():
    points = nearest.make_points(60)
    points["wide"] = points["wide"] * 2
    values = nearest.calls(points)["wide"]().values
    assert np.allclose(values, nearest.closed_form(points), atol=1e-6)
