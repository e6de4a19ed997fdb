"""The network side of a party: TLS 1.3 to its peers, Unix sockets to the engine.

SPU's link does TLS, and takes messages without it on the same port as well: brpc tells
the two apart by the first bytes, and yacl does not forbid the second
(tests/mpc_bridge/test_link.py). Anybody who reaches the port could put messages into a
run. So the link listens in a folder of this user alone, and this process carries its
connections: what comes from the network must first show a peer's certificate.

    engine -- unix:to-1 -> tunnel == TLS ==> tunnel -- unix:engine -> engine

A connection of the engine is one of TLS. Both ends being Python's `ssl`, an error says
what is wrong, and a peer that has not started is told from one that refuses. Messages
are not looked into: of three parties, one could sign its own as another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from mpc_bridge._certificate import Certificate, same_fingerprint
from mpc_bridge._certs import Credentials
from mpc_bridge._handshake import SessionError, disagreement
from mpc_bridge._private import hold_folder, remove_folder

from ._door import (
    HANDSHAKE,
    OUT_OF_FILES,
    PIECE,
    Door,
    no_files_left,
    strangers_allowed,
)
from ._meet import CARRY, LOOK, Board, greeting, said_in
from ._tls import (
    EndedError,
    NotThereError,
    PeerError,
    RefusedError,
    context,
    explain,
    shown_by,
)

_T = TypeVar("_T")
_ONE_WAY = 12.0  # seconds, for a peer that reaches this party and can't be reached
_CROWDED = 120.0  # the same, for one that ends connections at once
_AGAIN = 0.1  # seconds until it is tried again
_TRIES = 5  # refusals in a row: one may be of a port that is crowded
_INSIST = 2.5  # seconds; then the engine tries again by itself
_DECLINED = 5.0  # seconds, in which those who wait look twice
_MOST_OF_PEER = 128  # connections


class Tunnel:
    """Carry the engine's connections to and from the peers.

    Args:
        credentials: Of this party, with all peers of the session.
        rank: Of this party.
        parties: Of each rank the name and the address, "host:port"; names of peers are
            those of their certificates.
        hello: What must be the same for all parties, by name: public, and JSON.
        listen: Where this party listens, if not at its own address.
        timeout: In seconds, until an engine that has not started is given up.

    Attributes:
        hosts: Addresses for the engine's link, by rank.
        sent: Bytes of the engine that went to each peer, by rank.
        received: Bytes for the engine that came from each peer, by rank.
        failure: Why the last connection to a peer could not be made; "" if all could.

    Raises:
        SessionError: If its address can't be listened at.
        ValueError: If a peer is none of the credentials'.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        rank: int,
        parties: Sequence[tuple[str, str]],
        hello: Mapping[str, Any] | None = None,
        listen: str | None = None,
        timeout: float = 60.0,
    ):
        known = {peer.name: peer for peer in credentials.peers}
        self._peers: dict[int, Certificate] = {}
        for i, (name, _) in enumerate(parties):
            if i != rank:
                if name not in known:
                    raise ValueError(
                        f"parties[{i}] must be one of {list(known)}, got {name!r}"
                    )
                self._peers[i] = known[name]
        self._addresses = [_address(address) for _, address in parties]
        self._own, self._rank = credentials.own, rank
        self._hello = dict(hello or {})
        self._greeting = greeting(self._hello)
        strangers = strangers_allowed()
        self._timeout = timeout
        self._client = context(credentials)
        server = context(credentials, server=True)
        self._door = Door(server, self._from_peer, strangers)
        self._board = Board(self._peers, lambda: self._door.refused)
        self._carried = dict.fromkeys(self._peers, 0)
        self._folder = hold_folder("wire", for_sockets=True)
        self._sockets = [self._folder / f"to-{i}" for i in range(len(parties))]
        self._sockets[rank] = self._folder / "engine"
        self.hosts = [f"unix:{path}" for path in self._sockets]
        self._engine = self._sockets[rank]
        self.sent = dict.fromkeys(self._peers, 0)
        self.received = dict.fromkeys(self._peers, 0)
        self.failure = ""
        self._servers: list[asyncio.Server] = []
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        address = self._addresses[rank] if listen is None else _address(listen)
        try:
            self._call(self._open(*address))
        except OSError as error:
            self.close()
            text = error.strerror or str(error)
            raise SessionError(
                f"this party can't listen at {address[0]}:{address[1]}: {text}"
            ) from None

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def meet(self, wait: float) -> None:
        """Wait until all parties have started, and each has accepted each other one.

        Args:
            wait: In seconds.

        Raises:
            PeerError: At once, if somebody else answers, a peer refuses, or its hello
                is another; within seconds, if a peer has found something wrong, or
                reaches this party and can't be reached. All that are there hear of it.
            SessionError: If a peer has not started by then.
        """
        self._call(self._meet(wait))

    def decline(self, reason: str) -> None:
        """Tell parties that wait for this one why it does not come; takes seconds."""
        self._call(self._board.end(reason, stay=True, patience=_DECLINED))

    def close(self) -> None:
        """End all connections, and remove the sockets: before `os._exit` as well."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        remove_folder(self._folder)

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self, host: str, port: int) -> None:
        expected = [self._addresses[rank][0] for rank in self._peers]
        await self._door.open(host, port, expected)
        for rank in self._peers:
            local = await asyncio.start_unix_server(
                lambda reader, writer, rank=rank: self._to_peer(rank, reader, writer),
                self._sockets[rank],
                limit=PIECE,
            )
            self._servers.append(local)

    async def _close(self) -> None:
        await self._door.close()
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # for the sockets' own ends
        for writer in self._writers:
            writer.transport.abort()  # an end of TLS that the peer does not answer
        await asyncio.sleep(0.01)

    async def _meet(self, wait: float) -> None:
        board = self._board
        looks = [asyncio.ensure_future(self._look(rank)) for rank in self._peers]
        ready = asyncio.ensure_future(board.all_ready.wait())
        try:
            ended, _ = await asyncio.wait(
                {ready, *looks}, timeout=wait, return_when=asyncio.FIRST_COMPLETED
            )
            if not ended:
                raise SessionError(
                    f"{self.failure or 'not all parties are ready'} (waited {wait:g} s)"
                )
            if ready not in ended:
                await ended.pop()  # which raises
        except SessionError as error:
            await board.end(str(error), stay=isinstance(error, PeerError))
            raise
        finally:
            for task in (ready, *looks):
                task.cancel()
            await asyncio.gather(ready, *looks, return_exceptions=True)
        self.failure = ""

    async def _look(self, rank: int) -> None:
        """Look at a peer until it ends, or something is wrong with it."""
        name, pause = self._peers[rank].name, 0.1
        refusals: list[RefusedError] = []
        while True:
            longest = 2.0
            try:
                reader, writer = await self._dial(rank, LOOK)
                refusals.clear()
                try:
                    reason = await self._board.watch(rank, reader)
                except ValueError:
                    raise PeerError(
                        f"{name!r} sends a line of more than {PIECE} bytes"
                    ) from None
                finally:
                    writer.close()
                if reason is not None:
                    raise PeerError(f"{name!r} has ended: {reason}")
                self.failure = f"{name!r} has left"
            except RefusedError as error:
                self.failure = str(error)
                if rank in self._board.looking:  # it trusts this party: a crowded port
                    longest = _AGAIN
                else:
                    refusals.append(error)
            except PeerError:
                self._board.wrong.add(rank)
                raise
            except NotThereError as error:
                self.failure = str(error)
                refusals += refusals[:1]  # who refuses may be gone by now
                since = self._board.looking.get(rank)
                patience = _ONE_WAY
                if isinstance(error, EndedError):
                    patience, longest = _CROWDED, _AGAIN
                if since is not None and self._loop.time() - since > patience:
                    raise PeerError(
                        f"{error}, though it reaches this party: its address, or where "
                        "it listens, is wrong, or a firewall is in between"
                    ) from None
            except OSError:
                self.failure = f"{name!r} was cut off"
            if len(refusals) >= _TRIES:
                self._board.wrong.add(rank)
                raise refusals[0]
            # At random, so that two that wait don't move in step.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, longest)

    async def _dial(
        self, rank: int, purpose: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a peer; it has accepted this party once it has greeted."""
        peer, (host, port) = self._peers[rank], self._addresses[rank]
        where, writer = f"{peer.name!r} at {host}:{port}", None
        try:
            async with asyncio.timeout(HANDSHAKE):
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=self._client, limit=PIECE
                )
                self._writers.add(writer)
                try:
                    line = await reader.readline()
                except ValueError:
                    line = b"too long"
                if not line:
                    raise EOFError
        except (OSError, EOFError) as error:
            if writer is None:
                raise await asyncio.to_thread(
                    explain, error, peer, host, port, timeout=HANDSHAKE
                ) from None
            # In TLS 1.3 a refusal comes after this side's handshake, and as an end:
            # asyncio sends no alert.
            writer.transport.abort()
            if isinstance(error, TimeoutError):
                raise NotThereError(f"{where} does not answer") from None
            raise RefusedError(
                f"{where} does not accept this party's "
                f"certificate, {self._own.fingerprint}, or is ending"
            ) from None
        shown = shown_by(writer.get_extra_info("ssl_object"))
        wrong = None
        if not same_fingerprint(shown, peer.fingerprint):
            wrong = f"{where} is another party of this session: {shown}"
        elif problem := disagreement(self._hello, said_in(line), (self._rank, rank)):
            wrong = f"{where}: {problem}"
        if wrong is not None:
            writer.transport.abort()
            raise PeerError(wrong)
        writer.write(purpose)
        return reader, writer

    async def _dial_crowded(
        self, rank: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a peer, again for a moment if its port is crowded."""
        end = self._loop.time() + _INSIST
        while True:
            try:
                return await self._dial(rank, CARRY)
            except EndedError:
                if self._loop.time() > end:
                    raise
            await asyncio.sleep(_AGAIN * random.uniform(0.5, 1.0))

    async def _to_peer(
        self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_writer = None
        try:
            far_reader, far_writer = await self._dial_crowded(rank)
            await _carry(
                _pump(reader, far_writer, self.sent, rank),
                _pump(far_reader, writer, self.received, rank),
            )
        except SessionError as error:
            self.failure = str(error)
        except asyncio.CancelledError:
            return  # closing: asyncio's streams would print it
        finally:
            _end(writer, far_writer)

    async def _from_peer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        near_writer = None
        self._writers.add(writer)
        shown = shown_by(writer.get_extra_info("ssl_object"))
        rank = next(
            (
                rank
                for rank, peer in self._peers.items()
                if same_fingerprint(shown, peer.fingerprint)
            ),
            None,
        )
        if rank is None:  # of an authority that was trusted by mistake
            self._door.refused += 1
            writer.close()
            return
        if self._carried[rank] >= _MOST_OF_PEER:
            name = self._peers[rank].name
            self.failure = f"{name!r} has more than {_MOST_OF_PEER} connections open"
            writer.close()
            return
        self._carried[rank] += 1
        try:
            writer.write(self._greeting)
            purpose = await asyncio.wait_for(reader.readline(), HANDSHAKE)
            if purpose == LOOK:
                await self._board.show(rank, reader, writer)
            elif purpose != CARRY:
                self._board.heard(rank)
            else:
                near_reader, near_writer = await self._to_engine()
                await _carry(
                    _pump(reader, near_writer, self.received, rank),
                    _pump(near_reader, writer, self.sent, rank),
                )
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                self.failure = no_files_left()
        except (ValueError, asyncio.CancelledError):
            return  # a line that is too long, or closing
        finally:
            self._carried[rank] -= 1
            _end(writer, near_writer)

    async def _to_engine(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to this party's engine, which may start a moment later."""
        async with asyncio.timeout(self._timeout):
            while True:
                try:
                    return await asyncio.open_unix_connection(self._engine, limit=PIECE)
                except (FileNotFoundError, ConnectionRefusedError):
                    await asyncio.sleep(0.02)


async def _carry(*ways: Coroutine[Any, Any, None]) -> None:
    """Carry both directions until one ends."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _end(*writers: asyncio.StreamWriter | None) -> None:
    for writer in writers:
        if writer is not None:
            writer.close()


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    count: dict[int, int],
    rank: int,
) -> None:
    while data := await reader.read(PIECE):
        count[rank] += len(data)  # before anybody can have seen them
        writer.write(data)
        await writer.drain()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"an address must be 'host:port', got {text!r}")
    return host, int(port)
