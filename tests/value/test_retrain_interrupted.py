"""Runs that are interrupted within a round: saves, time, bars, what is resumed."""

import os
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest
from tqdm import tqdm
from waits import PATIENCE

from jaxsel import value
from jaxsel._results.types import Values
from jaxsel.value import _run
from jaxsel.value._group_testing import group_testing_shapley
from jaxsel.value._msr import banzhaf
from jaxsel.value._permutation import beta_shapley, tmc_shapley
from jaxsel.value._stopping import (
    MaxSamples,
    MaxTime,
    RankStability,
    StandardError,
    StoppingRule,
)

from .games import Game, saturating

KEY, N = jax.random.key(3), 13


class Leaning(Game):
    """A utility that tells from which parameters each training started."""

    def evaluate(self, masks, key, start=None):
        found, masks = self(masks, key), np.asarray(masks, np.float32)
        if start is not None:
            found = found + 0.01 * (np.asarray(start) @ np.sqrt(np.arange(self.n)))
        return found, jax.numpy.asarray(masks)


def leaning(**options):
    return Leaning(N, table=saturating(N).table, **options)


@pytest.fixture
def clock(monkeypatch):
    """A clock that each call of a utility moves by ten seconds."""
    now = [0.0]
    call = Game.__call__

    def slow(self, masks, key):
        now[0] += 10.0
        return call(self, masks, key)

    monkeypatch.setattr(Game, "__call__", slow)
    monkeypatch.setattr(_run, "_clock", lambda: now[0])
    return now


@pytest.fixture
def saves(clock, monkeypatch):
    """When the states of runs were saved."""
    times = []
    save = _run._Saved.save

    def noted(self, state):
        times.append(clock[0])
        save(self, state)

    monkeypatch.setattr(_run._Saved, "save", noted)
    return times


def identical(a, b):
    for one, two in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(one, two)
    assert a.method == b.method


def tmc(game, **options):
    options = {"tolerance": 0.05, "patience": 2, "batch_size": 64, **options}
    return tmc_shapley(game, key=KEY, stop=MaxSamples(70), **options)


@pytest.mark.left_out
def test_permutations_resume_within_a_round(tmp_path, clock):
    whole = leaning()
    expected = tmc(whole)
    assert whole.calls > 10
    calls = []
    for fails_at in (6, 5, None):
        game = leaning(fails_at=fails_at)
        if fails_at is not None:
            with pytest.raises(InterruptedError):
                tmc(game, checkpoint=tmp_path)
        else:
            identical(tmc(game, checkpoint=tmp_path), expected)
        calls.append(game.calls)
    # Saved after the third call each time: two calls are made again, and the ends.
    assert sum(calls) <= whole.calls + 2 * 3


def test_permutations_of_another_batch_size_begin_again(tmp_path, clock):
    make = lambda **options: Game(N, table=saturating(N).table, **options)
    expected = tmc(make(), batch_size=None)
    with pytest.raises(InterruptedError):
        tmc(make(fails_at=6), checkpoint=tmp_path)
    identical(tmc(make(), batch_size=None, checkpoint=tmp_path), expected)


@pytest.mark.parametrize(
    ("estimate", "count"),
    [
        (tmc_shapley, 64),
        pytest.param(beta_shapley, 64, marks=pytest.mark.slow),
        pytest.param(banzhaf, 1024, marks=pytest.mark.slow),
        pytest.param(group_testing_shapley, 1024, marks=pytest.mark.slow),
    ],
)
def test_saved_every_thirty_seconds(estimate, count, tmp_path, clock, saves):
    options = {"key": KEY, "stop": MaxSamples(count), "checkpoint": tmp_path}
    began = clock[0]
    estimate(Game(9), batch_size=64, **options)
    assert len(saves) > 1  # one round, within which it is saved
    gaps = np.diff([began, *saves, clock[0]])
    assert gaps.max() <= 30 + 2 * 10  # a batch; at first the ends, and the centre


@pytest.mark.left_out
def test_when_it_is_saved_changes_nothing(tmp_path, clock, monkeypatch):
    expected = tmc(leaning())
    for every in (0.0, 20.0):
        monkeypatch.setattr(_run, "SAVE_EVERY", every)
        identical(tmc(leaning(), checkpoint=tmp_path / str(every)), expected)


def test_time_ends_a_run_within_a_round(clock):
    game = Game(5)
    found = banzhaf(game, key=KEY, stop=MaxTime(45), batch_size=64)
    # The ends come before the clock starts.
    assert int(found.count) == 5 * 64
    identical(found, banzhaf(Game(5), key=KEY, stop=MaxSamples(320), batch_size=64))


def test_time_is_over_before_a_permutation_is_complete(tmp_path, clock):
    options = {"batch_size": 64, "key": KEY, "checkpoint": tmp_path}
    with pytest.warns(UserWarning, match="out of time before its first samples"):
        found = tmc_shapley(leaning(), stop=MaxTime(25), **options)
    assert int(found.count) == 0
    assert np.isnan(found.values).all()
    assert np.isnan(found.stderr).all()
    # What it did is kept: the rest takes as many calls fewer.
    game, whole = leaning(), leaning()
    done = tmc_shapley(game, stop=MaxSamples(64), **options)
    expected = tmc_shapley(
        whole, stop=MaxSamples(64), **(options | {"checkpoint": None})
    )
    identical(done, expected)
    assert game.calls == whole.calls - 3


@pytest.mark.parametrize(
    ("rule", "overdue"),
    [
        (MaxTime(10), True),
        (MaxTime(11), False),
        (MaxSamples(1), False),
        (MaxTime(10) | StandardError(1), True),
        (MaxTime(10) & StandardError(1), False),
        (MaxTime(10) & MaxTime(5), True),
        (MaxTime(10) & MaxTime(15), False),
    ],
    ids=repr,
)
def test_rules_about_time(rule, overdue):
    assert rule.overdue(10.0) is overdue


class Asked(StoppingRule):
    """Remembers at how many samples it was asked, and stops at so many."""

    limit = 1024

    def __init__(self, most):
        object.__setattr__(self, "at", [])
        object.__setattr__(self, "most", most)

    def done(self, info):
        self.at.append(info.samples)
        return info.samples >= self.most


@pytest.mark.parametrize("first", [MaxSamples(100), MaxTime(65)])
@pytest.mark.left_out
def test_rounds_are_aligned_after_a_short_one(first, tmp_path, clock):
    options = {"key": KEY, "tolerance": 0, "batch_size": 16}
    expected = tmc_shapley(Game(2), stop=MaxSamples(256), **options)
    options["checkpoint"] = tmp_path
    short = tmc_shapley(Game(2), stop=first, **options)
    assert int(short.count) % 64
    rule = Asked(256)
    found = tmc_shapley(Game(2), stop=rule, **options)
    assert rule.at == list(range(64, 257, 64))[int(short.count) // 64 :]
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-6)


def test_agreement_of_rounds_after_a_short_one(tmp_path):
    stop = RankStability(0.95, rounds=4) | MaxSamples(2048)
    expected = tmc_shapley(Game(5), key=KEY, stop=stop)
    options = {"key": KEY, "checkpoint": tmp_path}
    tmc_shapley(Game(5), stop=MaxSamples(100), **options)
    found = tmc_shapley(Game(5), stop=stop, **options)
    assert int(found.count) == int(expected.count)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5)


def test_the_bar_moves_within_a_round(capfd, monkeypatch, clock):
    shown = []

    class Bar(tqdm):
        def update(self, n=1):
            super().update(n)
            shown.append(self.n)

    monkeypatch.setattr(_run, "bar_class", lambda: Bar)
    tmc(leaning(), progress=True)
    assert "70/70" in capfd.readouterr().err
    first = [n for n in shown if n < 64]
    assert len(first) > 3
    assert shown == sorted(shown)
    assert shown[-1] == 70


_KILLED = """
import os, signal, sys
import jax, numpy as np
from jaxsel import value
from jaxsel.value import _run

_run.SAVE_EVERY = 0.0
rng = np.random.default_rng(0)
x = rng.normal(size=(30, 4))
y = np.arange(30) % 3
make = lambda: value.ModelUtility(
    value.LogisticRegression(), x[:16], y[:16], x[16:], y[16:], metric="likelihood"
)
folder, out, dies_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
utility, calls = make(), 0
evaluate = utility.evaluate

def counted(*args):
    global calls
    calls += 1
    if calls == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate(*args)

utility.evaluate = counted
found = value.tmc_shapley(
    utility, key=jax.random.key(0), stop=value.MaxSamples(8), tolerance=0,
    batch_size=16, checkpoint=folder or None,
)
found.save(out)
print(calls)
"""


@pytest.mark.slow
def test_killed_within_a_round(tmp_path):
    def start(folder, dies_at):
        return subprocess.run(
            [sys.executable, "-c", _KILLED, folder, f"{tmp_path}/out", str(dies_at)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=os.environ,
        )

    whole = start("", 0)
    assert whole.returncode == 0, whole.stderr
    expected = Values.load(tmp_path / "out.npz")
    folder = str(tmp_path / "run")
    killed = start(folder, 6)
    assert killed.returncode == -signal.SIGKILL
    rest = start(folder, 0)
    assert rest.returncode == 0, rest.stderr
    identical(Values.load(tmp_path / "out.npz"), expected)
    assert int(rest.stdout) == int(whole.stdout) - 4  # all but the ends


def utility_of(y, metric="accuracy", seed=0, learner=None):
    x = np.random.default_rng(seed).normal(size=(12, 2))
    learner = value.NearestCentroid() if learner is None else learner
    return value.ModelUtility(learner, x, y, x[:4], y[:4], metric=metric)


LABELS = np.arange(12) % 2


@pytest.mark.parametrize("estimate", [tmc_shapley, banzhaf])
@pytest.mark.left_out
def test_checkpoints_of_other_data_are_refused(estimate, tmp_path):
    options = {"key": KEY, "stop": MaxSamples(4), "checkpoint": tmp_path}
    first = estimate(utility_of(LABELS), **options)
    identical(estimate(utility_of(LABELS), **options), first)
    # Two labels change places: the repr is the same, and the ends may be.
    flipped = LABELS.copy()
    flipped[[8, 9]] = flipped[[9, 8]]
    with pytest.raises(ValueError, match=r"another run, with y=\w+, not y=\w+: choose"):
        estimate(utility_of(flipped), **options)
    with pytest.raises(ValueError, match=r"with x=\w+, not x=\w+; x_val="):
        estimate(utility_of(LABELS, seed=1), **options)
    with pytest.raises(ValueError, match="metric='accuracy', not metric='f1_macro'"):
        estimate(utility_of(LABELS, "f1_macro"), **options)


def test_checkpoints_of_other_functions_are_refused(tmp_path):
    def make(scale):
        return value.as_utility(lambda masks, key: scale * np.asarray(masks).any(1), 3)

    options = {"key": KEY, "stop": MaxSamples(4), "checkpoint": tmp_path}
    banzhaf(make(1.0), **options)
    banzhaf(make(1.0), **options)
    with pytest.raises(ValueError, match="utility's digest"):
        banzhaf(make(1.00001), **options)


def test_checkpoints_of_earlier_versions_are_refused(tmp_path):
    from jaxsel._runs.checkpoints import Checkpoints

    state = {"mean": np.zeros(3), "run_about": np.frombuffer(b"tmc of a", np.uint8)}
    Checkpoints(tmp_path, "jaxsel.value").save(1, state)
    with pytest.raises(ValueError, match="earlier version: choose another folder"):
        tmc_shapley(Game(3), key=KEY, checkpoint=tmp_path)
