"""The engine's link in the tunnel, and why it is there: real links in two processes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import socket
import tempfile
from pathlib import Path

import pytest
from waits import PATIENCE, until

pytest.importorskip("cryptography")

import intruders
import links
from authority import issue
from ports import free_ports
from relay import Relay

from mpc_bridge import _certs

pytestmark = pytest.mark.skipif(not links.there(), reason="needs spu")
MODEL, DATA = "Model Owner GmbH", "Data Owner AG"


@pytest.fixture(scope="module")
def pair():
    with links.pair() as made:
        yield made
    assert made.noise == ""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of two parties that trust each other."""
    made = _certs.make_all(tmp_path_factory.mktemp("certs"), [MODEL, DATA])
    return list(made.values())


@pytest.fixture(scope="module")
def cases(folders):
    """Cases of both ranks."""
    return lambda **options: [{"folder": str(one), **options} for one in folders]


def hellos(count):
    return [[f"hello {rank} {i}" for i in range(count)] for rank in (1, 0)]


def heard(results):
    return [one.get("heard", one) for one in results]


def until_open(port):
    def is_open():
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True

    until(is_open, f"somebody listens at {port}")


@pytest.mark.left_out
def test_parties_talk_and_count_what_they_send(pair, cases):
    results = pair.run(*cases(messages=3, size=100_000))
    assert heard(results) == hellos(3)
    first, second = results
    assert first["sent"] == pytest.approx(second["received"], abs=1000)
    assert 300_000 < first["sent"] < 310_000


@pytest.mark.left_out
def test_bare_link_takes_messages_without_tls(pair, cases, tmp_path):
    # Why there is a tunnel: TLS is on here, and both certificates are checked.
    ports = free_ports(2)
    both = cases(bare=True, messages=20, stay=str(tmp_path / "done"))
    both[0]["talking"] = str(tmp_path / "talking")
    pair.start(ports, both)
    until((tmp_path / "talking").exists, "they talk")
    forged = {"sender_rank": 1, "key": "forged\1\x02999", "value": "", "trans_type": 0}
    body = json.dumps(forged).encode()
    head = (
        "POST /org.interconnection.link.ReceiverService/Push HTTP/1.1\r\nHost: x\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", ports[0]), timeout=PATIENCE) as one:
        one.sendall(head.encode() + body)
        answer = one.recv(1000)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b'{"header":{}}')  # with no error
    for _ in intruders.attack("127.0.0.1", ports[0], only="TLS without a certificate"):
        pass  # of which it prints a line, if it is not made quiet
    (tmp_path / "done").touch()
    assert heard(pair.results()) == hellos(20)


@pytest.mark.slow
def test_intruders_at_the_open_ports_change_nothing(pair, cases, tmp_path):
    stranger = issue(tmp_path / "stranger", DATA)
    ports = free_ports(2)
    pair.start(ports, cases(messages=50, hold=0.1))

    def attack(port):
        until_open(port)
        return list(intruders.attack("127.0.0.1", port, stranger=stranger))

    with concurrent.futures.ThreadPoolExecutor() as pool:
        tried = list(pool.map(attack, ports))
    assert [len(names) for names in tried] == [13, 13]
    assert heard(pair.results()) == hellos(50)


@contextlib.contextmanager
def relayed(pair, cases):
    """Start a pair whose second party has a relay in front; wait until they talk."""
    ports = free_ports(2)
    with (
        tempfile.TemporaryDirectory() as folder,
        Relay(("127.0.0.1", ports[1])) as relay,
    ):
        cases[0]["ports"] = [ports[0], relay.address[1]]
        talking = [Path(folder) / str(rank) for rank in range(2)]
        for case, path in zip(cases, talking, strict=True):
            case["talking"] = str(path)
        pair.start(ports, cases)
        until(lambda: all(path.exists() for path in talking), "both talk")
        yield relay


@pytest.mark.slow
def test_a_cut_wire_is_mended_and_nothing_is_lost(pair, cases):
    with relayed(pair, cases(messages=30, hold=0.1)) as relay:
        relay.cut()
        assert heard(pair.results()) == hellos(30)
        assert relay.connections >= 2


@pytest.mark.slow
def test_a_peer_that_stalls_is_an_error_after_the_timeout(cases):
    long = cases(messages=1000, hold=0.01, timeout=5)
    with links.pair() as pair, relayed(pair, long) as relay:
        relay.stall()
        for one in pair.results():
            assert "timeout" in one["error"].lower()
            assert 5 <= one["waited"] < PATIENCE


@pytest.mark.slow
def test_a_peer_that_is_killed_is_an_error_and_not_the_end(cases):
    long = cases(messages=1000, hold=0.01, timeout=5)
    with links.pair() as pair, relayed(pair, long):
        pair.workers[1].kill()
        result = pair.result(0)
        assert "timeout" in result["error"].lower()


@pytest.mark.slow
@pytest.mark.parametrize("again", range(3))
def test_processes_that_leave_at_once_end_well(cases, again):
    # Whoever leaves first must not end the other, which still has messages under way.
    with links.pair() as pair:
        pair.start(free_ports(2), cases(messages=20))
        for worker in pair.workers:
            worker.stdin.close()
        assert heard(pair.results()) == hellos(20)
    assert [worker.returncode for worker in pair.workers] == [0, 0]
