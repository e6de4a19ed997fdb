"""Runs whose batches are computed by an executor equal those of one process."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import (
    BrokenExecutor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from in_processes import run_script
from waits import PATIENCE

from jaxsel import value
from jaxsel._results.types import Values
from jaxsel._runs import executor as executors
from jaxsel.value import _run
from jaxsel.value._retrained import ESTIMATORS as REGISTRY

from .games import Game, saturating

KEY = jax.random.key(3)
ROOT = Path(__file__).parents[2]

X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
Y = np.arange(24) % 2
DATA = {"x": X[:12], "y": Y[:12], "x_val": X[12:], "y_val": Y[12:]}
LEARNER = value.LogisticRegression()
GIVEN = {"learner": LEARNER, **DATA, "learning_rate": 0.3, "trainings": 200}
# More than a round of each.
SAMPLES = {"banzhaf": 1500, "group_testing_shapley": 1500, "data_oob": 300}
SAMPLES |= {"g_shapley": 300}
ESTIMATORS = {n: e for n, e in REGISTRY.items() if "executor" in e.arguments}


class Inline:
    """An executor without workers: it speaks no more than it must."""

    def __init__(self, lose=()):
        self.calls, self.lose = [], {*lose}

    def submit(self, fn, /, *args):
        self.calls.append(args[-1])
        future = Future()
        if len(self.calls) in self.lose:
            future.set_exception(BrokenExecutor("a worker died"))
            return future
        try:
            future.set_result(fn(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def identical(a, b):
    for one, two in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(one, two)
    assert a.method == b.method


def tmc(game, **options):
    options = {"stop": value.MaxSamples(150), "batch_size": 16, **options}
    return value.tmc_shapley(game, key=KEY, tolerance=0.05, patience=2, **options)


def spawned(workers=2):
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.every(4)
def test_threads_equal_one(name):
    stop = value.MaxSamples(SAMPLES.get(name, 150))
    options = {**GIVEN, "key": KEY, "stop": stop, "batch_size": 48}
    expected = ESTIMATORS[name].bound(utility=saturating(9), **options)()
    with ThreadPoolExecutor(2) as pool:
        call = ESTIMATORS[name].bound(utility=saturating(9), **options)
        identical(call(executor=pool), expected)


def test_threads_have_the_settings_of_the_caller():
    seen = []

    def utility(masks, key):
        seen.append((threading.get_ident(), jax.config.jax_enable_x64))
        return np.asarray(masks).mean(1)

    with ThreadPoolExecutor(1) as pool, jax.enable_x64(True):
        game = value.as_utility(utility, 5)
        value.banzhaf(game, key=KEY, stop=value.MaxSamples(64), executor=pool)
    assert len({thread for thread, _ in seen}) == 2
    assert all(x64 for _, x64 in seen)


def test_workers_draw_as_the_caller_does():
    """Keys of the older kind give other permutations."""
    game = saturating(9)
    options = {"key": KEY, "stop": value.MaxSamples(64)}
    plain = value.banzhaf(game, **options)
    with jax.threefry_partitionable(False), ThreadPoolExecutor(1) as pool:
        here = value.banzhaf(game, **options)
        there = value.banzhaf(game, executor=pool, **options)
    np.testing.assert_array_equal(there.values, here.values)
    assert (np.asarray(here.values) != np.asarray(plain.values)).any()


def test_samples_ahead_are_bounded():
    executor = Inline()
    executor._max_workers = 2
    stop = value.StandardError(1e9, minimum=100)
    found = tmc(Game(9), executor=executor, stop=stop)
    identical(found, tmc(Game(9), stop=stop))
    # Two rounds of four batches, and as many ahead as two workers get.
    assert int(found.count) == 128
    assert len(executor.calls) == 8 + 3
    assert [batch.first for batch in executor.calls] == [16 * i for i in range(11)]


def test_none_is_computed_beyond_the_limit():
    executor = Inline()
    executor._max_workers = 50
    assert int(tmc(Game(9), executor=executor).count) == 150
    assert [batch.used for batch in executor.calls] == [16] * 9 + [6]


@pytest.mark.parametrize(
    "stop",
    [
        value.StandardError(0.01, minimum=64) | value.MaxSamples(640),
        value.RankStability(0.9, rounds=2) | value.MaxSamples(640),
    ],
    ids=repr,
)
def test_rules_stop_at_the_same_round(stop):
    expected = tmc(saturating(9), stop=stop)
    assert 64 < int(expected.count) < 640
    with ThreadPoolExecutor(2) as pool:
        identical(tmc(saturating(9), stop=stop, executor=pool), expected)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.every(4)
def test_resume_with_and_without(first, second, tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "SAVE_EVERY", 0.0)
    expected = tmc(saturating(9))
    interrupted = saturating(9)
    interrupted.fails_at = 40
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(InterruptedError):
            tmc(interrupted, checkpoint=tmp_path, executor=pool if first else None)
        game = saturating(9)
        found = tmc(game, checkpoint=tmp_path, executor=pool if second else None)
    identical(found, expected)
    whole = saturating(9)
    tmc(whole)
    assert game.calls < whole.calls - 10  # it went on from what was there


def test_the_bar_moves(capfd):
    with ThreadPoolExecutor(2) as pool:
        tmc(Game(9), executor=pool, progress=True)
    assert "150/150" in capfd.readouterr().err


def test_time_ends_a_run(monkeypatch):
    clock = itertools.count(0, 10)
    monkeypatch.setattr(_run, "_clock", lambda: float(next(clock)))
    stop = value.MaxTime(35)
    found = value.banzhaf(Game(5), key=KEY, stop=stop, batch_size=64, executor=Inline())
    count = int(found.count)
    assert 64 <= count < 1024
    stop = value.MaxSamples(count)
    identical(found, value.banzhaf(Game(5), key=KEY, stop=stop, batch_size=64))


def test_a_lost_batch_is_made_again():
    executor = Inline(lose={2, 3, 7})
    executor._max_workers = 2
    identical(tmc(Game(9), executor=executor), tmc(Game(9)))
    assert len(executor.calls) == 10 + 3
    # Those that are lost run again together, before any other.
    begun = [batch.first for batch in executor.calls[:7]]
    assert begun == [0, 16, 32, 48, 16, 32, 64]


def test_a_batch_that_is_lost_each_time_ends_the_run():
    executor = Inline(lose=range(2, 100))
    executor._max_workers = 1
    with pytest.raises(RuntimeError, match=r"of samples 16 to 31 4 times"):
        tmc(Game(9), executor=executor)


def test_errors_of_the_utility_are_as_they_are():
    game = Game(9, fails_at=3)
    with ThreadPoolExecutor(1) as pool, pytest.raises(InterruptedError, match="told"):
        tmc(game, executor=pool)


@pytest.mark.parametrize("bad", [3, ThreadPoolExecutor, object()])
def test_what_is_no_executor_is_refused(bad):
    with pytest.raises(TypeError, match="executor must have submit"):
        tmc(Game(5), executor=bad)


def test_meshes_and_forks_are_refused():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    with pytest.raises(ValueError, match="mesh must be None where an executor"):
        tmc(Game(5), executor=Inline(), mesh=mesh)
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
    with pool, pytest.raises(ValueError, match="must start processes by 'spawn'"):
        tmc(Game(5), executor=pool)


class Pickling(Inline):
    """Sends what it gets through a pickle, as to one other process."""

    def submit(self, fn, /, *args):
        import pickle

        try:
            copies = [pickle.loads(pickle.dumps(arg)) for arg in args]
        except TypeError as error:
            future = Future()
            future.set_exception(error)
            return future
        return super().submit(fn, *copies)


def test_what_cannot_be_pickled_is_named():
    game = Game(5)
    game.held = threading.Lock()
    utility = value.as_utility(game, 5)
    with pytest.raises(TypeError, match=r"^utility\.function\.held must be picklable"):
        tmc(utility, executor=Pickling())
    identical(tmc(utility, executor=Inline()), tmc(utility))


def test_a_run_is_pickled_and_opened_once(monkeypatch):
    monkeypatch.setattr(executors, "_known", {})
    opened = []

    class Noted(Game):
        def __getstate__(self):
            opened.append("pickled")
            return vars(self)

        def __setstate__(self, state):
            opened.append("opened")
            vars(self).update(state)

    monkeypatch.setitem(globals(), "Noted", Noted)
    Noted.__qualname__ = "Noted"
    executor = Pickling()
    identical(tmc(Noted(9), executor=executor), tmc(Game(9)))
    assert len(executor.calls) == 10
    assert opened == ["pickled", "opened"]


def test_a_worker_knows_few_runs(monkeypatch):
    known = {}
    monkeypatch.setattr(executors, "_known", known)
    for seed in range(4):
        tmc(Game(5, seed=seed), executor=Pickling())
    assert len(known) == 2


def failing():
    """A utility of a learner that fails on small coalitions."""
    sklearn = pytest.importorskip("sklearn.neighbors")
    learner = value.SklearnLearner(sklearn.KNeighborsClassifier(5))
    return value.ModelUtility(learner, X[:8], Y[:8], X[8:], Y[8:])


@pytest.mark.left_out
def test_failures_of_workers_are_counted_here(monkeypatch):
    monkeypatch.setattr(executors, "_known", {})
    options = {"key": KEY, "stop": value.MaxSamples(100), "batch_size": 40}
    here, there = failing(), failing()
    with pytest.warns(UserWarning, match="the learner failed on"):
        expected = value.banzhaf(here, **options)
    with pytest.warns(UserWarning, match="the learner failed on") as told:
        found = value.banzhaf(there, executor=Pickling(), **options)
    identical(found, expected)
    assert repr(there.failures) == repr(here.failures)
    assert there.failures.failed > 0
    assert len(told) == 2  # at the first one and at the end, as here


class Deadly(Game):
    """Ends its process at the first coalition of one size that it is asked for."""

    def __init__(self, n, folder, **options):
        super().__init__(n, **options)
        self.folder, self.parent = folder, os.getpid()

    def __call__(self, masks, key):
        flag = Path(self.folder) / "died"
        if os.getpid() != self.parent and (np.asarray(masks).sum(1) == 4).any():
            try:
                flag.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(masks, key)


class Hopeless(Deadly):
    """Ends every process but the first."""

    def __call__(self, masks, key):
        if os.getpid() != self.parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return Game.__call__(self, masks, key)


@pytest.mark.slow
@pytest.mark.multihost
def test_a_killed_process_loses_its_batch_only(tmp_path):
    expected = tmc(Game(9))
    with spawned() as pool:
        found = tmc(Deadly(9, tmp_path), executor=pool)
    assert (tmp_path / "died").exists()
    identical(found, expected)


@pytest.mark.slow
@pytest.mark.multihost
def test_processes_that_all_die_end_the_run(tmp_path):
    message = "lost the worker of samples 0 to 15 4 times"
    with spawned(1) as pool, pytest.raises(RuntimeError, match=message):
        tmc(Hopeless(9, tmp_path), executor=pool)


_COMPARED = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor

import jax, numpy as np
from jaxsel import value

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    learner, key = value.LogisticRegression(), jax.random.key(0)
    data = x[:30], y[:30], x[30:], y[30:]
    utility = value.ModelUtility(learner, *data, metric="likelihood")
    runs = {
        "tmc": lambda **o: value.tmc_shapley(
            utility, stop=value.MaxSamples(40), batch_size=16, **o
        ),
        "oob": lambda **o: value.data_oob(
            learner, x, y, stop=value.MaxSamples(100), batch_size=32, **o
        ),
    }
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for name, run in runs.items():
            run(key=key).save(f"{sys.argv[1]}/{name}-one.npz")
            run(key=key, executor=pool).save(f"{sys.argv[1]}/{name}-two.npz")
"""


@pytest.mark.slow
@pytest.mark.multihost
def test_two_processes_equal_one(tmp_path):
    """In a process of its own, whose workers compile with the same options."""
    run_script(_COMPARED, tmp_path)
    for name in ("tmc", "oob"):
        one, two = (Values.load(tmp_path / f"{name}-{n}.npz") for n in ("one", "two"))
        identical(one, two)
        assert np.ptp(one.values) > 0


_ON_RAY = """
import pathlib, sys

import pytest, ray
from jaxsel import value
from value.test_executor import Deadly, Game, identical, tmc

folder = pathlib.Path(sys.argv[1])
ray.init(num_cpus=2, include_dashboard=False)
executor = value.RayExecutor()
identical(tmc(Game(9), executor=executor), tmc(Game(9)))
identical(tmc(Deadly(9, folder), executor=executor), tmc(Game(9)))
assert (folder / "died").exists()
with pytest.raises(InterruptedError, match="told to"):
    tmc(Game(9, fails_at=4), executor=executor)
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.multihost
def test_ray(tmp_path):
    pytest.importorskip("ray", reason="comes with the ray extra")
    run_script(_ON_RAY, tmp_path)


@pytest.mark.left_out
def test_ray_is_asked_for_only():
    code = "import jaxsel.value, sys; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=PATIENCE)


def test_ray_makes_one_task_of_a_function(monkeypatch):
    made = []

    def remote(**options):
        return lambda fn: made.append(fn) or SimpleNamespace(remote=fn)

    ray = SimpleNamespace(
        is_initialized=lambda: True,
        cluster_resources=lambda: {"CPU": 2},
        remote=remote,
        get=lambda reference: reference,
        exceptions=SimpleNamespace(RayTaskError=RuntimeError),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    executor = value.RayExecutor()
    assert [executor.submit(abs, -i).result() for i in range(3)] == [0, 1, 2]
    assert executor.submit(str, 3).result() == "3"
    assert made == [abs, str]


def test_ray_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxsel\[ray\]'"):
        value.RayExecutor()
