"""The open port of a party, and the part of it that strangers may take.

Anybody who reaches the port can connect. A connection is a stranger's until it has
shown a peer's certificate; until then it holds a file descriptor, and a run that has
none left fails. So strangers get a part of the descriptors that are free, all together,
and ten seconds each. If more come, one of the network that has most connections makes
room: the oldest that has sent nothing, else any. A network that would then have as many
as any other gets room only as often as leaves a handshake half a second on average, and
is otherwise turned away at once: a flood from one network or from hundreds takes the
room from itself, and a peer that had to make room comes again. Networks in which peers
listen have room besides, so that no flood from elsewhere keeps them out.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import errno
import ipaddress
import os
import random
import resource
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterable

from mpc_bridge._handshake import SessionError

HANDSHAKE = 10.0  # seconds, from the connection to the certificate
PIECE = 1 << 18  # bytes
OUT_OF_FILES = errno.EMFILE, errno.ENFILE
_MOST = 256  # connections of strangers
_FEWEST_FREE = 64  # descriptors, of which strangers get a quarter
_BESIDES = 2  # what strangers get, divided by this, is for networks of peers alone
_BURST = 64  # connections that are accepted before any is served
_LIFE = 0.5  # seconds that a stranger has for its handshake under a flood, on average
_SILENT = 0.3  # seconds after which a peer would have sent something
_BACKLOG = 1024
_PAUSE = 0.5  # seconds without descriptors

Welcome = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def no_files_left() -> str:
    """Name the limit on open files, and its remedy, in a sentence."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"this process has used up its limit of {limit} open files: raise it with "
        "'ulimit -n'"
    )


def strangers_allowed() -> int:
    """Return how many connections without a certificate may be open at once.

    Raises:
        SessionError: If this process has too few free file descriptors for a run.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _MOST
    used = len(os.listdir("/dev/fd"))
    if limit - used < _FEWEST_FREE:
        raise SessionError(
            f"this process may open {limit} files at once and has opened {used}: a run "
            f"needs {_FEWEST_FREE} more; raise the limit with 'ulimit -n'"
        )
    return min(_MOST, (limit - used) // 4)


@dataclasses.dataclass(eq=False)
class _Stranger:
    """A connection that has shown no certificate.

    Attributes:
        socket: Of the connection.
        network: Where it comes from.
        arrived: When, in the loop's time.
        deadline: Closes it.
        handshake: Runs once it has sent something.
    """

    socket: socket.socket
    network: str
    arrived: float
    deadline: asyncio.TimerHandle | None = None
    handshake: asyncio.Task[None] | None = None


class Door:
    """Listen for peers, and limit the connections of strangers.

    Lives in the tunnel's event loop.

    Args:
        context: Of TLS, which accepts peers only.
        welcome: Called with the streams of each connection that it accepts.
        most: Connections of strangers that may be open at once, besides half as many
            from networks in which peers listen.

    Attributes:
        refused: How many handshakes have failed.
        trouble: Why connections can't be accepted at the moment; "" if they can.
    """

    def __init__(self, context: ssl.SSLContext, welcome: Welcome, most: int):
        self._context, self._welcome, self._most = context, welcome, most
        self._listeners: list[socket.socket] = []
        self._strangers: dict[_Stranger, None] = {}  # in the order of arrival
        self._tasks: set[asyncio.Task[None]] = set()
        self._expected: set[str] = set()
        # When one more of a network with as many as any may come, expected or not.
        self._next = {True: 0.0, False: 0.0}
        self.refused = 0
        self.trouble = ""

    async def open(self, host: str, port: int, expected: Iterable[str] = ()) -> None:
        """Listen at all addresses of a host.

        Args:
            host: Of this party.
            port: Of this party.
            expected: Hosts of peers, for whose networks room is kept.

        Raises:
            OSError: If one can't be listened at.
        """
        loop = asyncio.get_running_loop()
        places = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, address in dict.fromkeys((place[0], place[4]) for place in places):
            listener = socket.create_server(address, family=family, backlog=_BACKLOG)
            self._listeners.append(listener)
            listener.setblocking(False)
            loop.add_reader(listener, self._accept, listener)
        for peer in expected:
            self._keep(loop.create_task(self._expect(peer)))

    async def _expect(self, host: str) -> None:
        with contextlib.suppress(OSError):
            places = await asyncio.get_running_loop().getaddrinfo(host, None)
            self._expected.update(_network(str(place[4][0])) for place in places)

    async def close(self) -> None:
        """Stop listening, and close the connections of strangers."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()
        handshakes = [s.handshake for s in self._strangers if s.handshake]
        for stranger in list(self._strangers):
            self._turn_away(stranger)
        if handshakes:
            await asyncio.wait(handshakes, timeout=_PAUSE)

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_BURST):
            try:
                connection, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_FILES:
                    raise
                self._wait_for_files(listener)
                return
            self.trouble = ""
            network = _network(address[0])
            if not self._make_room(network):
                connection.close()
                continue
            connection.setblocking(False)
            stranger = _Stranger(connection, network, loop.time())
            stranger.deadline = loop.call_later(HANDSHAKE, self._turn_away, stranger)
            self._strangers[stranger] = None
            loop.add_reader(connection, self._hear, stranger)

    def _wait_for_files(self, listener: socket.socket) -> None:
        """Close the connections of strangers, and accept nobody for a moment."""
        if not self.trouble:
            sys.stderr.write(f"WARNING: {no_files_left()}\n")
            sys.stderr.flush()
        self.trouble = no_files_left()
        for stranger in list(self._strangers):
            self._turn_away(stranger)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)

        def resume() -> None:
            if listener in self._listeners:
                loop.add_reader(listener, self._accept, listener)

        loop.call_later(_PAUSE, resume)

    def _make_room(self, network: str) -> bool:
        """Return whether one more of a network can come, if another must leave."""
        expected, most = network in self._expected, self._most
        others = [s for s in self._strangers if s.network not in self._expected]
        if len(self._strangers) < most + most // _BESIDES and (
            expected or len(others) < most
        ):
            return True
        now = asyncio.get_running_loop().time()
        rivals = others if len(others) >= most and not expected else self._strangers
        counts = collections.Counter(s.network for s in rivals)
        largest = max(counts.values())
        crowd = [s for s in rivals if counts[s.network] == largest]
        silent = (s for s in crowd if not s.handshake and s.arrived < now - _SILENT)
        victim = next(silent, None)
        if victim is None and counts[network] + 1 >= largest:
            if now < self._next[expected]:
                return False
            self._next[expected] = now + _LIFE / len(rivals)
        self._turn_away(victim or random.choice(crowd))
        return True

    def _turn_away(self, stranger: _Stranger) -> None:
        self._forget(stranger)
        if stranger.handshake is None:
            asyncio.get_running_loop().remove_reader(stranger.socket)
            stranger.socket.close()
        else:
            # asyncio does not close a transport that is cancelled in its first step.
            with contextlib.suppress(OSError):
                stranger.socket.shutdown(socket.SHUT_RDWR)

    def _forget(self, stranger: _Stranger) -> None:
        self._strangers.pop(stranger, None)
        if stranger.deadline is not None:
            stranger.deadline.cancel()

    def _hear(self, stranger: _Stranger) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(stranger.socket)
        stranger.handshake = loop.create_task(self._shake_hands(stranger))
        self._keep(stranger.handshake)

    def _keep(self, task: asyncio.Task[None]) -> None:
        """Refer to a task until it ends, or it could be collected."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake_hands(self, stranger: _Stranger) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=PIECE)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, stranger.socket, ssl=self._context
            )
        except (OSError, ValueError) as error:
            self.refused += isinstance(error, ssl.SSLError)
            return
        finally:
            self._forget(stranger)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        await self._welcome(reader, writer)


def _network(address: str) -> str:
    """Return the network of an address: of IPv6 the 64 bits that one customer has."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address) or ip.ipv4_mapped is not None:
        return str(getattr(ip, "ipv4_mapped", None) or ip)
    return str(ipaddress.ip_network((ip, 64), strict=False))
