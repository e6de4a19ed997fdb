"""Whole sessions on SPU: processes on loopback, over TLS, killed and resumed."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import ROLES, Session, running
from proxy.random_proxies import random_proxy
from sessions import config_of, in_the_clear
from waits import PATIENCE, until

from jaxsel.proxy import Spec, cost, manifest, save_proxy
from mpc_bridge import Result, run_local

pytestmark = [pytest.mark.mpc, pytest.mark.multihost, pytest.mark.slow]


@pytest.mark.parametrize("leak", ["rank", "set"])
@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3", "spu-aby3-128"])
def test_a_run_chooses_what_clear_scores_choose(files, local, engine, leak):
    name = f"{engine}-{leak}"
    result = run_local(config_of(files, name, engine=engine, leak=leak), notice=False)
    rows, _ = in_the_clear(files)
    assert list(result.rows) == rows.tolist()
    assert result.appraisal == pytest.approx(local[0].appraisal, abs=2e-3)
    bits = {"spu-cheetah": 18, "spu-aby3": 22, "spu-aby3-128": 40}
    assert result.fraction_bits == bits[engine]
    other = Result.read(files / name / "data")
    assert (other.rows, other.openings) == (result.rows, result.openings)
    if engine == "spu-cheetah":  # what one sends the other receives
        assert result.total().sent + other.total().sent == result.total().bytes
        assert result.total().bytes == other.total().bytes
    kinds = {opening.kind for opening in result.openings}
    opened = {"pivot"} if leak == "rank" else {"rows"}
    if (engine, leak) == ("spu-cheetah", "set"):
        opened.add("shuffled")
    # The second phase has layers, of which samples out of bounds are counted.
    assert kinds == {*opened, "outside", "mean"}
    for party in ("model", "data"):
        left = sorted(path.name for path in (files / name / party).iterdir())
        assert left == ["openings.jsonl", "result.json"]


def test_batches_at_once_are_counted_once(tmp_path):
    sizes = {"length": 32, "hidden": 48, "head_width": 24, "n_classes": 2, "heads": 2}
    spec = Spec(1, 2, attention="quadratic", norm="polynomial")
    each = manifest(spec, layers=1, masked=False, **sizes)
    made, x, _ = random_proxy(each, n=48, bound=8.0)
    save_proxy(made, tmp_path / "probe0")
    np.save(tmp_path / "x0.npy", x)
    config = config_of(tmp_path, "run", engine="spu-aby3", samples=len(x))
    config = dataclasses.replace(
        config,
        session=dataclasses.replace(config.session, exclude=()),
        phases=(dataclasses.replace(config.phases[0], keep=9, batch_size=8),),
        model_owner=dataclasses.replace(
            config.model_owner, weights=config.model_owner.weights[:1]
        ),
        data_owner=dataclasses.replace(
            config.data_owner, inputs=config.data_owner.inputs[:1]
        ),
    )
    result = run_local(config, notice=False)
    sent = sum(step.sent for step in result.steps if step.place == "forward")
    counted = cost(made.manifest, len(x), engine="spu-aby3", batch_size=8, lanes=8)
    # Parties share what all send unequally; under load first messages are missed.
    assert 0.5 < sent / counted.all.sent[0] < 1.1


@pytest.mark.parametrize(("entries", "victim"), [(1, 1), (6, 0)])
def test_a_killed_party_goes_on(files, tmp_path, entries, victim):
    session = Session(files, tmp_path, "spu-cheetah")
    with running(session) as roles:
        until(
            lambda: session.entries(victim) >= entries,
            f"{entries} entries",
            alive=lambda: all(role.status is None for role in roles),
        )
        roles[victim].process.kill()
        other = roles[1 - victim]
        assert other.wait()[0] == 1
        assert other.last.startswith(
            f"{ROLES[1 - victim].replace('-', ' ')}: error: phase "
        )
        assert "is gone or was cut off" in other.last
    kept = [session.entries(rank) for rank in session.ranks]
    assert min(kept) >= entries - 1
    for rank in session.ranks:
        for path in (session.outputs[rank] / "unfinished").iterdir():
            assert path.stat().st_mode & 0o777 == 0o600
    with running(session) as roles:
        assert [role.wait()[0] for role in roles] == [0, 0]
        assert all("going on with what is in" in role.said for role in roles)
    rows, _ = in_the_clear(files)
    results = [Result.read(session.outputs[rank]) for rank in session.ranks]
    for result in results:
        assert list(result.rows) == rows.tolist()
    assert results[0].openings == results[1].openings


def test_another_pool_after_a_cut_is_refused_by_both(files, tmp_path):
    session = Session(files, tmp_path, "spu-cheetah")
    with running(session) as roles:
        until(
            lambda: session.entries(1) >= 6,
            "something is opened",
            alive=lambda: all(role.status is None for role in roles),
        )
        roles[1].process.kill()
        assert roles[0].wait()[0] == 1
    np.save(tmp_path / "other.npy", np.load(files / "x0.npy")[::-1])
    session.edit(1, str(files / "x0.npy"), str(tmp_path / "other.npy"))
    with running(session) as roles:
        assert [role.wait()[0] for role in roles] == [1, 1]
        assert "starting anew, because the run that was cut had anot" in roles[1].said
        assert "commits to other samples than before" in roles[0].last
        for role in roles:
            assert "limits.sessions must be at least 2 for another" in role.last


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_end_of_local_is_one_of_all_roles(files, tmp_path, number):
    config = config_of(files, tmp_path, engine="spu-aby3", samples=60)
    config.write(tmp_path / "run.toml")
    (tmp_path / "temporary").mkdir()
    local = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mpc_bridge",
            "local",
            "--config",
            tmp_path / "run.toml",
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "TMPDIR": str(tmp_path / "temporary"),
        },
    )

    def three():
        command = ["ps", "-o", "pid=", "--ppid", str(local.pid)]
        pids = subprocess.run(command, capture_output=True, text=True).stdout.split()
        return pids if len(pids) == 3 else None

    children = until(three, "three roles", alive=lambda: local.poll() is None)
    local.send_signal(number)
    _, errors = local.communicate(timeout=PATIENCE)
    if number == signal.SIGTERM:
        assert local.returncode == 128 + number
        assert "ended by SIGTERM, and all roles" in errors
    for child in children:  # an orphan may stay a zombie, which has no command line
        line = Path(f"/proc/{child}/cmdline")
        until(lambda line=line: not (line.exists() and line.read_bytes()), "its end")
    assert not list((tmp_path / "temporary").glob("jaxsel-*"))
