"""Whole sessions: three processes on loopback, and what ends them."""

import io
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import socket
import sys
import time

import numpy as np
import pytest

from mpc_bridge._config import (
    Appraisal,
    Config,
    ConfigError,
    DataOwner,
    Inputs,
    ModelOwner,
    PhaseConfig,
    Session,
)

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]

N, KEEPS, EXCLUDED = 60, (25, 7), (3, 17, 50)
WIDTHS = (6, 5)


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two exported probes, the samples for each, and the configuration of a run."""
    from jaxsel.proxy import Proxy, array_shapes, probe_manifest, with_bounds
    from mpc_bridge._export import export

    folder = tmp_path_factory.mktemp("session")
    rng = np.random.default_rng(0)
    for i, (width, classes) in enumerate(zip(WIDTHS, (3, 2), strict=True)):
        x = rng.normal(size=(N, width)).astype(np.float32)
        secure = None if classes == 2 else "exact"
        manifest = probe_manifest(width=width, classes=classes, secure=secure)
        arrays = {
            name: 0.7 * rng.normal(size=shape)
            for name, shape in array_shapes(manifest).items()
        }
        arrays["offset"] = np.zeros(classes)  # no prior
        proxy = with_bounds(Proxy.from_arrays(manifest, arrays), x)
        export(proxy, folder / f"probe{i}")
        np.save(folder / f"x{i}.npy", x)
    return folder


def config_of(folder, name, **changes):
    """Return the configuration of a run, with its outputs in folders of their own."""
    session = Session(
        name="reviews",
        seed=changes.pop("seed", 5),
        rendezvous="tcp://127.0.0.1:0",
        samples=changes.pop("samples", N),
        exclude=EXCLUDED,
    )
    phases = tuple(
        PhaseConfig(manifest=folder / f"probe{i}" / "manifest.json", keep=keep, batch=b)
        for i, (keep, b) in enumerate(zip(KEEPS, (16, None), strict=True))
    )
    weights = tuple(folder / f"probe{i}" for i in range(2))
    inputs = tuple(Inputs(x=folder / f"x{i}.npy") for i in range(2))
    parts = {
        "session": session,
        "phases": phases,
        "appraisal": Appraisal(mode="mean"),
        "model_owner": ModelOwner(weights=weights, output=folder / name / "model"),
        "data_owner": DataOwner(inputs=inputs, output=folder / name / "data"),
    }
    return Config(**parts | changes)


def in_the_clear(folder):
    """Return the rows that two phases leave, and the scores of the second one."""
    from jaxsel.proxy import Manifest, Proxy
    from mpc_bridge._export import read_weights

    left = np.setdiff1d(np.arange(N), EXCLUDED)
    for i, keep in enumerate(KEEPS):
        text = (folder / f"probe{i}" / "manifest.json").read_text()
        manifest = Manifest.from_json(text)
        weights = read_weights(folder / f"probe{i}", manifest)
        proxy = Proxy.from_arrays(manifest, weights)
        logits = proxy.logits(np.load(folder / f"x{i}.npy")[left])
        scores = proxy.scores(logits)
        order = np.argsort(-scores, kind="stable")
        # The border is wide enough for fixed point.
        assert scores[order[keep - 1]] - scores[order[keep]] > 2e-3
        best = np.sort(order[:keep])
        left, logits = left[best], logits[best]
    return left, logits


@pytest.fixture(scope="module")
def local(files):
    """A whole run with the third party: the results of both parties."""
    from mpc_bridge._local import run_local
    from mpc_bridge._result import Result

    config = config_of(files, "local")
    result = run_local(config, notice=False)
    assert result == Result.read(files / "local" / "model")
    return result, Result.read(files / "local" / "data")


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
    from mpc_bridge._scoring import LANES

    model, data = local
    samples = [(p.samples, p.kept, p.batch) for p in model.phases]
    assert samples[0] == (57, 25, 16)
    assert samples[1][:2] == (25, 7)
    assert model.phases == data.phases
    for i, phase in enumerate(model.phases):
        name = f"phase {i + 1}"
        text = (files / f"probe{i}" / "manifest.json").read_text()
        counted = cost(
            Manifest.from_json(text), phase.samples, batch=phase.batch, lanes=LANES
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
        assert party.provider == "TTP"
        assert set(party.versions) == {"jaxsel", "crypten", "torch"}


def test_results_are_whole_files(files, local):
    for party in ("model", "data"):
        folder = files / "local" / party
        assert [path.name for path in folder.iterdir()] == ["result.json"]
        document = json.loads((folder / "result.json").read_text())
        assert document["total"]["rounds"] > 0


def test_a_summary_is_a_table(local):
    from mpc_bridge._estimate import summary

    text = summary(local[0])
    assert text.startswith("7 rows chosen; their mean score is 0.")
    assert "phase 1: 57 to 25" in text
    assert f"choosing, in {local[0].phases[1].passes} passes" in text


def play(rank, jobs, pipe):
    """Play one role in several sessions, one after the other.

    Reports of each session the rows or the error, how much was shared, the bytes that
    this party sent and received, and what it said; once, that "killed" has begun.
    """
    import torch

    import mpc_bridge

    torch.set_num_threads(1)
    crypten = mpc_bridge.import_crypten()
    from mpc_bridge import _holdings, _party, _session

    def fail(*args):
        raise MemoryError("no room")

    open_samples = _holdings.open_samples
    shared, seen = [], []
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
        pipe.send((name, (found, len(shared), seen[-1] if seen else 0, said)))


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
        port = free_port()
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
            ready = multiprocessing.connection.wait(pipes, timeout=60)
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
        "phases": (PhaseConfig(manifest=manifest, keep=7, batch=1),),
        "model_owner": ModelOwner(
            weights=(files / "probe1",), output=files / "killed" / "model"
        ),
        "data_owner": DataOwner(
            inputs=(Inputs(x=files / "many.npy"),), output=files / "killed" / "data"
        ),
    }


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
        found, shares, size, said = sessions[0][name][rank]
        assert re.search(message, found), found
        assert shares == 0
        assert 0 < size < 50_000  # the terms
        assert "protects nothing" in said


def test_a_process_can_take_part_in_another_session(sessions, files, local):
    for found, shares, size, _ in sessions[0]["works"].values():
        assert found == local[0].rows
        assert shares > 0
        assert size > 50_000
    assert (files / "works" / "model" / "result.json").exists()


def test_a_killed_party_ends_the_others(sessions, files):
    found, seconds = sessions
    assert seconds < 10
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
        assert "for measurement and trusted networks only" in said
        assert "protects nothing" not in said
        assert f"{others} at tcp://127.0.0.1:" in said


def test_local_names_the_role_that_failed(files, tmp_path, monkeypatch):
    from mpc_bridge import _local
    from mpc_bridge._handshake import SessionError

    script = tmp_path / "python"
    script.write_text(
        """#!/bin/sh
        case $3 in
        data-owner) echo "data owner: error: x must be finite" >&2; exit 1;;
        third-party) exit 3;;
        *) exec sleep 60;;
        esac"""
    )
    script.chmod(0o755)
    monkeypatch.setattr(_local.sys, "executable", str(script))
    monkeypatch.setattr(_local, "_GRACE", 0.3)
    message = (
        "model owner: ended by signal 15; data owner: x must be finite; third party: "
        "ended with status 3"
    )
    with pytest.raises(SessionError, match=f"^{message}$"):
        _local.run_local(config_of(files, "failing"), notice=False)


def test_local_checks_both_parts(files):
    from mpc_bridge._local import run_local

    config = config_of(files, "same")
    same = DataOwner(inputs=config.data_owner.inputs, output=config.model_owner.output)
    config.data_owner.output.mkdir(parents=True)
    (config.data_owner.output / "result.json").touch()
    with pytest.raises(ConfigError, match=r"data/result.json exists: --force replaces"):
        run_local(config)
    with pytest.raises(ConfigError, match="must be two folders"):
        run_local(config_of(files, "same", data_owner=same))
    with pytest.raises(ConfigError, match="needs model_owner and data_owner"):
        run_local(config_of(files, "same", data_owner=None))


@pytest.mark.parametrize("error", ["SessionError", "Refused"])
def test_a_session_that_fails_ends_with_status_1(files, monkeypatch, capsys, error):
    from mpc_bridge import __main__ as cli, _handshake

    def fail(*args, **kwargs):
        raise getattr(_handshake, error)("the other one is gone")

    monkeypatch.setattr(cli, "run", fail)
    assert command("data-owner", "--config", files / "any.toml") == 1
    assert capsys.readouterr().err == "data owner: error: the other one is gone\n"


def test_a_stalled_party_is_named():
    from mpc_bridge._session import explain

    error = RuntimeError("[gloo/x.cc:84] Timed out waiting 1800000ms for recv")
    text = explain("data-owner", error, "phase 1")
    assert text.startswith("phase 1: the model owner did not answer for 30 minutes")


def test_a_lost_third_party_is_named():
    from mpc_bridge._session import explain

    def ttp_request():
        raise RuntimeError("[gloo/x.cc:84] Connection closed by peer")

    with pytest.raises(RuntimeError) as raised:
        ttp_request()
    text = explain("model-owner", raised.value, "phase 1")
    assert text.startswith("phase 1: the third party is gone")


def command(*arguments):
    from mpc_bridge.__main__ import main

    return main(list(map(str, arguments)))


def test_an_estimate_needs_no_run(files, capsys):
    from jaxsel.proxy import Manifest, choice_cost, cost
    from mpc_bridge._scoring import LANES

    path = files / "estimate.toml"
    config = config_of(files, "estimate", model_owner=None, data_owner=None)
    config.write(path)
    assert command("estimate", "--config", path) == 0
    lines = capsys.readouterr().out.splitlines()
    text = (files / "probe0" / "manifest.json").read_text()
    forward = cost(Manifest.from_json(text), 57, batch=16, lanes=LANES)
    cells = lines[1].split()
    assert lines[1].startswith("phase 1: score 57 by 16")
    assert cells[-2] == str(forward.rounds)
    assert float(cells[-1]) == pytest.approx(forward.bytes / 1e6, rel=0.01)
    choice = choice_cost(57, 25)
    assert lines[2].startswith("phase 1: choose 25")
    assert lines[2].split()[-2] == f"{choice.rounds:,.0f}"
    options = ("--bandwidth", 100, "--latency", 50)
    assert command("estimate", "--config", path, *options) == 0
    assert "hours" in capsys.readouterr().out.splitlines()[0]
    assert command("estimate", "--config", path, "--latency", 50) == 2
    assert "must be given together" in capsys.readouterr().err


def test_the_command_names_its_errors(files, local, capsys):
    path = files / "errors.toml"
    assert command("data-owner", "--config", files / "none.toml") == 2
    assert "none.toml" in capsys.readouterr().err
    config_of(files, "local").write(path)
    options = ("--config", path, "--rendezvous", "tcp://127.0.0.1:1")
    assert command("model-owner", *options) == 2
    assert "result.json exists: --force replaces it" in capsys.readouterr().err
    assert command("data-owner", "--config", path) == 2
    assert "0 is for local only" in capsys.readouterr().err
    config_of(files, "errors", data_owner=None).write(path)
    assert command("data-owner", *options) == 2
    assert "data_owner is missing" in capsys.readouterr().err
    assert command("third-party", *options, "--test-only-first-party") == 2
    assert "there is no third party" in capsys.readouterr().err


def test_the_first_party_provider_warns(files, capsys):
    path = files / "warns.toml"
    config_of(files, "warns", data_owner=None).write(path)
    command(
        "data-owner",
        "--config",
        path,
        "--rendezvous",
        "tcp://127.0.0.1:1",
        "--test-only-first-party",
    )
    shown = capsys.readouterr().err
    assert "protects nothing" in shown
    assert "without TLS" in shown
