"""Who sits on the wire, records it, or has a certificate and no good intentions."""

import contextlib
import itertools
import re
import socket
import ssl
import struct
import time
import tracemalloc

import pytest
from waits import PATIENCE, until

pytest.importorskip("cryptography")

import links
from mangler import CHANGES, Mangler, exactly
from ports import free_ports
from test_tunnel import (
    DATA,
    MODEL,
    alone,
    engine,
    folders,
    meet,
    parties,
    running,
    three,
    through,
    trio,
)

from mpc_bridge import _certs
from mpc_bridge._framing import pack, unpack
from mpc_bridge.engines.spu import _door, _tunnel
from mpc_bridge.engines.spu._tls import PeerError, context
from mpc_bridge.engines.spu._tunnel import Tunnel

__all__ = ["alone", "folders", "parties", "three"]
MESSAGES = [f"message {i:3}".encode() * 9 for i in range(40)]


def passing(records, earlier):
    yield from records


def said(folders, parties, change, earlier=()):
    """Send messages through a mangler; return what the peer's engine has read.

    Returns:
        The bytes that came back from it, and the mangler.
    """
    target = ("127.0.0.1", int(parties[1][1].split(":")[1]))
    with Mangler(target, change, earlier) as mangler:
        seen = [parties[0], (DATA, f"127.0.0.1:{mangler.address[1]}")]
        with (
            Tunnel(_certs.load(folders[0]), rank=0, parties=seen) as first,
            Tunnel(_certs.load(folders[1]), rank=1, parties=parties) as second,
            engine(second, 1),
            socket.socket(socket.AF_UNIX) as one,
        ):
            one.connect(first.hosts[1].removeprefix("unix:"))
            got = b""
            with contextlib.suppress(OSError):
                for i, message in enumerate(MESSAGES):
                    one.sendall(message)  # each as a record: the last one has arrived
                    one.settimeout(PATIENCE if i < 5 else 0.3)
                    with contextlib.suppress(TimeoutError):
                        got += one.recv(1 << 16)
        return got, mangler


@pytest.fixture(scope="module")
def recording(folders):
    """The records of an earlier session of the same parties."""
    hosts = [f"127.0.0.1:{port}" for port in free_ports(2)]
    _, mangler = said(folders, list(zip((MODEL, DATA), hosts, strict=True)), passing)
    (records,) = mangler.recorded
    assert len(records) > len(MESSAGES) / 2
    return records, mangler.raw[0]


@pytest.mark.every(2)
@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_on_the_wire_is_never_read(
    folders, parties, recording, change
):
    """The engine gets what was sent up to the change, and nothing behind it."""
    got, mangler = said(folders, parties, change, recording[0])
    whole = b"".join(MESSAGES)
    assert whole.startswith(got)
    assert len(got) < len(whole)
    assert len(mangler.recorded[0]) > 12


def test_a_recorded_session_can_not_be_played_again(folders, parties, recording):
    with running(parties, *folders) as (first, second), engine(second, 1):
        port = int(parties[1][1].split(":")[1])
        with (
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one,
            contextlib.suppress(OSError),
        ):
            one.sendall(b"".join(itertools.chain(recording[1], recording[0])))
            while one.recv(1 << 16):
                pass
        until(lambda: second._door.refused == 1, "it is refused")
        assert second.received == {0: 0}
        assert through(first, 1) == b"abc"


def test_a_party_of_the_session_in_another_role_is_refused(three, alone):
    """A helper that answers where the data owner should, with its own certificate."""
    with contextlib.ExitStack() as stack:
        hosts = [f"127.0.0.1:{port}" for port in free_ports(3)]
        places = list(zip((MODEL, DATA, "Helper"), hosts, strict=True))
        first = stack.enter_context(
            Tunnel(_certs.load(three[0]), rank=0, parties=places)
        )
        swapped = [places[0], ("Helper", hosts[1]), (DATA, hosts[2])]
        stack.enter_context(Tunnel(_certs.load(three[2]), rank=1, parties=swapped))
        with pytest.raises(PeerError, match="'Data Owner AG' at .* is another party"):
            first.meet(PATIENCE)


def test_a_party_is_known_by_its_certificate_and_not_by_its_address(three):
    """The helper's connections are the helper's, whatever it says that it is."""
    with contextlib.ExitStack() as stack:
        first, second, third = trio(three, stack)
        assert meet(first, second, third)[0] == [None] * 3
        stack.enter_context(engine(first, 0))
        assert through(third, 0) == b"abc"
        assert first.received == {1: 0, 2: 3}


@contextlib.contextmanager
def as_peer(folder, place):
    """Connect to a party by hand, with a certificate that it accepts."""
    address = ("127.0.0.1", int(place[1].split(":")[1]))
    with (
        socket.create_connection(address, timeout=PATIENCE) as plain,
        context(_certs.load(folder)).wrap_socket(plain) as one,
    ):
        assert exactly(one, 7) == b"jaxsel "
        yield one


def ended(one):
    """Wait until the other end has closed a connection."""
    with contextlib.suppress(OSError, ssl.SSLError):
        while one.recv(1 << 16):
            pass


@pytest.mark.parametrize("start", [b"", b"car", b"carr\n", b"x" * (1 << 20)])
def test_a_peer_that_does_not_say_what_it_wants_is_ended(
    folders, parties, monkeypatch, start
):
    """In the middle of its first line, or with another one."""
    monkeypatch.setattr(_tunnel, "HANDSHAKE", 0.5)
    with running(parties, *folders) as (first, second), engine(second, 1):
        with as_peer(folders[0], parties[1]) as one:
            with contextlib.suppress(OSError):
                one.sendall(start)
            ended(one)
        until(lambda: second._carried == {0: 0}, "it has left")
        until(lambda: through(first, 1) == b"abc", "the run goes on")


@pytest.mark.parametrize("size", [2**62, 2**63 - 1, 2**64 - 1, 2**32])
def test_lengths_that_lie_take_no_memory(size):
    lies = [
        struct.pack("<IQ", 1, size) + b"x",
        struct.pack("<IQQ", 2, size, 2**64 - size) + b"x",
        struct.pack("<I", min(size, 2**32 - 1)) + b"x" * 64,
        pack([b"abc"])[:4] + struct.pack("<Q", size) + b"abc",
    ]
    tracemalloc.start()
    for lie in lies:
        with pytest.raises(ValueError, match="data must"):
            unpack(lie)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


GARBAGE = {
    "a frame of 2^31 bytes": b"PRPC" + struct.pack(">II", 2**31 - 1, 7) + b"\xff" * 64,
    "a frame of 2^32 bytes": b"PRPC" + struct.pack(">II", 2**32 - 1, 2**32 - 1),
    "a body of 2^62 bytes": (
        b"POST /org.interconnection.link.ReceiverService/Push HTTP/1.1\r\n"
        b"Content-Type: application/json\r\n"
        b"Content-Length: 4611686018427387904\r\n\r\n{"
    ),
    "no protocol": bytes(range(256)) * 64,
}


@pytest.mark.slow
@pytest.mark.skipif(not links.there(), reason="needs spu")
def test_an_engine_takes_no_garbage_of_a_peer(folders, tmp_path):
    """A peer may send its engine's port anything: what is announced is not reserved."""
    ports = free_ports(2)
    with links.pair() as pair:
        talking = tmp_path / "talking"
        cases = [{"folder": str(one), "messages": 60, "hold": 0.1} for one in folders]
        cases[1]["talking"] = str(talking)
        pair.start(ports, cases)
        until(talking.exists, "they talk")
        before = memory_of(pair.workers[1].pid)
        for data in GARBAGE.values():
            with (
                as_peer(folders[0], ("", f":{ports[1]}")) as one,
                contextlib.suppress(OSError),
            ):
                one.sendall(b"carry\n" + data)
                one.settimeout(0.3)
                ended(one)
        assert memory_of(pair.workers[1].pid) < before + (64 << 20)
        for rank, result in enumerate(pair.results()):
            assert result["heard"] == [f"hello {1 - rank} {i}" for i in range(60)]


def memory_of(pid):
    """Return the most bytes that a process has had in memory."""
    with open(f"/proc/{pid}/status") as file:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", file.read())[1])


def test_a_stranger_in_the_middle_of_a_record_is_ended(folders, parties, monkeypatch):
    monkeypatch.setattr(_door, "HANDSHAKE", 0.5)
    with running(parties, *folders) as (_, second):
        port = int(parties[1][1].split(":")[1])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
            start = time.monotonic()
            with contextlib.suppress(OSError):
                for byte in b"\x16\x03\x01\x40\x00" + b"\x01" * 10_000:
                    one.sendall(bytes([byte]))
                    time.sleep(0.01)
            assert time.monotonic() - start < 10_000 * 0.01
        until(lambda: not second._door._strangers, "nobody is at the door")
