"""A TCP relay between two ports that emulates a link, and breaks it on demand.

It adds a one-way delay, limits the rate of each direction, counts bytes, and can cut,
stall and inject. Of each direction, a reader stamps what arrives and a writer lets it
go when its delay is over and the rate allows: as on a wire, both happen at once. A
sender is held back once `window` bytes are on the way.

    with Relay(("127.0.0.1", port), delay=0.05, rate=100e6) as relay:
        connect(relay.address)

`python tests/mpc_bridge/relay.py` measures what it does, and what it costs by itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import sys
import threading
import time
from collections import deque
from typing import Literal

from waits import PATIENCE

Direction = Literal["forward", "backward"]
_PIECE = 1 << 16  # bytes


@dataclasses.dataclass
class Way:
    """One direction: "forward" is towards the port behind the relay.

    All connections of a direction share its rate, as they would a wire.

    Attributes:
        delay: One way, in seconds.
        rate: Bytes per second; None for no limit.
        window: Bytes on the way before the sender is held back.
        count: Bytes that were handed on, of all connections.
    """

    delay: float = 0.0
    rate: float | None = None
    window: int = 64 << 20
    count: int = 0

    def __post_init__(self) -> None:
        self.free = 0.0  # when the wire has sent what it was given
        self.lock = threading.Lock()

    def departure(self, arrived: float, size: int) -> float:
        """Return when bytes have left the wire that arrived at its start at a time."""
        with self.lock:
            start = max(arrived, self.free)
            self.free = start + (size / self.rate if self.rate else 0.0)
            return self.free + self.delay


class Relay:
    """Listen on a free port of loopback, and pass everything on to a target.

    Args:
        target: Host and port.
        delay: One way, in seconds, of both directions; `ways` has each.
        rate: Bytes per second of each direction; None for no limit.
        port: To listen at; 0 takes a free one.
    """

    def __init__(
        self,
        target: tuple[str, int],
        *,
        delay: float = 0.0,
        rate: float | None = None,
        port: int = 0,
    ):
        self.target = target
        self.ways: dict[Direction, Way] = {
            "forward": Way(delay, rate),
            "backward": Way(delay, rate),
        }
        self.connections = 0
        self._wire = threading.Event()
        self._wire.set()
        self._open: list[_Connection] = []
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", port))
        self.address: tuple[str, int] = self._server.getsockname()[:2]
        self._refusing = False
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def counts(self) -> dict[Direction, int]:
        """Bytes that were handed on, of each direction."""
        return {direction: way.count for direction, way in self.ways.items()}

    def slow(self, *, delay: float | None = None, rate: float | None = None) -> None:
        """Change the delay or rate of both directions from now on."""
        for way in self.ways.values():
            with way.lock:
                way.delay = way.delay if delay is None else delay
                way.rate = way.rate if rate is None else rate

    def stall(self) -> None:
        """Hand nothing on, with connections left open, until `resume`."""
        self._wire.clear()

    def resume(self) -> None:
        """End a stall, and accept connections again after `cut`."""
        self._refusing = False
        self._wire.set()

    def cut(self, *, refuse: bool = False) -> None:
        """Reset all connections; with `refuse`, new ones as well until `resume`."""
        self._refusing = refuse
        with self._lock:
            cut, self._open = self._open, []
        for connection in cut:
            connection.reset()

    def inject(self, data: bytes, direction: Direction = "forward") -> int:
        """Put bytes into every open connection; return into how many."""
        with self._lock:
            current = [one for one in self._open if one.alive]
        for connection in current:
            connection.inject(data, direction)
        return len(current)

    def close(self) -> None:
        """End everything."""
        self._refusing = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._acceptor.join(timeout=PATIENCE)
        self.cut(refuse=True)
        self._wire.set()

    def wait(self) -> None:
        """Wait while the wire is stalled."""
        self._wire.wait()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                if self._refusing:
                    raise ConnectionRefusedError
                far = socket.create_connection(self.target, timeout=PATIENCE)
            except OSError:
                _reset(near)
                continue
            self.connections += 1
            connection = _Connection(self, near, far)
            with self._lock:
                self._open = [one for one in self._open if one.alive]
                self._open.append(connection)
            connection.start()


class _Connection:
    """Two sockets and a queue each way."""

    def __init__(self, relay: Relay, near: socket.socket, far: socket.socket):
        self.relay, self.sockets = relay, (near, far)
        for each in self.sockets:
            each.settimeout(None)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.queues: dict[Direction, _Queue] = {
            "forward": _Queue(relay.ways["forward"]),
            "backward": _Queue(relay.ways["backward"]),
        }

    def start(self) -> None:
        near, far = self.sockets
        for direction, source, sink in (
            ("forward", near, far),
            ("backward", far, near),
        ):
            queue = self.queues[direction]
            for work, end in ((self._read, source), (self._write, sink)):
                threading.Thread(target=work, args=(queue, end), daemon=True).start()

    def inject(self, data: bytes, direction: Direction) -> None:
        self.queues[direction].put(data)

    def reset(self) -> None:
        for each in self.sockets:
            _reset(each)
        for queue in self.queues.values():
            queue.end()

    @property
    def alive(self) -> bool:
        return not all(queue.ended for queue in self.queues.values())

    def _read(self, queue: _Queue, source: socket.socket) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(_PIECE)
            except OSError:
                self.reset()
                return
            queue.put(data)

    def _write(self, queue: _Queue, sink: socket.socket) -> None:
        while (entry := queue.get()) is not None:
            due, data = entry
            time.sleep(max(0.0, due - time.monotonic()))
            self.relay.wait()
            try:
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    break
                queue.count(len(data))
                sink.sendall(data)
            except OSError:
                self.reset()
                return
            queue.sent(len(data))
        queue.end()
        if not self.alive:
            for each in self.sockets:
                each.close()


class _Queue:
    """What is on the way in one direction of a connection."""

    def __init__(self, way: Way):
        self.way = way
        self.entries: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.changed = threading.Condition()
        self.ended = False

    def put(self, data: bytes) -> None:
        """Add what has arrived; b"" is the end of the sender's stream."""
        with self.changed:
            self.changed.wait_for(lambda: self.size < self.way.window or self.ended)
            due = self.way.departure(time.monotonic(), len(data))
            self.entries.append((due, data))
            self.size += len(data)
            self.changed.notify_all()

    def get(self) -> tuple[float, bytes] | None:
        """Return the next bytes and when they are due; None once it has ended."""
        with self.changed:
            self.changed.wait_for(lambda: self.entries or self.ended)
            return None if self.ended else self.entries.popleft()

    def count(self, size: int) -> None:
        with self.way.lock:
            self.way.count += size

    def sent(self, size: int) -> None:
        with self.changed:
            self.size -= size
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()


def _reset(one: socket.socket) -> None:
    """Close a socket so that the other end sees a reset."""
    with contextlib.suppress(OSError):
        # Linger for no time: RST instead of FIN.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RD)
    one.close()


def echo_server() -> tuple[socket.socket, int]:
    """Return a listening socket whose connections send back what they get."""
    server = socket.create_server(("127.0.0.1", 0))

    def echo(one: socket.socket) -> None:
        with one, contextlib.suppress(OSError):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := one.recv(_PIECE):
                one.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = server.accept()
                threading.Thread(target=echo, args=(one,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return server, server.getsockname()[1]


def round_trip(relay: Relay, times: int = 5) -> float:
    """Return the median seconds of a round trip of one byte to an echo server."""
    seconds = []
    with socket.create_connection(relay.address, timeout=PATIENCE) as one:
        for _ in range(times):
            start = time.perf_counter()
            one.sendall(b"x")
            one.recv(1)
            seconds.append(time.perf_counter() - start)
    return sorted(seconds)[times // 2]


def goodput(relay: Relay, size: int) -> float:
    """Return bytes per second, there and back, of so many bytes to an echo server."""
    with socket.create_connection(relay.address, timeout=PATIENCE) as one:
        sender = threading.Thread(target=one.sendall, args=(bytes(size),))
        start, left = time.perf_counter(), size
        sender.start()
        while left:
            left -= len(one.recv(min(left, _PIECE)))
        sender.join()
        return size / (time.perf_counter() - start)


def main() -> None:
    """Print delays and rates as set and as measured."""
    server, port = echo_server()
    with server:
        for delay in (0.0, 0.001, 0.01, 0.05, 0.1):
            with Relay(("127.0.0.1", port), delay=delay) as relay:
                found = 1e3 * round_trip(relay, 9)
            sys.stdout.write(f"2 x {1e3 * delay:g} ms: {found:.2f} ms a round trip\n")
        for rate in (1e6, 10e6, 100e6, None):
            size = round(min(1.5 * (rate or 100e6), 100e6))
            with Relay(("127.0.0.1", port), rate=rate) as relay:
                found = goodput(relay, size) / 1e6
            asked = "no limit" if rate is None else f"{rate / 1e6:g} MB/s"
            sys.stdout.write(f"{asked}: {found:.2f} MB/s of {size / 1e6:g} MB\n")


if __name__ == "__main__":
    main()
