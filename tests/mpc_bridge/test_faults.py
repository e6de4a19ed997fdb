"""Sessions whose wire or party fails: one sentence in time, and then the same choice.

A relay stands between the model owner and the data owner. What fails does so in
scoring, once a batch is scored, or in choosing, once all are. Then both run the same
command again.
"""

import os
import signal
import stat
import sys

import pytest
from parties import needs_spu
from processes import ROLES, Role, Session, running
from relay import Relay
from sessions import in_the_clear
from waits import PATIENCE, until

from mpc_bridge import Result
from mpc_bridge.__main__ import main

pytestmark = [needs_spu, pytest.mark.mpc, pytest.mark.multihost, pytest.mark.slow]
TIMEOUT = 20.0  # seconds, of the session
PHASES = {"scoring": 1, "choosing": 6}
"""Entries that the data owner has written by then: four batches, then passes."""


def relayed(session):
    """Put a relay before the data owner's port and one before the model owner's."""
    relays = []
    for rank in range(2):
        host, port = session.addresses[rank].split(":")
        relays.append(Relay((host, int(port))))
        there = f"127.0.0.1:{relays[-1].address[1]}"
        session.edit(1 - rank, session.addresses[rank], there)
    return relays


def until_written(session, entries, roles, rank=1):
    until(
        lambda: session.entries(rank) >= entries,
        lambda: f"{entries} entries: {[role.said for role in roles]}",
        alive=lambda: all(role.status is None for role in roles),
    )


def one_sentence(role):
    """Check that a role's last line is its error, and all that it says of it."""
    errors = [line for line in role.said.splitlines() if "error" in line.lower()]
    assert errors == [role.last], role.said
    assert ": error: phase " in role.last or ": error: appraising" in role.last
    assert "Traceback" not in role.said


def resumed(session, files):
    """Run all roles again, and compare their choice with the clear one."""
    there = [session.entries(rank) for rank in session.ranks]
    with running(session) as roles:
        for role in roles:
            assert role.wait()[0] == 0, role.said
        told = ["going on with what is in" in role.said for role in roles]
        assert told == [entries > 0 for entries in there]
    rows, _ = in_the_clear(files)
    for rank in session.ranks if there[-1] else session.ranks[:2]:  # not its dealer
        result = Result.read(session.outputs[rank])
        assert list(result.rows) == rows.tolist()
        left = sorted(path.name for path in session.outputs[rank].iterdir())
        assert left == ["openings.jsonl", "result.json"]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("fault", ["cut", "stall", "killed"])
def test_a_session_that_fails_goes_on(files, tmp_path, fault, phase):
    session = Session(files, tmp_path, "spu-cheetah", timeout=TIMEOUT)
    relays = relayed(session)
    with running(session) as roles:
        until_written(session, PHASES[phase], roles)
        if fault == "killed":
            roles[1].process.kill()
        for relay in relays:
            if fault == "stall":
                relay.stall()
            if fault == "cut":
                relay.cut(refuse=True)
        for role in roles[: 1 if fault == "killed" else 2]:
            assert role.wait()[0] == 1  # long before PATIENCE on a quiet machine
            one_sentence(role)
            assert "did not answer in time, is gone or was cut off" in role.last
    for relay in relays:
        relay.resume()
    resumed(session, files)
    for relay in relays:
        relay.close()


def test_crypten_waits_no_longer_than_it_is_told(files, tmp_path):
    session = Session(files, tmp_path, "crypten", timeout=5.0)
    with running(session) as roles:
        owner, stopped, dealer = roles
        until_written(session, 1, [owner], rank=0)
        stopped.process.send_signal(signal.SIGSTOP)
        assert owner.wait()[0] == 1  # CrypTen itself would wait for half an hour
        assert "did not answer in time" in owner.last
        stopped.process.kill()
        assert dealer.wait()[0] == 1
    resumed(session, files)


def test_a_slow_wire_and_a_short_cut_change_nothing(files, tmp_path):
    """Neither a delay nor connections that are reset once end a session."""
    session = Session(files, tmp_path, "spu-cheetah", timeout=PATIENCE)
    relays = relayed(session)
    with running(session) as roles:
        until_written(session, 1, roles)
        for relay in relays:
            relay.slow(delay=0.01)
        until_written(session, 2, roles)
        for relay in relays:
            relay.cut()
        for role in roles:
            assert role.wait()[0] == 0, role.said
    rows, _ = in_the_clear(files)
    assert list(Result.read(session.outputs[0]).rows) == rows.tolist()
    for relay in relays:
        relay.close()


FULL = """
import errno, os, sys
from mpc_bridge import _private

class Full:
    left = 7  # each file is one, and the folder that names it another
    def __getattr__(self, name):
        return getattr(os, name)
    def fsync(self, handle):
        Full.left -= 1
        if not Full.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)

_private.os = Full()
from mpc_bridge.__main__ import main
status = main(sys.argv[1:])
sys.stderr.flush()
os._exit(status)
"""


def test_a_full_disk_is_named_and_leaves_nothing_half_written(files, tmp_path):
    """A write of shares ends in an error, as on a disk that is full."""
    session = Session(files, tmp_path, "spu-cheetah", timeout=TIMEOUT)
    command = [sys.executable, "-c", FULL, ROLES[1], "--config", session.paths[1]]
    start = session.start
    session.start = lambda rank, *options: (
        Role(command) if rank == 1 else start(rank, *options)
    )
    with running(session) as (other, full):
        assert full.wait()[0] == 1
        assert "can't be written: No space left on device" in full.last
        assert str(session.outputs[1]) in full.last
        assert "Traceback" not in full.said
        assert other.wait()[0] == 1
        one_sentence(other)
    for rank in session.ranks:
        assert not [*session.outputs[rank].rglob("*.part")]
        assert not [*session.outputs[rank].rglob("result*")]
    assert session.entries(1) == 2  # behind the session's own file
    session.start = start
    resumed(session, files)


def test_two_sessions_at_once_are_both_right(files, tmp_path):
    sessions = []
    for name in ("first", "second"):
        tmp_path.joinpath(name).mkdir()
        sessions.append(
            Session(files, tmp_path / name, "spu-cheetah", timeout=PATIENCE)
        )
    rows, _ = in_the_clear(files)
    with running(sessions[0]) as first, running(sessions[1]) as second:
        for role in (*first, *second):
            assert role.wait()[0] == 0, role.said
    for session in sessions:
        for rank in session.ranks:
            assert list(Result.read(session.outputs[rank]).rows) == rows.tolist()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_is_refused(files, tmp_path, capsys):
    session = Session(files, tmp_path, "spu-cheetah")
    session.outputs[1].mkdir()
    session.outputs[1].chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert main([ROLES[1], "--config", str(session.paths[1])]) != 0
    assert str(session.outputs[1]) in capsys.readouterr().err
