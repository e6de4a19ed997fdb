"""What `logging.getLogger("jaxsel")` says, and that it is silent until asked."""

import logging
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Future

import jax
import numpy as np
import pytest

import jaxsel
from jaxsel import _native, labels, value
from jaxsel._runs.executor import Ahead

GAME = value.as_utility(lambda masks, key: np.asarray(masks).mean(1), 6)
KEY = jax.random.key(0)


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.DEBUG, logger="jaxsel")
    return caplog


@pytest.mark.left_out
def test_nothing_is_shown_unless_a_program_asks():
    script = (
        "import logging, jaxsel; "
        "logging.getLogger('jaxsel.value').error('unseen'); "
        "print(logging.root.handlers)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_method_that_was_chosen(said):
    value.estimate_semivalue(GAME, 64, key=KEY)
    value.estimate_semivalue(GAME, 20, key=KEY)
    lines = [record.getMessage() for record in said.records]
    assert lines[0].startswith("exact estimates shapley values of 6 players")
    assert lines[1].startswith("plain estimates")
    assert lines[2].startswith("tmc_shapley(")
    assert "4 samples" in lines[2]


def test_what_was_saved_and_read(said, tmp_path):
    for samples, levels in ((64, ["DEBUG", "INFO"]), (128, ["INFO", "DEBUG", "INFO"])):
        said.clear()
        jaxsel.banzhaf(
            GAME, key=KEY, stop=value.MaxSamples(samples), checkpoint=tmp_path
        )
        assert [record.levelname for record in said.records] == levels
    assert f"checkpoint {tmp_path}: going on from step 1" in said.messages


@pytest.mark.left_out
def test_how_labels_were_predicted(said, monkeypatch):
    x = np.random.default_rng(0).normal(size=(60, 3))
    found = jaxsel.find_label_errors(x, x[:, 0] > 0)
    (line,) = said.messages
    assert line.removeprefix("probabilities of 60 labels by ") in found.method

    said.clear()
    monkeypatch.setattr(labels._neighbours, "_SEARCH", 0.0)
    jaxsel.find_label_errors(x, x[:, 0] > 0)
    assert said.messages[0] == "too many samples to look for neighbours and duplicates"


def test_that_nothing_is_compiled(said, monkeypatch, tmp_path):
    look = _native.available.__wrapped__  # without its cache
    monkeypatch.setattr(_native, "LIBRARY", tmp_path / "none")
    monkeypatch.delenv("JAXSEL_NATIVE", raising=False)
    assert not look()
    monkeypatch.setenv("JAXSEL_NATIVE", "0")
    assert not look()
    first, second = said.messages
    assert "nothing was compiled" in first
    assert "JAXSEL_NATIVE=0" in second


class Losing:
    """An executor that loses one of the workers that it starts."""

    _max_workers = 1

    def __init__(self, which):
        self.which, self.started = which, 0

    def submit(self, function, *arguments):
        future = Future()
        if self.started == self.which:
            future.set_exception(BrokenExecutor())
        else:
            future.set_result(function(*arguments))
        self.started += 1
        return future


@pytest.mark.parametrize("which", [0, 1], ids=["waited for", "ahead"])
def test_that_a_worker_was_lost(said, which):
    name = "item {}".format
    each = Ahead(Losing(which), lambda _, i: 10 * i, None, iter(range(3)), name=name)
    assert [*each] == [(0, 0), (1, 10), (2, 20)]
    (record,) = said.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == f"a worker was lost: computing item {which} again"
