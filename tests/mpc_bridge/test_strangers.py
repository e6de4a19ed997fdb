"""Strangers at the open port of a run: how much they get, and that peers get in."""

import asyncio
import collections
import contextlib
import os
import resource
import socket

import pytest
from waits import PATIENCE, until

pytest.importorskip("cryptography")

from flood import KINDS, flood, hello
from test_tunnel import MODEL, engine, folders, meet, parties, running, through

from mpc_bridge._handshake import SessionError
from mpc_bridge.engines.spu import _door, _meet, _tunnel
from mpc_bridge.engines.spu._tls import NotThereError, PeerError, RefusedError

__all__ = ["folders", "parties"]
FREE = 160  # descriptors, which is less than any flood here


def open_files():
    return len(os.listdir("/dev/fd"))


@pytest.fixture
def limit():
    """Let this process open few files more, as one that has many open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(map(int, os.listdir("/dev/fd"))) + FREE
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def port_of(place):
    return int(place[1].rpartition(":")[2])


def reaches(tunnel):
    """Return whether its peer's engine answers; a link tries again as well."""
    return any(through(tunnel, 1) == b"abc" for _ in range(20))


@pytest.mark.parametrize(
    ("kind", "networks"),
    [
        ("silent", 1),
        pytest.param("hello", 200, marks=pytest.mark.slow),
        pytest.param("hello", 1, marks=pytest.mark.slow),
        pytest.param("dripping", 1, marks=pytest.mark.slow),
    ],
)
def test_a_flood_keeps_no_peer_out(folders, parties, limit, kind, networks):
    with (
        running(parties, *folders) as (first, second),
        engine(second, 1),
        flood(port_of(parties[1]), 300, kind, networks),
    ):
        assert meet(first, second)[0] == [None, None]
        assert reaches(first)
        assert second._door.trouble == ""
        # Most of what was free is the run's.
        assert limit - open_files() > FREE / 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_strangers_keep_no_peer_out(folders, parties, kind):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        with (
            running(parties, *folders) as (first, second),
            engine(second, 1),
            flood(port_of(parties[1]), 10_000, kind),
        ):
            assert meet(first, second)[0] == [None, None]
            assert reaches(first)
            assert open_files() < 600
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_strangers_are_turned_away_after_the_deadline(folders, parties, monkeypatch):
    """Whether they say nothing, begin a handshake, or go on with it byte by byte."""
    monkeypatch.setattr(_door, "HANDSHAKE", 0.5)
    with running(parties, *folders) as (_, second):
        for first_bytes in (b"", hello(), b"\x16\x03\x01\x02"):
            with socket.create_connection(("127.0.0.1", port_of(parties[1]))) as one:
                one.settimeout(PATIENCE)
                one.sendall(first_bytes)
                with contextlib.suppress(ConnectionResetError):
                    while one.recv(1 << 16):
                        pass
        until(lambda: not second._door._strangers, "nobody is at the door")


def test_files_that_are_used_up_are_named_and_come_back(folders, parties, limit, capfd):
    with running(parties, *folders) as (first, second), engine(second, 1):
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        held_back = [held.pop() for _ in range(2)]  # for the client's own ends
        for each in held_back:
            os.close(each)
        strangers = [socket.socket() for _ in range(2)]
        for each in strangers:
            each.connect(("127.0.0.1", port_of(parties[1])))
        until(lambda: second._door.trouble, "the door has noticed")
        assert f"limit of {limit} open files: raise it with" in second._door.trouble
        assert capfd.readouterr().err.count("open files") == 1
        for each in strangers:
            each.close()
        for each in held:
            os.close(each)
        assert meet(first, second)[0] == [None, None]
        assert reaches(first)
        assert second._door.trouble == ""


def test_a_party_with_few_files_to_open_does_not_start(folders, parties, monkeypatch):
    monkeypatch.setattr(_door, "_FEWEST_FREE", 1 << 20)
    with (
        pytest.raises(SessionError, match="may open .* files at once and has opened"),
        running(parties, *folders),
    ):
        pass


def test_a_flood_makes_room_for_others_and_seldom_for_itself(monkeypatch):
    turned = []
    monkeypatch.setattr(_door.Door, "_turn_away", lambda _, each: turned.append(each))

    async def crowd():
        door = _door.Door(None, None, 4)
        for network in ("10.0.0.1", *3 * ("10.0.0.2",)):
            assert door._make_room(network)
            one = _door._Stranger(None, network, asyncio.get_running_loop().time())
            door._strangers[one] = None
        return [door._make_room(f"10.0.0.{i}") for i in (1, 2, 2, 3)]

    assert asyncio.run(crowd()) == [True, True, False, True]
    assert {each.network for each in turned} == {"10.0.0.2"}


@pytest.mark.parametrize("floods", [1, 9], ids=["one network", "many networks"])
def test_room_is_kept_for_networks_of_peers(monkeypatch, floods):
    monkeypatch.setattr(_door.Door, "_turn_away", lambda self, each: self._forget(each))
    monkeypatch.setattr(_door, "_SILENT", PATIENCE)
    peer = "10.1.0.1"

    async def crowd():
        door = _door.Door(None, None, 4)
        await door._expect(peer)

        def come(network):
            if room := door._make_room(network):
                now = asyncio.get_running_loop().time()
                door._strangers[_door._Stranger(None, network, now)] = None
            return room

        door._next[False] = float("inf")  # no handshake of a flood is broken off
        assert sum(come(f"10.0.0.{i % floods}") for i in range(200)) == 4
        assert [come(peer) for _ in range(2)] == [True, True]
        for _ in range(200):
            come(peer)
            come("10.0.0.1")
        assert len(door._strangers) == 6
        return collections.Counter(each.network for each in door._strangers)[peer]

    assert 2 <= asyncio.run(crowd()) <= 3


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_networks_of_addresses(address, network):
    assert _door._network(address) == network


def test_a_peer_can_hold_so_many_connections(folders, parties, monkeypatch):
    monkeypatch.setattr(_tunnel, "_MOST_OF_PEER", 3)
    with running(parties, *folders) as (first, second), engine(second, 1):
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.connect(first.hosts[1].removeprefix("unix:"))
                one.settimeout(PATIENCE)
                one.sendall(b"x")
                assert one.recv(1) == b"x"
            assert through(first, 1) == b""
            words = f"{MODEL!r} has more than 3 connections open"
            until(lambda: second.failure == words, "it is named")
        until(lambda: through(first, 1) == b"abc", "there is room again")


def test_a_refusal_must_be_repeated(folders, parties, monkeypatch):
    """One that ends a connection after the handshake may have been crowded."""
    tries = []
    welcome = _tunnel.Tunnel._from_peer

    async def crowded(self, reader, writer):
        tries.append(self._rank)
        if tries.count(self._rank) < 3:
            writer.transport.abort()
            return
        await welcome(self, reader, writer)

    monkeypatch.setattr(_tunnel.Tunnel, "_from_peer", crowded)
    with running(parties, *folders) as (first, second):
        assert meet(first, second)[0] == [None, None]
    assert min(tries.count(rank) for rank in range(2)) >= 3


def test_a_line_that_never_ends_is_an_error(folders, parties, monkeypatch):
    monkeypatch.setattr(_meet, "_LINGER", 0.2)

    async def talks(self, rank, reader, writer):
        writer.write(b"x" * (2 * _door.PIECE))
        await reader.read()

    monkeypatch.setattr(_meet.Board, "show", talks)
    with (
        running(parties, *folders) as (first, _),
        pytest.raises(PeerError, match=f"sends a line of more than {_door.PIECE} byt"),
    ):
        first.meet(PATIENCE)


@pytest.mark.left_out
def test_one_that_refuses_and_leaves_has_refused(folders, parties, monkeypatch):
    answers = [RefusedError("it does not accept this party's certificate")]

    async def dial(self, rank, purpose):
        raise answers.pop() if answers else NotThereError("it can't be reached")

    monkeypatch.setattr(_meet, "_LINGER", 0.1)
    monkeypatch.setattr(_tunnel.Tunnel, "_dial", dial)
    with (
        running(parties, *folders) as (first, _),
        pytest.raises(PeerError, match="does not accept this party's certificate"),
    ):
        first.meet(20)
