"""Bars, and what they say while the first step compiles."""

import sys
import threading
import time
import types
from importlib.machinery import ModuleSpec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tqdm
from jax._src import monitoring

from jaxsel import gradients, match, value
from jaxsel._runs import progress
from jaxsel._runs.progress import first_step, track

TEXT = "compiling ..."


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "_AFTER", 0.05)
    monkeypatch.setattr(progress, "_LOOK", 0.005)


class Bar:
    """What a bar was told to show."""

    def __init__(self):
        self.texts = []

    def set_postfix_str(self, text, refresh=True):
        self.texts.append(text)


def compiling(scale):
    """Compile programs, one after the other, for long enough that a bar says so."""
    ends = time.monotonic() + 0.15
    while time.monotonic() < ends:

        @jax.jit
        def slow(x, scale=scale):
            for i in range(150):
                x = jnp.sort(jnp.sin(x) + scale * i)
            return x

        slow(np.arange(7.0)).block_until_ready()
        scale += 1e-3  # another program


def listeners():
    return [*monitoring.get_event_duration_listeners()]


@pytest.mark.parametrize("widgets", [True, False])
def test_bars_are_widgets_where_these_are_installed(widgets, monkeypatch):
    package = types.ModuleType("ipywidgets")
    package.__spec__ = ModuleSpec("ipywidgets", None)
    monkeypatch.setitem(sys.modules, "ipywidgets", package if widgets else None)
    auto = types.ModuleType("tqdm.auto")  # which warns where they are missing
    auto.tqdm = type("Widget", (), {})
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    assert progress.bar_class() is (auto.tqdm if widgets else tqdm.tqdm)


@pytest.mark.left_out
def test_compiling_is_said_until_the_first_step_is_done(at_once):
    bar, before = Bar(), listeners()
    with first_step(bar) as done:
        compiling(1.0)
        assert bar.texts == [TEXT]
        done()
        assert bar.texts == [TEXT, ""]
        assert listeners() == before
        compiling(2.0)  # of a later step
        done()
        time.sleep(0.05)
    assert bar.texts == [TEXT, ""]


@pytest.mark.left_out
def test_what_another_thread_compiles_counts(at_once):
    bar = Bar()
    with first_step(bar):
        worker = threading.Thread(target=compiling, args=(3.0,))
        worker.start()
        worker.join()
    assert bar.texts == [TEXT, ""]


def test_many_small_programs_count_together(at_once):
    bar = Bar()
    with first_step(bar) as done:
        for _ in range(6):
            jax.monitoring.record_event_duration_secs(progress._COMPILED, 0.01)
        time.sleep(0.1)
        done()
    assert bar.texts == [TEXT, ""]


def test_slow_steps_do_not_compile(at_once):
    bar = Bar()
    with first_step(bar):
        jax.monitoring.record_event_duration_secs("/jax/other", 9.0)
        jax.monitoring.record_event_duration_secs(progress._LOWERED, 9.0)
        jax.monitoring.record_event_duration_secs(progress._COMPILED, 0.01)
        time.sleep(0.2)
    assert bar.texts == [""]


def test_a_bar_that_is_left_stops_to_listen(capfd):
    before = listeners()
    threads = threading.active_count()
    each = track(range(3), progress=True, label="Left")
    next(each)
    assert len(listeners()) == len(before) + 1
    each.close()
    assert listeners() == before
    assert threading.active_count() <= threads + 1  # that of tqdm stays
    each = track(range(3), progress=True, label="Left")
    next(each)
    with pytest.raises(InterruptedError):
        each.throw(InterruptedError)
    assert listeners() == before


def test_no_bar_listens_to_nothing():
    before = listeners()
    for _ in track(range(2), progress=False, label="Silent"):
        assert listeners() == before


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.left_out
def test_track_says_so(at_once, capfd, inside):
    """Whether the item compiles, or what is done with it."""

    def items():
        for i in range(2):
            if not inside:
                compiling(10.0 + i)
            yield i

    found = []
    for i in track(items(), progress=True, label="Steps", total=2):
        if inside:
            compiling(20.0 + i)
        found.append(i)
        shown = capfd.readouterr().err
        assert (TEXT in shown) == (i == 0)
    assert found == [0, 1]


@pytest.mark.left_out
def test_values_say_so(at_once, capfd):
    """While they compute the utility of no points and of all, too, before the first."""
    seen = []

    def utility(masks, key):
        if not seen:
            compiling(30.0)
        seen.append(capfd.readouterr().err)
        return np.asarray(masks).mean(1)

    game = value.as_utility(utility, 5)
    options = {"key": jax.random.key(0), "stop": value.MaxSamples(192)}
    quiet = value.banzhaf(game, batch_size=64, **options)
    seen.clear()
    loud = value.banzhaf(game, batch_size=64, progress=True, **options)
    assert TEXT in seen[0]
    assert not any(TEXT in shown for shown in seen[2:])
    np.testing.assert_array_equal(loud.values, quiet.values)


@pytest.mark.left_out
def test_matching_says_so(at_once, capfd):
    """While it reads what it compares with, too, before the first choice."""
    rows = np.eye(12, dtype=np.float32)
    seen = []

    def load(i):
        if len(i) > 1:  # not to see what they are like
            if not seen:
                compiling(40.0)
            seen.append(capfd.readouterr().err)
        return gradients.dense(rows[i])

    stream = gradients.streamed(load, 12, chunk_size=4)
    quiet = match.omp(stream, rows.sum(0), 4)
    seen.clear()
    before = listeners()
    found = match.omp(stream, rows.sum(0), 4, progress=True)
    assert TEXT in seen[0]
    assert TEXT not in seen[-1]
    assert listeners() == before
    np.testing.assert_array_equal(found.indices, quiet.indices)
