"""When runs of estimators stop, and what they refuse."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy import stats

from jaxsel import value
from jaxsel.value._exact import exact_semivalue
from jaxsel.value._group_testing import group_testing_shapley
from jaxsel.value._loo import loo
from jaxsel.value._msr import banzhaf
from jaxsel.value._permutation import beta_shapley, tmc_shapley
from jaxsel.value._run import _correlation
from jaxsel.value._stopping import (
    MaxSamples,
    MaxTime,
    RankStability,
    RunInfo,
    StandardError,
    StoppingRule,
)

from .games import Game

KEY = jax.random.key(3)
N = 5


def info(**changes):
    start = RunInfo(
        samples=200,
        seconds=10.0,
        values=np.array([0.0, 2.0]),
        stderr=np.array([0.01, 0.03]),
        agreement=np.array([np.nan, np.nan, 0.98, 0.995, 1.0]),
    )
    return dataclasses.replace(start, **changes)


UNKNOWN = np.array([0.0, np.nan])


@pytest.mark.parametrize(
    ("rule", "changes", "expected"),
    [
        (MaxSamples(200), {}, True),
        (MaxSamples(201), {}, False),
        (MaxTime(10), {}, True),
        (MaxTime(10.1), {}, False),
        (StandardError(0.03), {}, True),
        (StandardError(0.029), {}, False),
        (StandardError(0.03, minimum=201), {}, False),
        (StandardError(0.03), {"stderr": UNKNOWN}, False),
        (StandardError(relative=0.03), {}, True),
        (StandardError(relative=0.02), {}, False),
        (StandardError(0.029, relative=0.03), {}, True),
        (RankStability(0.98), {}, True),
        (RankStability(0.99), {}, False),
        (RankStability(0.99, rounds=2), {}, True),
        (RankStability(0.5, rounds=4), {}, False),
        (RankStability(0.5, rounds=9), {}, False),
        (MaxSamples(9) | MaxTime(99), {}, True),
        (MaxSamples(9) & MaxTime(99), {}, False),
        (MaxSamples(9) & MaxTime(9) & StandardError(0.1), {}, True),
        (MaxSamples(999) | MaxTime(99) | StandardError(0.01), {}, False),
    ],
    ids=repr,
)
def test_rules(rule, changes, expected):
    assert rule.done(info(**changes)) is expected


def test_limits_of_rules():
    few, many, long = MaxSamples(9), MaxSamples(99), MaxTime(1)
    assert (few | many | long).limit == 9
    assert (few & many).limit == 99
    assert (few & long).limit is None
    assert (long | StandardError(1)).limit is None
    assert ((few & long) | many).limit == 99


def test_stops_at_the_first_round_that_is_good_enough():
    game, target = Game(N), 0.1
    found = tmc_shapley(game, key=KEY, stop=StandardError(target))
    assert int(found.count) % 64 == 0
    assert found.stderr.max() <= target
    before = tmc_shapley(game, key=KEY, stop=MaxSamples(int(found.count) - 64))
    assert before.stderr.max() > target


def test_stops_when_ranks_are_stable():
    game, rounds = Game(N), 4
    found = tmc_shapley(game, key=KEY, stop=RankStability(0.95, rounds=rounds))
    last = int(found.count) // 64
    by_round = [
        tmc_shapley(game, key=KEY, stop=MaxSamples(64 * r)).values
        for r in range(1, last + 1)
    ]
    pairs = zip(by_round, by_round[1:], strict=False)
    high = [stats.spearmanr(*pair)[0] >= 0.95 for pair in pairs]
    assert high[-rounds:] == [True] * rounds
    assert not any(all(high[i : i + rounds]) for i in range(len(high) - rounds))


def test_stops_when_time_is_over():
    found = banzhaf(Game(N), key=KEY, stop=MaxTime(1e-9) | MaxSamples(10**6))
    assert int(found.count) == 1024


def test_a_rule_of_ones_own():
    class Twice(StoppingRule):
        def done(self, info):
            return info.samples >= 2 * 64

    assert int(tmc_shapley(Game(N), key=KEY, stop=Twice()).count) == 128


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tmc_shapley(lambda m, k: m, key=KEY), TypeError, "as_utility"),
        (lambda: loo(7), TypeError, "utility must be"),
        (lambda: tmc_shapley(Game(3), key=0), TypeError, "key must be a key"),
        (lambda: tmc_shapley(Game(3), key=None), TypeError, "key must be a key"),
        (lambda: loo(Game(3), key=0), TypeError, "key must be a key"),
        (lambda: tmc_shapley(Game(3), key=KEY, stop=100), TypeError, "stop must be"),
        (lambda: tmc_shapley(Game(3), key=KEY, tolerance=-1), ValueError, "tolerance"),
        (lambda: tmc_shapley(Game(3), key=KEY, patience=0), ValueError, "patience"),
        (lambda: banzhaf(Game(3), key=KEY, batch_size=0), ValueError, "batch_size"),
        (lambda: banzhaf(Game(3), key=KEY, mesh=8), ValueError, "mesh must be"),
        (lambda: beta_shapley(Game(3), key=KEY, alpha=0), ValueError, "alpha"),
        (lambda: exact_semivalue(Game(3), kind="owen"), ValueError, "kind must be"),
        (
            lambda: exact_semivalue(value.as_utility(len, 21)),
            ValueError,
            "at most 20 points",
        ),
        (lambda: group_testing_shapley(Game(1), key=KEY), ValueError, "two points"),
        (lambda: loo(Game(3, table=[np.nan] * 8)), ValueError, "of 3 of 3 points"),
        (
            lambda: loo(value.as_utility(lambda m, k: m, 3)),
            ValueError,
            r"shape \[B\] = \[1\].*got \(1, 3\)",
        ),
        (lambda: MaxSamples(0), ValueError, "n must be at least 1"),
        (lambda: MaxSamples(1.5), TypeError, "n must be a whole number"),
        (lambda: MaxTime(0), ValueError, "seconds must be"),
        (StandardError, ValueError, "absolute or relative must be given"),
        (lambda: StandardError(-1), ValueError, "absolute must be"),
        (lambda: RankStability(1.5), ValueError, "correlation must be at most 1"),
        (lambda: RankStability(rounds=0), ValueError, "rounds must be"),
        (lambda: MaxSamples(1) | 3, TypeError, "unsupported operand"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("n", [2, 3, 9])
def test_reversed_ranks_correlate_at_minus_one(n):
    values = np.arange(float(n))
    assert _correlation(values, -values) == pytest.approx(-1)
    assert _correlation(values, np.zeros(n)) == 0
