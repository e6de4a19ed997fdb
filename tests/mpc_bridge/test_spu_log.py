"""SPU's log, from which its traffic is counted, and folders where it can't be."""

import resource

import pytest

from mpc_bridge._handshake import SessionError
from mpc_bridge.engines.spu._log import Traffic

pytestmark = pytest.mark.mpc
LINE = (
    "Link details: total send bytes 5, recv bytes 7, send actions 1, recv actions 2\n"
)


@pytest.fixture
def traffic(tmp_path, monkeypatch):
    """Counts of a log that this test writes, and not SPU."""
    made = Traffic.__new__(Traffic)
    made._path, made._at, made.programs = tmp_path / "spu.log", 0, 0
    made._rounds = made._sent = made._received = 0
    made._path.touch()
    return made


def test_lines_are_counted_once(traffic):
    for times in (1, 2):
        with traffic._path.open("a") as file:
            file.write(LINE)
        traffic.read()
        assert (traffic.count().sent, traffic.count().bytes) == (5 * times, 12 * times)


def test_an_engine_that_says_nothing_is_an_error(traffic, tmp_path):
    with pytest.raises(RuntimeError, match="SPU does not say what it sent"):
        traffic.read()
    assert [path.name for path in tmp_path.iterdir()] == ["spu.log"]


def test_a_temporary_folder_without_room_is_named(traffic, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(SessionError) as raised:
            traffic.read()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    words = f"the temporary folder {tmp_path} must be one with room to write, got: File"
    assert str(raised.value).startswith(words)
    assert str(raised.value).endswith("TMPDIR names another")


def test_a_log_that_was_deleted_is_named(traffic):
    traffic._path.unlink()
    with pytest.raises(SessionError, match="with room to write, got: No such file"):
        traffic.read()
