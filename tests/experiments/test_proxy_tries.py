"""Settings of proxies: which are tried, which the guard accepts, which are used."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.selectformer.proxies import (
    maker,
    points as points_file,
    tries,
)
from experiments.selectformer.proxies.points import (
    Candidate,
    Point,
    candidates,
)
from experiments.selectformer.proxies.run import run_proxies
from experiments.selectformer.proxies.trial import _counts
from jaxsel.proxy import ProbeSpec, entropy


def test_every_method_gets_as_many_tries():
    """Rates of a proxy, penalties of a probe, from the boldest to the most cautious."""
    for kind in ("text", "image"):
        made = candidates(kind) | candidates(kind, variants=True)
        for one in made.values():
            settings = one.tries()
            assert len(settings) == len(points_file.RATES) == 6
            if isinstance(one.spec, ProbeSpec):
                assert [c.spec.l2 for c in settings] == sorted(points_file.PENALTIES)
                continue
            rates = [c.training.learning_rate for c in settings]
            assert rates == sorted(points_file.RATES, reverse=True)
            same = {dataclasses.replace(c, training=one.training) for c in settings}
            assert same == {one}


class Trials:
    """A maker whose proxies the guard accepts from some try on, by candidate."""

    def __init__(self, accepted, ranks):
        self.accepted, self.ranks, self.tried = accepted, ranks, []
        self.left = np.arange(30)
        rng = np.random.default_rng(0)
        self.logits = rng.normal(size=(30, 2)).astype(np.float32)
        self.source = SimpleNamespace(take=lambda rows: self.logits)
        self.target = SimpleNamespace(logits=lambda inputs: inputs)

    def untrained(self, candidates):
        return {}

    def train(self, one, ready, i):
        place = points_file.PENALTIES.index(one.spec.l2)
        self.tried.append((i, place))
        refused = "" if place >= self.accepted[i] else "ranks otherwise"
        return SimpleNamespace(refused=refused, i=i, place=place)

    def rank(self, trained, rows):
        noise = np.random.default_rng(1).normal(size=30)
        exact = np.asarray(entropy(self.logits))
        return exact + self.ranks[trained.i][trained.place] * noise

    def made(self, trained, *, attack):
        return trained


def test_the_best_try_that_the_guard_accepts(monkeypatch):
    """Of the first the second try is best; of the other none is accepted."""
    monkeypatch.setattr(points_file, "PENALTIES", (0.01, 0.1, 1.0, 10.0))
    named = dict.fromkeys(("a", "b"), Candidate(spec=ProbeSpec()))
    named["b"] = dataclasses.replace(named["b"], goal="logits")
    held_out = Trials({0: 1, 1: 4}, {0: [0, 0.01, 3, 2], 1: [0] * 4})
    judged = tries.judge_tries(held_out, named)
    assert np.isnan(judged[0, 0])
    assert np.isnan(judged[1]).all()
    assert judged[0, 1] == np.nanmax(judged)
    first = tries.best_tries(judged)
    assert first.tolist() == [1, 0]
    # In a seed in which that is refused, more cautious ones are tried.
    seed = Trials({0: 3, 1: 4}, {})
    made = tries.make_accepted(seed, named, first)
    assert made["a"].place == 3
    assert not made["a"].made.refused
    assert made["b"].place == 3
    assert made["b"].made.refused
    assert seed.tried == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]


def test_the_guard_is_the_librarys():
    """It refuses emulated entropies that rank otherwise, and logits that overflow."""
    logits = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    exact = np.asarray(entropy(logits))

    def refusal(scores, family="mlp"):
        secure = SimpleNamespace(family=family)
        proxy = SimpleNamespace(
            logits=lambda x, mask: x,
            scores=scores,
            params={"offset": np.zeros(3, np.float32)},
            manifest=SimpleNamespace(score=SimpleNamespace(secure=secure)),
        )
        return maker._refusal(proxy, logits, None)

    def overflow(logits):
        raise ValueError("row 3 overflows")

    noise = np.random.default_rng(1).normal(size=50)
    assert refusal(lambda _: exact) == ""
    assert "Spearman -1.000, below min_correlation=0.9" in refusal(lambda _: -exact)
    assert "below min_correlation=0.9" in refusal(lambda _: exact + 0.2 * noise)
    assert refusal(lambda _: -exact, "square") == ""  # nothing is emulated
    assert refusal(overflow) == "row 3 overflows"


def test_settings_are_not_chosen_where_they_are_judged(tmp_path):
    with pytest.raises(ValueError, match="seeds must not hold 1000003"):
        run_proxies(tmp_path, seeds=(0, tries.HELD_OUT))


def test_a_point_counts_if_all_its_proxies_do():
    made = {
        "good": SimpleNamespace(refused="", stopped=False),
        "bad": SimpleNamespace(refused="ranks otherwise", stopped=False),
        "stopped": SimpleNamespace(refused="diverged", stopped=True),
    }

    def counts(*phases, exact=False):
        ends = tuple((name, None) for name in phases)
        return _counts(Point("", ends, exact=exact), made)

    assert counts("good")
    assert not counts("bad", "good")
    assert counts("bad", "good", exact=True)  # no emulated entropy is used
    assert not counts("stopped", exact=True)
