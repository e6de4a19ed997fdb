"""A meeting over the tunnel: all parties have met all, or all of them hear why not.

Each party looks at each other's port. On a connection that looks, the one who listens
says line by line

    jaxsel tunnel 2 {"session.name": ...}    what must be the same for all
    ready                                    once it has met all others
    ended ...                                if it gives up, and why

Nobody goes on before all are ready, and who gives up stays until the others have heard:
one that finds something wrong would leave them to wait for a party that never comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mpc_bridge._handshake import printable

VERSION = b"jaxsel tunnel 2 "
LOOK, CARRY = b"look\n", b"carry\n"
"""What a connection is for: its first line, from the one who connects."""

_READY, _ENDED = b"ready\n", b"ended "
_LINGER = 15.0  # seconds, for those who are starting
_PAUSE = 0.02
_REASON = 600  # characters


def greeting(hello: Mapping[str, Any]) -> bytes:
    """Return the first line of the one who listens."""
    return VERSION + json.dumps(hello).encode() + b"\n"


def said_in(line: bytes) -> Any:
    """Parse a peer's greeting; None if it isn't one of this version."""
    if not line.startswith(VERSION) or not line.endswith(b"\n"):
        return None
    try:
        return json.loads(line[len(VERSION) :])
    except (ValueError, RecursionError):
        return None


class Board:
    """One party's published state, and the states of its peers.

    Lives in the tunnel's event loop.

    Args:
        peers: Their ranks.
        refused: Return how many connections were no peer's.

    Attributes:
        looking: When each peer looked first, by rank, in the loop's time.
        wrong: Ranks at whose address something is wrong.
    """

    def __init__(self, peers: Iterable[int], refused: Callable[[], int]):
        self._peers, self._refused = frozenset(peers), refused
        self._met: set[int] = set()
        self._ready: set[int] = set()
        self._told: set[int] = set()
        self._line = b""
        self._changed = asyncio.Event()
        self.looking: dict[int, float] = {}
        self.wrong: set[int] = set()
        self.all_ready = asyncio.Event()

    async def show(
        self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Tell a peer that looks, for as long as it does."""
        self.looking.setdefault(rank, asyncio.get_running_loop().time())
        self._told.discard(rank)
        leaving, line = asyncio.ensure_future(reader.read(1)), b""
        try:
            while not leaving.done():
                changed = asyncio.ensure_future(self._changed.wait())
                if line != self._line:
                    line = self._line
                    writer.write(line)
                    await writer.drain()
                if line.startswith(_ENDED):
                    self._told.add(rank)
                await asyncio.wait({leaving, changed}, return_when="FIRST_COMPLETED")
                changed.cancel()
        finally:
            leaving.cancel()
            self._told.add(rank)  # or it comes again

    def heard(self, rank: int) -> None:
        """Note that a peer has read the greeting, and does not stay for more."""
        self._told.add(rank)

    async def watch(self, rank: int, reader: asyncio.StreamReader) -> str | None:
        """Record the messages of a watched peer until it leaves.

        Returns:
            Why it ended; None if it did not say.
        """
        self._met.add(rank)
        if self._met == self._peers:
            self._say(_READY)
        while (line := await reader.readline()).endswith(b"\n"):
            if line == _READY:
                self._ready.add(rank)
                if self._ready == self._peers:
                    self.all_ready.set()
            elif line.startswith(_ENDED):
                self._told.add(rank)
                text = line[len(_ENDED) :].decode(errors="replace").strip()
                return printable(text, _REASON)
        return None

    async def end(
        self, reason: str, *, stay: bool, patience: float | None = None
    ) -> None:
        """Tell all peers that this party gives up.

        Args:
            reason: Why.
            stay: Whether to wait, some seconds, for peers that have not heard.
            patience: In seconds, at most; None for those who are starting.
        """
        longest = _LINGER if patience is None else patience
        self._say(_ENDED + printable(reason, _REASON).encode() + b"\n")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest if stay else 5 * _PAUSE):
                while not self._all_know():
                    await asyncio.sleep(_PAUSE)
        await asyncio.sleep(_PAUSE)  # for what was written last

    def _all_know(self) -> bool:
        # Who is refused can't be told from a stranger, and knows by that.
        missing = self._peers - self._told
        return missing <= self.wrong and len(missing) <= self._refused()

    def _say(self, line: bytes) -> None:
        self._line, changed, self._changed = line, self._changed, asyncio.Event()
        changed.set()
