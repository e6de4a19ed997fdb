"""The command line keeps compiled programs: each run is a process of its own."""

import json
import os
import subprocess
import sys

import pytest
from commands import write_samples
from waits import PATIENCE

_SCRIPT = """
import collections, json, sys
import jax
from jaxsel.cli import main

count = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: count.update([event]))
status = main(sys.argv[1:])
found = [count["/jax/compilation_cache/cache_" + name] for name in ("hits", "misses")]
print("\\n" + json.dumps([status, *found]))
"""
_VALUE = ["value", "train.npz", "val.npz", "--out", "o.npz", "--force"]


@pytest.fixture
def value(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_samples()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}

    def value(*options, **settings):
        """Return hits and misses of the cache, and what is written of errors."""
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, *options, *_VALUE],
            env={**kept, "JAXSEL_CACHE": "cache", "PYTHONPATH": _ROOT, **settings},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        status, *found = json.loads(done.stdout.splitlines()[-1])
        assert status == 0
        return (*found, done.stderr)

    return value


_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def test_a_second_run_compiles_nothing(value, tmp_path):
    hits, misses, errors = value()
    assert misses > 3
    assert not errors
    kept = sorted((tmp_path / "cache" / "programs").iterdir())
    assert len(kept) >= misses
    hits, misses, errors = value()
    assert hits > 3
    assert (misses, errors) == (0, "")
    assert sorted((tmp_path / "cache" / "programs").iterdir()) == kept


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.left_out
def test_no_cache_writes_and_reads_nothing(value, tmp_path, monkeypatch, before):
    if not before:
        monkeypatch.setattr(f"{__name__}._VALUE", [*_VALUE, "--no-cache"])
    found = value(
        *["--no-cache"] * before, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own")
    )
    assert found == (0, 0, "")
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "own").exists()


@pytest.mark.left_out
def test_the_users_own_folder_is_used(value, tmp_path):
    value(JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))
    assert len(list((tmp_path / "own").iterdir())) > 3
    assert not (tmp_path / "cache").exists()


@pytest.mark.left_out
def test_a_folder_that_cannot_be_written_is_said_once(value, tmp_path):
    (tmp_path / "file").write_text("in the way")
    *found, errors = value(JAXSEL_CACHE=str(tmp_path / "file"))
    assert found == [0, 0]
    assert errors.count("\n") == 1
    assert "warning: compiled programs are not kept: " in errors
    assert str(tmp_path / "file" / "programs") in errors
