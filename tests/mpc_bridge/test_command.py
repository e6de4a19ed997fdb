"""`python -m mpc_bridge`: estimates, errors, and what `local` refuses."""

import pytest
from sessions import command, config_of

from mpc_bridge._config import DataOwner
from mpc_bridge._toml import ConfigError

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]


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

    monkeypatch.setattr(cli, "play", fail)
    path = files / "fails.toml"
    config_of(files, "fails").write(path)
    assert command("data-owner", "--config", path) == 1
    assert capsys.readouterr().err == "data owner: error: the other one is gone\n"


def test_an_estimate_needs_no_run(files, capsys):
    from jaxsel.proxy import Manifest, choice_cost, cost
    from mpc_bridge.engines import engine_of

    path = files / "estimate.toml"
    config = config_of(files, "estimate", model_owner=None, data_owner=None)
    config.write(path)
    assert command("estimate", "--config", path, "--no-attack") == 0
    lines = capsys.readouterr().out.splitlines()
    text = (files / "probe0" / "manifest.json").read_text()
    forward = cost(
        Manifest.from_json(text), 57, batch_size=16, lanes=engine_of("crypten").lanes
    )
    cells = lines[1].split()
    assert lines[1].startswith("phase 1: score 57 by 16")
    assert cells[-2] == str(forward.rounds)
    assert float(cells[-1]) == pytest.approx(forward.bytes / 1e6, rel=0.01)
    choice = choice_cost(57, 25)
    assert lines[2].startswith("phase 1: choose 25")
    assert lines[2].split()[-2] == f"{choice.rounds:,.0f}"
    options = ("--bandwidth", 100, "--latency", 50, "--no-attack")
    assert command("estimate", "--config", path, *options) == 0
    assert "hours" in capsys.readouterr().out.splitlines()[0]
    assert command("estimate", "--config", path, "--latency", 50) == 2
    assert "must be given together" in capsys.readouterr().err


@pytest.mark.slow
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
    assert command("third-party", "--config", path, "--rendezvous", "here") == 2
    assert "must be 'tcp://host:port'" in capsys.readouterr().err


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
