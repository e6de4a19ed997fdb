"""Whole sessions: three processes on loopback, and what ends them."""

import io
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import sys
import time

import numpy as np
import pytest
from ports import free_ports
from sessions import EXCLUDED, WIDTHS, config_of, in_the_clear
from waits import PATIENCE

from mpc_bridge._config import (
    DataOwner,
    Inputs,
    ModelOwner,
    PhaseConfig,
)
from mpc_bridge._result import Result

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]


def test_a_run_chooses_what_clear_scores_choose(files, local):
    expected, _ = in_the_clear(files)
    for result in local:
        assert list(result.rows) == expected.tolist()
        assert not set(result.rows) & set(EXCLUDED)
    assert [party.role for party in local] == ["model-owner", "data-owner"]


def test_a_run_appraises_the_entropies(files, local):
    _, logits = in_the_clear(files)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    entropy = -(p * np.log(p)).sum(1).mean()
    for result in local:
        assert result.appraisal == pytest.approx(entropy, abs=0.005)


def test_a_run_counts_what_it_did(files, local):
    from jaxsel.proxy import Manifest, cost
    from mpc_bridge.engines import engine_of

    model, data = local
    samples = [(p.samples, p.kept, p.batch_size) for p in model.phases]
    assert samples[0] == (57, 25, 16)
    assert samples[1][:2] == (25, 7)
    assert model.phases == data.phases
    for i, phase in enumerate(model.phases):
        name = f"phase {i + 1}"
        text = (files / f"probe{i}" / "manifest.json").read_text()
        counted = cost(
            Manifest.from_json(text),
            phase.samples,
            batch_size=phase.batch_size,
            lanes=engine_of("crypten").lanes,
        )
        for party in local:
            choice = party.total(name, "choice")
            appraisal = party.total(name, "appraisal")
            assert choice.rounds == 9 * phase.passes
            assert choice.bytes == 448 * phase.comparisons
            every = party.total(name)
            rest = every.bytes - choice.bytes - appraisal.bytes
            assert rest == counted.bytes
            assert every.rounds - choice.rounds - appraisal.rounds == counted.rounds
    assert model.total().dealer_bytes > 0
    assert data.total().dealer_bytes == 0
    for party in local:
        kinds = {(o.phase, o.kind): (o.openings, o.values) for o in party.openings}
        assert kinds == {
            (f"phase {i + 1}", "pivot"): (phase.passes, phase.comparisons)
            for i, phase in enumerate(party.phases)
        } | {("phase 2", "mean"): (1, 1)}
        assert party.engine == "crypten"
        # Each sends half of what CrypTen's parties open to each other.
        assert 2 * party.total().sent == party.total().bytes
        assert party.seconds > party.total().seconds > 0
        assert party.terms["provider"] == "TTP"
        assert party.terms["use"] == "measurement only"
        assert set(party.versions) == {"jaxsel", "crypten", "torch"}


def test_results_are_whole_files(files, local):
    for party in ("model", "data"):
        folder = files / "local" / party
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["openings.jsonl", "result.json"]
        for path in folder.iterdir():
            assert path.stat().st_mode & 0o777 == 0o600
        document = json.loads((folder / "result.json").read_text())
        assert document["total"]["rounds"] > 0


def test_a_summary_is_a_table(local):
    from mpc_bridge._estimate import summary

    text = summary(local[0])
    assert text.startswith("7 rows chosen; their mean score is 0.")
    assert "phase 1: 57 to 25" in text
    assert f"choosing, in {local[0].phases[1].passes} passes" in text


def test_results_say_what_was_given_away(files, local):
    model, data = local
    for party in local:
        assert [each.phase for each in party.reveals] == ["phase 1", "phase 2"]
        for each, phase in zip(party.reveals, party.phases, strict=True):
            assert f"the {phase.kept:,} rows that are left" in each.opened
            assert f"{phase.comparisons:,} outcomes" in each.opened
    assert [each.basis for each in model.reveals] == ["random probe"] * 2
    # 57 rows of 6 features, 12 weights: an attack, whatever it finds.
    assert data.reveals[0].basis == "own rows"
    assert -1 <= data.reveals[0].recovered <= 1
    assert data.reveals[0].rows == 46
    # Of 7 of 25 rows one would be left to judge by.
    assert data.reveals[1].basis == "nothing"
    document = json.loads((files / "local" / "data" / "result.json").read_text())
    assert document["reveals"][0]["rows"] == 46
    assert Result.read(files / "local" / "data") == data
    assert all("linear probe" in said for said in data.warnings)
    assert len(data.warnings) == len(model.warnings) == 2


def test_a_summary_tells_what_was_given_away(local):
    from mpc_bridge._estimate import summary

    text = summary(local[1])
    assert "Phase 1 opened the 25 rows that are left" in text
    assert "judged on others of it)." in text
    assert "The proxy: not attacked: x must hold 2 chosen rows" in text


def play(rank, jobs, pipe):
    """Play one role in several sessions, one after the other.

    Reports of each session the rows or the error, how much was shared, the bytes that
    this party sent and received, what it said, and what its ledger did not count; once,
    that "killed" has begun.
    """
    import torch

    import mpc_bridge

    torch.set_num_threads(1)
    crypten = mpc_bridge.import_crypten()
    from mpc_bridge import _holdings, _party, _session

    def fail(*args):
        raise MemoryError("no room")

    class Watched(_party.Ledger):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            ledgers.append(self)

    open_samples, _party.Ledger = _holdings.open_samples, Watched
    shared, seen, ledgers = [], [], []
    share, destroy = crypten.cryptensor, torch.distributed.destroy_process_group

    def counted(*args, **kwargs):
        shared.append(1)
        if name == "killed" and len(shared) == 20:
            pipe.send(("scoring", None))
        return share(*args, **kwargs)

    def watched(*args):
        if not args:
            seen.append(crypten.communicator.get().comm_bytes)
        return destroy(*args)

    crypten.cryptensor = counted
    torch.distributed.destroy_process_group = watched
    for name, path, port in jobs:
        shared.clear()
        seen.clear()
        ledgers.clear()
        sys.stderr = io.StringIO()
        _party.open_samples = fail if name == "error" else open_samples
        try:
            result = _session.run(
                ("model-owner", "data-owner", "third-party")[rank],
                path,
                rendezvous=f"tcp://127.0.0.1:{port}",
                test_only_first_party=name != "killed",
            )
            found = result.rows
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        said = sys.stderr.getvalue()
        sent, uncounted = seen[-1] if seen else 0, [each.uncounted for each in ledgers]
        pipe.send((name, (found, len(shared), sent, said, uncounted)))


@pytest.fixture(scope="module")
def sessions(files):
    """Sessions whose parties do not agree, and one after them that works."""
    nan = np.load(files / "x1.npy")
    nan[4, 2] = np.nan
    np.save(files / "nan.npy", nan)
    np.save(files / "short.npy", nan[:-1])
    (files / "damaged").mkdir()
    for name in ("manifest.json", "weights.safetensors"):
        content = (files / "probe1" / name).read_bytes()
        (files / "damaged" / name).write_bytes(
            content[: -9 if name[0] == "w" else None]
        )
    other = json.loads((files / "probe1" / "manifest.json").read_text())
    other["fixed_point"]["bounds"]["inputs"] *= 2
    (files / "other.json").write_text(json.dumps(other))

    def samples(name):
        inputs = (Inputs(x=files / "x0.npy"), Inputs(x=files / f"{name}.npy"))
        return DataOwner(inputs=inputs, output=files / name)

    def weights(name):
        folders = (files / "probe0", files / name)
        return ModelOwner(weights=folders, output=files / name / "out")

    phases = config_of(files, "").phases
    manifest = PhaseConfig(manifest=files / "other.json", keep=7)
    changes = {
        "manifest": ({}, {"phases": (phases[0], manifest)}),
        "seed": ({"seed": 6}, {}),
        "nan": ({}, {"data_owner": samples("nan")}),
        "shape": ({}, {"data_owner": samples("short")}),
        "absent": ({}, {"data_owner": samples("absent")}),
        "weights": ({"model_owner": weights("damaged")}, {}),
        "error": ({}, {}),
        "both": ({"model_owner": weights("none")}, {"data_owner": samples("nan")}),
        "works": ({}, {}),
        "killed": (many := many_samples(files), many, many),
    }
    jobs = [[], [], []]
    for name, parties in changes.items():
        (port,) = free_ports(1)
        for rank, change in enumerate(parties):
            path = files / f"{name}{rank}.toml"
            config_of(files, name, **change).write(path)
            jobs[rank].append((name, path, port))
    context = multiprocessing.get_context("spawn")
    # A pipe for each: who is killed while it writes to a queue holds up the others.
    pipes, roles = {}, []
    for rank in range(3):
        ours, theirs = context.Pipe()
        roles.append(
            context.Process(target=play, args=(rank, jobs[rank], theirs), daemon=True)
        )
        roles[-1].start()
        theirs.close()
        pipes[ours] = rank
    found = {name: {} for name in changes}
    killed = None
    try:
        while len(found["killed"]) < 2:  # the model owner and the third party
            ready = multiprocessing.connection.wait(pipes, timeout=PATIENCE)
            assert ready, f"no answer after {name}: {found[name]}"
            for pipe in ready:
                try:
                    name, answer = pipe.recv()
                except EOFError:
                    assert pipes.pop(pipe) == 1, name
                    assert killed, name
                    continue
                if name != "scoring":
                    found[name][pipes[pipe]] = answer
                elif pipes[pipe] == 1:
                    os.kill(roles[1].pid, signal.SIGKILL)
                    killed = time.monotonic()
    finally:
        for process in roles:
            process.kill()
            process.join()
    return found, time.monotonic() - killed


def many_samples(files):
    """Return the configuration of a run that takes long."""
    x = np.zeros((200_000, WIDTHS[1]), np.float32)
    np.save(files / "many.npy", x)
    manifest = files / "probe1" / "manifest.json"
    return {
        "samples": len(x),
        "phases": (PhaseConfig(manifest=manifest, keep=7, batch_size=1),),
        "model_owner": ModelOwner(
            weights=(files / "probe1",), output=files / "killed" / "model"
        ),
        "data_owner": DataOwner(
            inputs=(Inputs(x=files / "many.npy"),), output=files / "killed" / "data"
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model_owner", "data_owner"),
    [
        (
            "manifest",
            "SessionError: the parties do not agree: manifest of phase 2 differs",
            "SessionError: the parties do not agree: manifest of phase 2 differs",
        ),
        (
            "seed",
            "session.seed: the model owner has 6, the data owner 5",
            "session.seed: the model owner has 6, the data owner 5",
        ),
        (
            "nan",
            r"the data owner stopped: data_owner.inputs\[1\].x must hold finite num",
            r"Refused: data_owner.inputs\[1\].x must hold finite numbers of at most",
        ),
        (
            "shape",
            r"the data owner stopped: .*x must hold .* of shape \(60, 5\)$",
            r"Refused: .*x must hold .* of shape \(60, 5\), got float32 of shape \(59",
        ),
        (
            "absent",
            r"the data owner stopped: data_owner.inputs\[1\].x must be a file$",
            r"Refused: .*must be a file, got .*absent.npy: there is none",
        ),
        (
            "weights",
            r"Refused: model_owner.weights\[1\] must hold the manifest's weights, got",
            r"the model owner stopped: .*must hold the manifest's weights$",
        ),
        (
            "error",
            "the data owner stopped: an error of type MemoryError$",
            "MemoryError: no room",
        ),
        ("both", r"Refused: model_owner.weights\[1\]", r"Refused: data_owner.inputs"),
    ],
)
def test_a_session_ends_before_any_share_is_sent(
    sessions, name, model_owner, data_owner
):
    for rank, message in enumerate((model_owner, data_owner)):
        found, shares, size, said, uncounted = sessions[0][name][rank]
        assert re.search(message, found), found
        assert shares == 0
        assert 0 < size < 50_000  # the terms
        assert uncounted == []  # no run has begun
        assert "protects nothing" in said


@pytest.mark.slow
def test_a_process_can_take_part_in_another_session(sessions, files, local):
    for found, shares, size, _, uncounted in sessions[0]["works"].values():
        assert found == local[0].rows
        assert shares > 0
        assert size > 50_000
        # Between steps nothing went but two messages, a hash of what the result shows
        # and that it is written: each a header of two numbers and a number for each
        # byte, sent and received. Opened scores would be 16 bytes each: 57 and 25.
        assert uncounted[0] <= 2 * 8 * (2 + 71 + 2 + 7)
    assert (files / "works" / "model" / "result.json").exists()


@pytest.mark.slow
def test_a_killed_party_ends_the_others(sessions, files):
    found, seconds = sessions
    assert seconds < PATIENCE  # without a peer, the run itself would take longer
    errors = {rank: answer[0] for rank, answer in found["killed"].items()}
    assert errors == {
        0: "SessionError: phase 1, scoring 199997 samples: the data owner is gone, it "
        "failed or was ended: see what it says",
        2: "SessionError: the model owner ended before the session did: see what it "
        "says",
    }
    assert not (files / "killed" / "model" / "result.json").exists()
    for rank, others in (
        (0, "model owner: waiting for the data owner and the third party"),
        (2, "third party: waiting for the model owner and the data owner"),
    ):
        said = found["killed"][rank][3]
        assert "for measurement only, between parties that trust each" in said
        assert "protects nothing" not in said
        assert f"{others} at tcp://127.0.0.1:" in said


def test_local_names_the_role_that_failed(files, tmp_path, monkeypatch):
    from mpc_bridge import _local
    from mpc_bridge._handshake import SessionError

    script = tmp_path / "python"
    script.write_text(
        """#!/bin/sh
        case $* in
        *" data-owner "*)
            echo "data owner: error: x is on $GLOO_SOCKET_IFNAME" >&2; exit 1;;
        *" third-party "*) exit 3;;
        *) exec sleep 60;;
        esac"""
    )
    script.chmod(0o755)
    monkeypatch.setattr(_local.sys, "executable", str(script))
    monkeypatch.setattr(_local, "_GRACE", 0.3)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    message = (
        "model owner: ended by signal 15; data owner: x is on lo0?; third party: "
        "ended with status 3"
    )
    with pytest.raises(SessionError, match=f"^{message}$"):
        _local.run_local(config_of(files, "failing"), notice=False)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")  # who sets it is obeyed
    with pytest.raises(SessionError, match=r"data owner: x is on eth7;"):
        _local.run_local(config_of(files, "failing"), notice=False)


def test_a_stalled_party_is_named():
    from mpc_bridge.engines import engine_of

    error = RuntimeError("[gloo/x.cc:84] Timed out waiting 60000ms for recv")
    text = engine_of("crypten").explain(1, error)
    assert text.startswith("the model owner did not answer in time")


def test_a_lost_third_party_is_named():
    from mpc_bridge.engines import engine_of

    def ttp_request():
        raise RuntimeError("[gloo/x.cc:84] Connection closed by peer")

    with pytest.raises(RuntimeError) as raised:
        ttp_request()
    text = engine_of("crypten").explain(0, raised.value)
    assert text.startswith("the third party is gone")
