"""CrypTen's roles at the rendezvous: who meets, who hears why not, who can reach it."""

import concurrent.futures
import gc
import re
import socket
import threading
import time
from pathlib import Path

import pytest
from ports import free_address, free_ports
from relay import echo_server
from waits import PATIENCE

from mpc_bridge._handshake import SessionError
from mpc_bridge.engines import Meeting
from mpc_bridge.engines.crypten import _meet

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]
SAME = {"session.name": "sha256:a", "version of jaxsel": "1"}


@pytest.fixture
def rendezvous():
    return f"tcp://{free_address()}"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Let the model owner wait a moment only for who does not come in these tests."""
    monkeypatch.setattr(_meet, "_LINGER", 1.0)


def meet(rendezvous, hellos, *, ranks=None, wait=10 * PATIENCE, together=True):
    """Let roles meet at once; return what each raised, or None, and the seconds.

    Args:
        rendezvous: Where.
        hellos: Of each role, by rank.
        ranks: For each role the ranks that it expects; all if None.
        wait: In seconds.
        together: Whether all hold the store until all have met.
    """
    barrier = threading.Barrier(len(hellos))

    def one(rank, hello):
        meeting = Meeting(session="", rendezvous=rendezvous, wait=wait)
        expected = tuple(hellos) if ranks is None else ranks[rank]
        with _meet.store_of(rank, expected, meeting, hello):
            if together:
                barrier.wait(PATIENCE)

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        calls = [pool.submit(one, *each) for each in hellos.items()]
        found = [call.exception() for call in calls]
    return found, time.monotonic() - start


def test_three_roles_meet(rendezvous):
    found, _ = meet(rendezvous, dict.fromkeys(range(3), SAME))
    assert found == [None] * 3


def test_a_name_that_one_leaves_out_is_not_compared(rendezvous):
    dealer = {"version of jaxsel": "1"}  # which has no run.toml
    found, _ = meet(rendezvous, {0: SAME, 1: SAME, 2: dealer})
    assert found == [None] * 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"session.name": "sha256:b"},
            "the parties do not agree: session.name differs",
        ),
        (
            {"version of jaxsel": "9"},
            # Whichever two have compared first.
            "version of jaxsel: the (model owner has '1', the )?data owner (has )?'9'",
        ),
    ],
)
def test_hellos_that_differ_end_all(rendezvous, change, words):
    hellos = {0: SAME, 1: SAME | change, 2: SAME}
    found, seconds = meet(rendezvous, hellos, together=False)
    for error in found:
        assert isinstance(error, SessionError)
    assert sum(bool(re.search(words, str(error))) for error in found) >= 2
    assert seconds < PATIENCE


def test_a_provider_that_one_leaves_out_ends_both(rendezvous):
    """Neither waits for a third party, nor without one for CrypTen's half hour."""
    hellos = {i: SAME | {"--test-only-first-party": i == 1} for i in range(2)}
    ranks = {0: (0, 1, 2), 1: (0, 1)}
    found, seconds = meet(rendezvous, hellos, ranks=ranks, wait=10 * PATIENCE)
    for error in found:
        assert str(error) == (
            "the parties do not agree: --test-only-first-party: the model owner has "
            "False, the data owner True"
        )
    assert seconds < PATIENCE


@pytest.mark.left_out
def test_who_is_missing_is_named_to_all(rendezvous):
    found, seconds = meet(
        rendezvous, {0: SAME, 1: SAME}, ranks={0: (0, 1, 2), 1: (0, 1, 2)}, wait=2
    )
    for error in found:
        assert str(error).startswith("the third party has not come to tcp://127.0.0.1:")
    assert 2 <= seconds < PATIENCE


def test_a_model_owner_that_is_missing_is_named(rendezvous):
    found, _ = meet(rendezvous, {1: SAME}, ranks={1: (0, 1)}, wait=0.5)
    assert "the model owner can't be reached at tcp://127.0.0.1:" in str(found[0])
    assert "refused (waited 0.5 s)" in str(found[0])


def test_a_role_is_played_once(rendezvous):
    barrier = threading.Barrier(3)

    def one(rank):
        meeting = Meeting(session="", rendezvous=rendezvous, wait=10 * PATIENCE)
        with _meet.store_of(rank, (0, 1, 2), meeting, SAME):
            barrier.wait(PATIENCE)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        calls = [pool.submit(one, rank) for rank in (0, 1, 1)]
        done, _ = concurrent.futures.wait(calls, PATIENCE, "FIRST_COMPLETED")
        (first,) = done
        text = str(first.exception())
        assert text.startswith("another data owner is at tcp://127.0.0.1:")
        assert pool.submit(one, 2).exception() is None
        assert sum(call.exception() is None for call in calls) == 2


@pytest.mark.left_out
def test_another_program_at_the_port_is_named(monkeypatch):
    monkeypatch.setattr(_meet, "_ANSWER", _meet.datetime.timedelta(seconds=1))
    server, port = echo_server()
    with server:
        there = f"tcp://127.0.0.1:{port}"
        found, seconds = meet(there, {1: SAME}, ranks={1: (0, 1)}, wait=10 * PATIENCE)
    assert "is not the rendezvous of the model owner" in str(found[0])
    assert seconds < PATIENCE


def test_a_port_that_is_taken_is_named(rendezvous):
    with socket.create_server(_meet.address_of(rendezvous)):
        found, _ = meet(rendezvous, {0: SAME}, ranks={0: (0, 1)})
    assert "this party can't listen at 127.0.0.1:" in str(found[0])
    assert "in use" in str(found[0])


def listening(port):
    """Return the addresses that are listened at, as the kernel writes them."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, at = local.split(":")
            if state == "0A" and int(at, 16) == port:
                found.append(address)
    return found


@pytest.mark.left_out
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", ["0100007F"]), ("0.0.0.0", ["00000000"])],
)
def test_the_rendezvous_listens_at_its_own_address(host, expected):
    (port,) = free_ports(1)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        one = pool.submit(
            meet, f"tcp://{host}:{port}", {0: SAME}, ranks={0: (0, 1)}, wait=1.5
        )
        deadline = time.monotonic() + 1.4
        while not (found := listening(port)) and time.monotonic() < deadline:
            time.sleep(0.02)
        one.result()
    assert found == expected
    del one  # whose error holds the store
    gc.collect()
    assert not listening(port)  # and nothing stays behind


@pytest.mark.parametrize(
    ("rendezvous", "loopback"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://localhost:1", True),
        ("tcp://192.0.2.1:1", False),
        ("tcp://nowhere.invalid:1", False),
    ],
)
def test_loopback_is_told(rendezvous, loopback):
    assert _meet.loopback_interface(rendezvous) == ("lo" if loopback else None)
