"""The relay that emulates a link."""

from __future__ import annotations

import socket
import time

import pytest
from relay import Relay, Way, echo_server, goodput, round_trip
from waits import PATIENCE


@pytest.fixture
def echo():
    server, port = echo_server()
    with server:
        yield "127.0.0.1", port


def talk(relay, data=b"abc"):
    with socket.create_connection(relay.address, timeout=PATIENCE) as one:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        got = b""
        while piece := one.recv(1 << 16):
            got += piece
    return got


def test_passes_everything_on_and_counts_it(echo):
    data = bytes(range(256)) * 4096
    with Relay(echo) as relay:
        assert talk(relay, data) == data
        assert relay.counts == {"forward": len(data), "backward": len(data)}
        assert relay.connections == 1


def test_delay_is_one_way_and_does_not_add_up(echo):
    with Relay(echo, delay=0.1) as relay:
        assert round_trip(relay, 3) >= 0.2
        # Forty messages are on the way at once.
        start = time.perf_counter()
        with socket.create_connection(relay.address, timeout=PATIENCE) as one:
            for _ in range(40):
                one.sendall(b"x")
                time.sleep(0.002)
            left = 40
            while left:
                left -= len(one.recv(left))
        assert 0.28 <= time.perf_counter() - start < 40 * 0.2


def test_rate_is_limited_each_way_at_once(echo):
    with Relay(echo, rate=2e6) as relay:
        assert 0 < goodput(relay, 1_000_000) <= 2e6


def test_connections_share_the_wire():
    way = Way(delay=1.0, rate=100.0)
    assert [way.departure(0.0, 50), way.departure(0.0, 50)] == [1.5, 2.0]
    assert way.departure(10.0, 100) == 12.0  # an idle wire saves nothing up


def test_stall_holds_back_and_resume_lets_go(echo):
    with Relay(echo) as relay, socket.create_connection(relay.address, PATIENCE) as one:
        one.settimeout(0.2)
        relay.stall()
        one.sendall(b"abc")
        with pytest.raises(TimeoutError):
            one.recv(3)
        relay.resume()
        one.settimeout(PATIENCE)
        assert one.recv(3) == b"abc"


def test_cut_resets_and_may_refuse(echo):
    with Relay(echo) as relay:
        with socket.create_connection(relay.address, timeout=PATIENCE) as one:
            one.sendall(b"x")
            assert one.recv(1) == b"x"
            relay.cut(refuse=True)
            with pytest.raises(ConnectionResetError):
                one.recv(1)
        with pytest.raises(OSError, match="reset|not connected|Broken pipe"):
            talk(relay)
        relay.resume()
        assert talk(relay) == b"abc"


def test_inject_puts_bytes_into_the_stream(echo):
    with Relay(echo) as relay:
        with socket.create_connection(relay.address, timeout=PATIENCE) as one:
            one.sendall(b"x")
            assert one.recv(1) == b"x"
            assert relay.inject(b"forward") == 1
            assert one.recv(7, socket.MSG_WAITALL) == b"forward"
            assert relay.inject(b"back", "backward") == 1
            assert one.recv(4, socket.MSG_WAITALL) == b"back"
        assert relay.counts == {"forward": 8, "backward": 12}


def test_nobody_behind_is_a_reset():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        expected = pytest.raises(OSError, match="reset|not connected|Broken pipe")
        with Relay(unused.getsockname()) as relay, expected:
            talk(relay)


def test_slow_changes_a_running_link(echo):
    with Relay(echo) as relay:
        before = round_trip(relay, 3)
        relay.slow(delay=0.1)
        assert round_trip(relay, 3) >= before + 0.15
