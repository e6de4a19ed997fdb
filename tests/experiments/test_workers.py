"""Experiments on other processes equal those on threads, whatever is lost."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spread_jobs
from in_processes import run_script
from waits import until

from experiments._kit import seeds, store
from experiments._kit.seeds import Work, Workers, each_seed

ROOT = Path(__file__).parents[2]
SEEDS = (0, 1, 2)


def spread(tmp_path, workers, deadly="never", make=spread_jobs.make, numbers=SEEDS):
    notes, kept = tmp_path / "notes", tmp_path / "kept"
    notes.mkdir(exist_ok=True)
    (notes / "parent").write_text(str(os.getpid()))
    return each_seed(
        Work(make, (str(notes), deadly)),
        numbers,
        lambda name, seed: (kept / f"{name}-{seed}.npz", {"seed": seed}),
        label="Experiments",
        progress=False,
        workers=workers,
    )


def begun(tmp_path, name="*"):
    return len([*(tmp_path / "notes").glob(f"{name}-*")])


def identical(found, expected):
    for name, runs in expected.items():
        assert len(found[name]) == len(runs)
        for one, two in zip(found[name], runs, strict=True):
            for key in {*two} - {"process"}:
                np.testing.assert_array_equal(one[key], two[key])


def processes(found):
    return {int(run["process"]) for runs in found.values() for run in runs}


def test_threads_run_here(tmp_path):
    found = spread(tmp_path, None)
    assert processes(found) == {os.getpid()}
    assert [run["y"][0] for run in found["dies"]] == [0, 1, 2]
    spread(tmp_path, Workers("threads", 1))
    assert begun(tmp_path) == 6  # what was there is read
    spread(tmp_path, None, numbers=(0, 3))
    assert begun(tmp_path) == 8


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, ["a0", "a1", "b0", "b1", "c0", "c1"]),
        (2, ["a0", "b0", "a1", "b1", "c0", "c1"]),
        (9, ["a0", "b0", "c0", "a1", "b1", "c1"]),
    ],
)
def test_seeds_follow_each_other(number, expected):
    found = seeds._in_turn(["a", "b", "c"], [0, 1], number)
    assert [f"{name}{seed}" for name, seed in found] == expected


@pytest.mark.left_out
def test_too_many_programs_are_forgotten(tmp_path, monkeypatch):
    # Linux ends a process that maps memory more often than 65,530 times.
    if seeds._mappings() == 0:
        pytest.skip("nobody tells here how many mappings there are")
    double = jax.jit(lambda x: 2 * x)

    def programs(limit):
        monkeypatch.setattr(seeds, "_MAPPINGS", limit)
        double(jnp.ones(3))
        spread(tmp_path / str(limit), None)
        return double._cache_size()

    (tmp_path / "0").mkdir()
    (tmp_path / "1000000").mkdir()
    assert programs(1_000_000) == 1
    assert programs(0) == 0


@pytest.mark.parametrize("number", [0, -1])
def test_refuses(number):
    with pytest.raises(ValueError, match=f"workers must be at least 1, got {number}"):
        Workers("processes", number)
    with pytest.raises(ValueError, match="one of threads, processes, ray, got 'slurm'"):
        Workers("slurm")


@pytest.mark.slow
@pytest.mark.multihost
def test_a_lost_process_loses_one_seed(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    expected = spread(tmp_path / "a", None)
    found = spread(tmp_path / "b", Workers("processes", 2), "once")
    identical(found, expected)
    assert os.getpid() not in processes(found)
    assert begun(tmp_path / "b", "dies-1") == 2
    assert begun(tmp_path / "b") == 6 + 1
    # Whatever computed them, they are read.
    spread(tmp_path / "b", None)
    assert begun(tmp_path / "b") == 7


@pytest.mark.slow
@pytest.mark.multihost
def test_a_seed_that_is_lost_each_time_ends_the_run_but_keeps_the_others(tmp_path):
    message = "the worker of dies, seed 1, 4 times"
    with pytest.raises(RuntimeError, match=message):
        spread(tmp_path, Workers("processes", 1), "always")
    assert begun(tmp_path, "dies-1") == 4
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"random-0.npz", "dies-0.npz", "random-1.npz"} <= kept
    assert "dies-1.npz" not in kept


@pytest.mark.slow
@pytest.mark.multihost
def test_errors_are_those_of_the_experiment(tmp_path):
    with pytest.raises(InterruptedError, match="told to, in seed 1"):
        spread(tmp_path, Workers("processes", 1), make=spread_jobs.fails)


def test_workers_of_other_sources_are_refused():
    work = Work(spread_jobs.make, ("", ""))
    with pytest.raises(RuntimeError, match="versions and sources of the caller, {'a"):
        seeds._run(work, "random", 0, {}, {"a": 1})


def alive(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


_KILLED = """
import pathlib, sys
from test_workers import Workers, spread

if __name__ == "__main__":
    spread(pathlib.Path(sys.argv[1]), Workers("processes", 2), numbers=range(40))
"""


@pytest.mark.slow
@pytest.mark.multihost
def test_a_killed_caller_goes_on_from_what_is_kept(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(_KILLED)
    paths = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]
    caller = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    kept = tmp_path / "kept"

    def both_at_work():
        paths = [*kept.glob("[!.]*.npz")]
        workers = {int(np.load(path)["process"]) for path in paths}
        return workers if len(workers) == 2 and len(paths) >= 10 else None

    workers = until(both_at_work, "both work", alive=lambda: caller.poll() is None)
    caller.kill()
    caller.wait()
    until(lambda: not any(map(alive, workers)), "the workers end")
    there = len([*kept.glob("[!.]*.npz")])
    before = begun(tmp_path)
    assert there < 80
    found = spread(tmp_path, None, numbers=range(40))
    # Only what was under way is computed again: a seed for each worker at most.
    assert begun(tmp_path) - before == 80 - there
    assert begun(tmp_path) <= 80 + 2 + 2
    (tmp_path / "again").mkdir()
    identical(found, spread(tmp_path / "again", None, numbers=range(40)))


_ON_RAY = """
import pathlib, sys

import ray
from test_workers import Workers, begun, identical, spread

folder = pathlib.Path(sys.argv[1])
for name in "ab":
    (folder / name).mkdir()
ray.init(num_cpus=2, include_dashboard=False)
expected = spread(folder / "a", None)
identical(spread(folder / "b", Workers("ray"), "once"), expected)
assert begun(folder / "b", "dies-1") == 2, begun(folder / "b", "dies-1")
assert begun(folder / "b") == 7
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.multihost
def test_ray(tmp_path):
    pytest.importorskip("ray", reason="comes with the ray extra")
    run_script(_ON_RAY, tmp_path, Path(__file__).parent)


def test_sources_are_told_apart(tmp_path):
    (tmp_path / "report").mkdir()
    names = ("a.py", "b.py", "chapter.py", "tables.py", "report/c.py", "notes.txt")
    for name in names:
        (tmp_path / name).write_text("x = 1\n")
    digests = [store.source_digest(tmp_path)]
    for name in names:
        (tmp_path / name).write_text("x = 2\n")
        digests.append(store.source_digest(tmp_path))
    assert [a != b for a, b in zip(digests, digests[1:], strict=False)] == [
        True,
        True,
        *[False] * 4,
    ]


def test_results_of_other_sources_are_replaced(tmp_path, monkeypatch):
    calls = []
    run = lambda: calls.append(0) or {"x": np.arange(3)}
    path = tmp_path / "a.npz"
    store.remembered(path, {}, run)
    store.remembered(path, {}, run)
    assert len(calls) == 1
    monkeypatch.setattr(store, "versions_here", lambda: {"sources": "other"})
    store.remembered(path, {}, run)
    assert len(calls) == 2
