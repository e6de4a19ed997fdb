"""A role that is ended from outside says so, and nothing stays behind."""

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from waits import PATIENCE, until

from mpc_bridge import _private

ROOT = Path(__file__).parents[2]

ROLE = """
import sys, time
from mpc_bridge import _ending, _private
parent = int(sys.argv[1]) if len(sys.argv) > 1 else None
_ending.set_doing(lambda: "phase 1, scoring 7 samples")
_ending.watch_for_end("data owner", parent=parent)
folder = _private.hold_folder("role")
(folder / "secret.npy").write_text("features")
print(folder, flush=True)
time.sleep(600)
"""

PARENT = f"""
import os, subprocess, sys, time
from mpc_bridge import _private
folder = _private.hold_folder("parent")
(folder / "secret.npy").write_text("weights")
role = subprocess.Popen(
    [sys.executable, "-c", {ROLE!r}, str(os.getpid())],
    stdout=subprocess.PIPE, stderr=open(sys.argv[1], "w"), text=True,
)
print(folder, role.stdout.readline().strip(), role.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path):
    """Start a program with a folder of temporary files of its own."""
    running = []

    def begin(program, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        )
        running.append(process)
        return process, process.stdout.readline().split()

    yield begin
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_named_and_nothing_stays(start, tmp_path, number):
    role, (folder,) = start(ROLE)
    assert Path(folder, "secret.npy").exists()
    role.send_signal(number)
    _, errors = role.communicate(timeout=PATIENCE)
    assert role.returncode == 128 + number
    assert errors == (
        "data owner: error: phase 1, scoring 7 samples: ended by "
        f"{signal.Signals(number).name}\n"
    )
    assert not list(tmp_path.glob("jaxsel-*"))


def test_a_role_ends_with_the_process_that_started_it(start, tmp_path):
    parent, (folder, role_folder, pid) = start(PARENT, tmp_path / "errors")
    assert Path(folder, "secret.npy").exists()
    assert Path(role_folder, "secret.npy").exists()
    parent.kill()
    parent.wait()
    # An orphan of a container without an init stays a zombie, with nothing open.
    state = lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    gone = lambda: not Path(f"/proc/{pid}").exists() or state() == "Z"
    until(gone, "the role has ended")
    assert "since the process that started it is gone" in (
        (tmp_path / "errors").read_text()
    )
    assert not list(tmp_path.glob("jaxsel-*"))  # the parent's weights neither


def test_where_the_kernel_does_not_tell_the_role_looks(start, tmp_path):
    deaf = ROLE.replace("import sys, time", "import sys, time; sys.platform = 'other'")
    parent, (_, _, pid) = start(PARENT.replace(repr(ROLE), repr(deaf)), tmp_path / "e")
    parent.kill()
    parent.wait()
    gone = lambda: "gone" in (tmp_path / "e").read_text()
    until(gone, "the role has seen it")
    until(lambda: not list(tmp_path.glob("jaxsel-*")), "nothing stays")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folders_of_the_dead_are_swept_and_no_others(start, temporary):
    killed, (stale,) = start(ROLE)
    killed.kill()
    killed.wait()
    running, (held,) = start(ROLE)  # its start sweeps the first
    assert not Path(stale).exists()
    foreign = temporary / "jaxsel-mine"  # of no process of ours: it has no lock
    foreign.mkdir()
    link = temporary / "jaxsel-link"
    link.symlink_to(foreign)
    with _private.temporary_folder("here") as here:
        _private.sweep()
        for folder in (held, foreign, link, here):
            assert Path(folder).exists()
    assert not here.exists()
    running.kill()
    running.wait()
    _private.sweep()
    assert sorted(temporary.iterdir()) == [link, foreign]


@pytest.mark.parametrize("length", [40, 71, 200])
def test_sockets_have_short_paths(tmp_path, monkeypatch, length):
    base = f"{tmp_path}/".ljust(length, "t")
    os.makedirs(base, exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", base)
    folder = _private.hold_folder("wire", for_sockets=True)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / "engine"))
    _private.remove_folder(folder)
    kept = _private.hold_folder("role")
    assert kept.parent == Path(base)
    _private.remove_folder(kept)


def test_private_files_are_whole_and_their_owners_alone(tmp_path, monkeypatch):
    path = tmp_path / "made" / "file"
    _private.make_private_folder(path.parent)
    _private.write_private(path, b"first")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def full(handle):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(_private.os, "fsync", full)
    with pytest.raises(OSError, match="made/file"):
        _private.write_private(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(path.parent.iterdir()) == [path]
