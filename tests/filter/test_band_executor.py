"""Bands whose replicates an executor computes equal those of one process."""

import multiprocessing
import os
import pickle
import signal
from concurrent.futures import (
    BrokenExecutor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxsel._runs import executor as executors
from jaxsel.filter import _source, loss_threshold

KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
V = RNG.gamma(1, 0.5, 60).astype(np.float32)
P = np.round(RNG.gamma(1, 1, 5000), 2).astype(np.float32)  # many of them tied


class Inline:
    """An executor without workers, which pickles what it is sent."""

    def __init__(self, workers=3, lose=()):
        self._max_workers, self.lose, self.calls = workers, {*lose}, []

    def submit(self, fn, /, *args):
        self.calls.append(args[-1])
        future = Future()
        try:
            if len(self.calls) in self.lose:
                raise BrokenExecutor("a worker died")
            future.set_result(fn(*pickle.loads(pickle.dumps(args))))
        except Exception as error:
            future.set_exception(error)
        return future


def thirds():
    return (P[i::3] for i in range(3))


def weighted():
    return ((P[i::2], np.arange(len(P[i::2])) % 4) for i in range(2))


LOSSES = {"few": P[:500], "more": P, "a function": thirds, "pairs": weighted}


def identical(a, b):
    np.testing.assert_array_equal(a.values, b.values)
    np.testing.assert_array_equal(a.shares, b.shares)
    assert (a.low, a.high, a.level) == (b.low, b.high, b.level)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("replicates", [1, 2, 17])
def test_ranges_equal_one(name, replicates, monkeypatch):
    monkeypatch.setattr(executors, "_known", {})
    expected = loss_threshold(V, LOSSES[name]).band(KEY, replicates)
    executor = Inline()
    found = loss_threshold(V, LOSSES[name]).band(KEY, replicates, executor=executor)
    identical(found, expected)
    assert [i for numbers in executor.calls for i in numbers] == [*range(replicates)]
    assert len(executor.calls) == min(replicates, 6)


@pytest.mark.parametrize("name", ["a function", "more"])
def test_threads_share_no_memory_of_the_losses(name):
    """Each narrows down other intervals of the losses, and keeps what it collects."""
    expected = loss_threshold(V, LOSSES[name]).band(KEY, 60)
    found = loss_threshold(V, LOSSES[name])
    with ThreadPoolExecutor(8) as pool:
        identical(found.band(KEY, 60, executor=pool), expected)


@pytest.mark.parametrize("gathered", [0, 1 << 22])
def test_threads_leave_the_memory_of_the_losses_alone(gathered, monkeypatch):
    monkeypatch.setattr(_source, "GATHERED", gathered)
    found = loss_threshold(V, thirds)
    edges, cells = found.source._edges, {**found.source._cells}
    with ThreadPoolExecutor(1) as pool:
        found.band(KEY, 9, executor=pool)
    assert found.source._edges is edges
    assert found.source._cells == cells
    found.band(KEY, 9)  # which remembers what it asked
    assert found.source._edges is not edges or found.source._cells != cells


def test_draws_in_float64_are_those_of_the_caller():
    v, p = V.astype(np.float64) + 1e-12, P.astype(np.float64)
    with jax.enable_x64(True):
        expected = loss_threshold(v, p).band(KEY, 9)
        with ThreadPoolExecutor(2) as pool:
            identical(loss_threshold(v, p).band(KEY, 9, executor=pool), expected)


def test_a_lost_range_is_made_again():
    executor = Inline(lose={1, 3})
    identical(
        loss_threshold(V, P).band(KEY, 17, executor=executor),
        loss_threshold(V, P).band(KEY, 17),
    )
    assert len(executor.calls) == 6 + 2


def test_a_range_that_is_lost_each_time_ends_it():
    executor = Inline(lose=range(2, 99))
    with pytest.raises(RuntimeError, match="worker of replicates 3 to 5 4 times"):
        loss_threshold(V, P).band(KEY, 17, executor=executor)


def test_refuses():
    found = loss_threshold(V, lambda: iter([P]))
    with pytest.raises(TypeError, match="executor must have submit.*got 3"):
        found.band(KEY, executor=3)

    class Unpickled(Inline):
        def submit(self, fn, /, *args):
            pickle.dumps(args)

    if not pytest.importorskip("importlib.util").find_spec("cloudpickle"):
        with pytest.raises(TypeError, match="read must be picklable to be sent"):
            found.band(KEY, executor=Unpickled())


class Deadly:
    """Losses that end the first other process that reads them."""

    def __init__(self, folder):
        self.folder, self.parent = folder, os.getpid()

    def __call__(self):
        if os.getpid() != self.parent:
            try:
                (Path(self.folder) / "died").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return thirds()


@pytest.mark.slow
@pytest.mark.multihost
def test_a_killed_process_loses_its_range_only(tmp_path, monkeypatch):
    monkeypatch.setattr(_source, "GATHERED", 0)  # each question takes a pass
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        found = loss_threshold(V, Deadly(tmp_path)).band(KEY, 9, executor=pool)
    assert (tmp_path / "died").exists()
    identical(found, loss_threshold(V, thirds).band(KEY, 9))


def test_after_an_error_nothing_more_is_computed():
    class Pending(Inline):
        """An executor whose first range fails while all others wait."""

        def submit(self, fn, /, *args):
            self.calls.append(Future())
            if len(self.calls) == 1:
                self.calls[0].set_exception(ZeroDivisionError("of a worker"))
            return self.calls[-1]

    executor = Pending()
    with pytest.raises(ZeroDivisionError, match="of a worker"):
        loss_threshold(V, P).band(KEY, 17, executor=executor)
    assert len(executor.calls) > 1
    assert all(future.cancelled() for future in executor.calls[1:])
