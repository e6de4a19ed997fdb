"""A party whose configuration can't be used tells those who wait for it."""

import concurrent.futures
import dataclasses
import time

import pytest
from parties import needs_spu
from processes import ROLES, Session, running
from sessions import command

from mpc_bridge import _session
from mpc_bridge._decline import read_meeting
from mpc_bridge._read_config import read_config
from mpc_bridge._toml import ConfigError
from mpc_bridge.engines.spu import _tunnel
from mpc_bridge.engines.spu._connect import tunnel_of
from mpc_bridge.engines.spu._tls import PeerError

pytestmark = [pytest.mark.mpc, pytest.mark.multihost, needs_spu]
FAR = 60.0  # seconds, shorter than the half hour that parties wait


@pytest.fixture(scope="module")
def session(files, tmp_path_factory):
    return Session(files, tmp_path_factory.mktemp("declined"), "spu-cheetah")


def heard_from(session, *options):
    """Return the error of the model owner while the data owner's command runs."""
    config = read_config(session.paths[0])
    meeting = _session.meeting_of(config, 0, None, False)
    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        tunnel_of(0, 2, meeting) as tunnel,
    ):
        waiting = pool.submit(tunnel.meet, FAR)
        assert command(ROLES[1], "--config", session.paths[1], *options) == 2
        return waiting.exception()


@pytest.fixture
def kept(session):
    text = session.paths[1].read_text()
    yield text
    session.paths[1].write_text(text)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("seed = 5", "seed = -1", "session.seed"),
        ("keep = 25", "keep = 70", "phases[0].keep"),
        ('mode = "mean"', 'mode = "median"', "appraisal.mode"),
        ("[data_owner]", "[data_owner]\nsecret_word = 1", "data_owner.secret_word"),
    ],
)
def test_the_field_is_told_and_nothing_else(session, kept, capsys, old, new, field):
    assert old in kept
    session.paths[1].write_text(kept.replace(old, new))
    error = heard_from(session)
    assert isinstance(error, PeerError)
    words = f"'Clinic' has ended: its configuration can't be used ({field})"
    assert str(error) == words
    assert f"data owner: error: {session.paths[1]}: {field} " in capsys.readouterr().err


def test_a_result_that_is_there_is_told(session, capsys):
    result = session.outputs[1] / "result.json"
    result.parent.mkdir(exist_ok=True)
    result.touch()
    error = heard_from(session)
    result.unlink()
    assert str(error) == "'Clinic' has ended: its configuration can't be used"
    assert f"{result} exists: --force replaces it" in capsys.readouterr().err


def test_nobody_waits_for_long_when_nobody_is_there(session, kept, monkeypatch):
    monkeypatch.setattr(_tunnel, "_DECLINED", 0.2)
    session.paths[1].write_text(kept.replace("seed = 5", "seed = -1"))
    start = time.monotonic()
    assert command(ROLES[1], "--config", session.paths[1]) == 2
    assert time.monotonic() - start < FAR


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[parties]", "[partied]"),
        ("[session]", "[session"),
        ("certificates = ", 'certificates = "none" #'),
    ],
)
def test_what_is_needed_to_tell_may_be_wrong_too(session, kept, capsys, old, new):
    changed = kept.replace("seed = 5", "seed = -1").replace(old, new)
    session.paths[1].write_text(changed)
    assert command(ROLES[1], "--config", session.paths[1]) == 2
    assert capsys.readouterr().err.count("error:") == 1


def test_only_what_is_needed_to_meet_is_read(session, kept):
    whole = read_config(session.paths[1])
    session.paths[1].write_text(kept.replace("samples = 60", 'samples = "x"'))
    reduced = read_meeting(session.paths[1], "data_owner")
    assert (reduced.parties, reduced.session.name) == (whole.parties, "reviews")
    assert reduced.data_owner.certificates == whole.data_owner.certificates
    assert dataclasses.replace(reduced.session, seed=5, samples=60, timeout=20.0) == (
        dataclasses.replace(whole.session, exclude=())
    )
    with pytest.raises(ConfigError, match="model_owner.output|session"):
        read_config(session.paths[1])


@pytest.mark.slow
def test_roles_that_wait_end_within_seconds(files, tmp_path):
    session = Session(files, tmp_path, "spu-aby3")
    session.edit(1, "keep = 25", "keep = 70")
    with running(session) as roles:
        assert roles[1].wait()[0] == 2
        for role in (roles[0], roles[2]):
            assert role.wait(FAR)[0] == 1
            assert "its configuration can't be used (phases[0].keep)" in role.last


def test_a_dealer_needs_an_address_and_no_configuration(capsys, monkeypatch):
    from mpc_bridge import __main__ as cli

    assert command("third-party") == 2
    words = "third-party needs --config, or the --rendezvous of engine 'crypten'"
    assert words in capsys.readouterr().err
    called = []
    monkeypatch.setattr(cli, "deal", called.append)
    assert command("third-party", "--rendezvous", "tcp://10.0.0.1:5000") == 0
    assert called == ["tcp://10.0.0.1:5000"]


def test_the_help_names_every_engine(capsys):
    from mpc_bridge.engines import ENGINES

    with pytest.raises(SystemExit):
        command("--help")
    shown = capsys.readouterr().out
    assert all(name in shown for name in ENGINES)
