"""The journal of one party: whole entries, its owner's alone, and what faults leave."""

import errno
import os

import numpy as np
import pytest

from mpc_bridge import _journal
from mpc_bridge._handshake import Refused, SessionError
from mpc_bridge._journal import FOLDER, Journal

pytestmark = pytest.mark.mpc


class Engine:
    """Secrets are bytes, kept as they are."""

    def dump(self, secret):
        return secret

    def load(self, data):
        return data


class Ledger:
    def __init__(self):
        self.restored = None

    def state(self):
        return {"steps": [], "opened": []}

    def restore(self, state):
        self.restored = state


def begin(folder, key="one session", common=None):
    journal = Journal(folder, key)
    journal.watch(Ledger())
    journal.start(journal.there if common is None else common, Engine(), {"bits": 16})
    return journal


def never():
    raise AssertionError("it was kept")


def put(journal, values):
    for value in values:
        assert journal.secrets(lambda value=value: [value]) == [value]


@pytest.fixture
def kept(tmp_path):
    """The folder of a journal with three entries."""
    journal = begin(tmp_path)
    put(journal, [b"a", b"b"])
    journal.opened(lambda: np.arange(3))
    journal.close()
    return tmp_path


def test_what_was_kept_comes_back_and_what_follows_is_made(kept):
    journal = begin(kept)
    assert journal.there == 3
    assert [journal.secrets(never) for _ in range(2)] == [[b"a"], [b"b"]]
    assert journal.replaying
    assert journal.opened(never).tolist() == [0, 1, 2]
    assert not journal.replaying
    put(journal, [b"c"])
    journal.finish()
    assert not (kept / FOLDER).exists()


def test_another_session_or_agreement_begins_again(kept):
    journal = Journal(kept, "one session")
    journal.watch(Ledger())
    journal.start(3, Engine(), {"bits": 17})
    assert not journal.replaying
    journal.close()
    assert Journal(kept, "another session").there == 0


def test_two_runs_do_not_share_a_folder(kept):
    first = Journal(kept, "one session")
    with pytest.raises(Refused, match="must not be in use by another run"):
        Journal(kept, "one session")
    first.close()
    Journal(kept, "one session").close()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
@pytest.mark.parametrize("name", ["000001.entry", "session.json", "."])
def test_files_that_others_may_read_are_refused(kept, name, mode):
    path = (kept / FOLDER / name).resolve()
    path.chmod(mode | (0o100 if path.is_dir() else 0))
    with pytest.raises(Refused, match="by their owner alone") as raised:
        Journal(kept, "one session")
    assert str(path) in str(raised.value)
    path.chmod(0o700 if path.is_dir() else 0o600)
    assert begin(kept).there == 3


def test_everything_is_the_owners_alone(kept):
    assert (kept / FOLDER).stat().st_mode & 0o777 == 0o700
    for path in (kept / FOLDER).iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("at", ["open", "fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(kept, at, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = begin(kept)
    for _ in range(2):
        journal.secrets(never)
    journal.opened(never)
    with monkeypatch.context() as patch:
        patch.setattr(_journal.Path if at == "replace" else _journal.os, at, full)
        with pytest.raises(SessionError, match="000003.entry can't be written: No sp"):
            journal.secrets(lambda: [b"c"])
    journal.close()
    names = sorted(path.name for path in (kept / FOLDER).iterdir())
    assert names == [*(f"00000{i}.entry" for i in range(3)), "session.json"]
    again = begin(kept)
    assert again.there == 3
    assert again.secrets(never) == [b"a"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_entry_is_named(kept, damage):
    path = kept / FOLDER / "000000.entry"
    content = bytearray(path.read_bytes())
    content[-2] ^= damage == "flipped"
    path.write_bytes(content[: {"cut": -1, "empty": 0}.get(damage)])
    journal = begin(kept)
    with pytest.raises(SessionError, match="000000.entry is damaged: delete .*, and"):
        journal.secrets(never)


@pytest.mark.parametrize("common", [-1, 4])
def test_common_entries_are_checked(kept, common):
    with pytest.raises(ValueError, match=f"from 0 to 3, got {common}"):
        begin(kept, common=common)


def test_entries_that_others_lack_are_dropped(kept):
    journal = begin(kept, common=1)
    assert journal.secrets(never) == [b"a"]
    put(journal, [b"x"])
    journal.close()
    assert Journal(kept, "one session").there == 2
