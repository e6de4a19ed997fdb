"""Openings: each party commits to its share before it sees another's.

A commitment is the SHA-256 hash of the share behind 32 random bytes, and of the
session, the number of the opening, the sender and the receiver: sent in another place,
or sent back, it is refused. Who opens last can't choose what is opened. It can still
shift a sum by an amount of its choice, unless another party holds a copy.

Cheetah's parties hold one part each. ABY3's party i holds the parts i and i + 1 of
three, so that each lacks one part, of which the two others have copies. One sends it,
the other the commitment alone, which tells whether its copy is the same.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpc_bridge._framing import pack, unpack
from mpc_bridge._handshake import ROLES, SessionError

from ._compat import import_spu
from ._link import one_sentence
from ._shares import head_of

COMMITMENT, SALT = 32, 32  # bytes
_COPIES = 2  # parts that ABY3's parties hold


class Openings:
    """The openings of a session, at one party, in their order.

    Args:
        rank: Of this party.
        drawn: Random bytes of each party by rank, of this session alone. Two parties
            use their own, so that what a third one has sent to each need not be alike.
        send: Send a message to a party, by rank.
        receive: Return the next message of a party.
    """

    def __init__(
        self,
        rank: int,
        drawn: Sequence[bytes],
        send: Callable[[int, bytes], None],
        receive: Callable[[int], bytes],
    ):
        self._rank, self._parties, self._drawn = rank, len(drawn), drawn
        self._send, self._receive = send, receive
        self._others = [other for other in range(len(drawn)) if other != rank]
        self._number = 0

    def open(self, share: Any, n: int) -> list[Any]:
        """Open an array to all parties, who call this together.

        Args:
            share: This party's share of SPU.
            n: Elements of the array.

        Returns:
            The shares of all parties by rank, with the description of this party's.

        Raises:
            SessionError: If a party sends what it has not committed to, or no share of
                this array: it is named. Nothing is opened then.
            RuntimeError: If a party sends nothing: it is named.
        """
        self._number += 1
        words = _Words(share, n)
        salts = {rank: secrets.token_bytes(SALT) for rank in self._others}
        for rank in self._others:
            part = words.part(self._which(self._rank, rank, words))
            self._send(rank, self._commit(self._rank, rank, salts[rank], words, part))
        commitments = {rank: self._from(rank, "commitment") for rank in self._others}
        for rank, commitment in commitments.items():
            if len(commitment) != COMMITMENT:
                raise self._refused(
                    rank,
                    f"sent {len(commitment)} bytes where its commitment of {COMMITMENT}"
                    " was due",
                )
        for rank in self._others:
            which = self._which(self._rank, rank, words)
            part = words.part(which) if self._in_full(which, words) else b""
            self._send(rank, pack([salts[rank], words.meta, part]))
        opened = {
            rank: self._read(rank, self._from(rank, "share"), words)
            for rank in self._others
        }
        parts = {
            rank: part
            for rank, (_, part) in opened.items()
            if self._in_full(self._which(rank, self._rank, words), words)
        }
        for rank, (salt, _) in opened.items():
            # Who sends no part has committed to a copy of the one that is sent.
            part = parts.get(rank, next(iter(parts.values())))
            expected = self._commit(rank, self._rank, salt, words, part)
            if not secrets.compare_digest(commitments[rank], expected):
                if rank in parts:
                    raise self._refused(rank, "sent a share that it did not commit to")
                (sender,) = parts
                raise self._refused(
                    rank, f"has another copy of a share than the {ROLES[sender]} sent"
                )
        return self._shares(words, parts)

    def _shares(self, mine: _Words, parts: dict[int, bytes]) -> list[Any]:
        """Return all shares, of this party's words and the others' parts."""
        if mine.copies < _COPIES:
            held = [parts.get(rank, mine.part(0)) for rank in range(self._parties)]
            return [mine.share([part]) for part in held]
        (lacked,) = parts.values()
        by_number = [mine.part(0), mine.part(1), lacked]
        by_number = [by_number[(i - self._rank) % 3] for i in range(3)]
        return [mine.share([by_number[i], by_number[(i + 1) % 3]]) for i in range(3)]

    def _which(self, sender: int, receiver: int, mine: _Words) -> int:
        """Return which of the sender's parts the receiver lacks."""
        if mine.copies < _COPIES:
            return 0
        return int((receiver + 1) % self._parties == sender)

    def _in_full(self, which: int, mine: _Words) -> bool:
        return which == mine.copies - 1

    def _read(self, rank: int, message: bytes, mine: _Words) -> tuple[bytes, bytes]:
        """Return the salt and the part of a message that opens."""
        try:
            salt, meta, part = unpack(message)
        except ValueError:
            raise self._refused(rank, "sent no share") from None
        if meta != mine.meta:
            raise self._refused(rank, "sent a share of another type or shape")
        which = self._which(rank, self._rank, mine)
        size = len(mine.part(which)) if self._in_full(which, mine) else 0
        if len(salt) != SALT or len(part) != size:
            raise self._refused(
                rank,
                f"sent a share of {len(part)} bytes behind {len(salt)}, where {size} "
                f"behind {SALT} were due",
            )
        return salt, part

    def _commit(
        self, sender: int, receiver: int, salt: bytes, mine: _Words, part: bytes
    ) -> bytes:
        place = [self._number, sender, receiver]
        context = [self._drawn[sender], self._drawn[receiver]]
        context += [b"%d" % number for number in place]
        hashed = pack([b"jaxsel opening", *context, salt, mine.meta, part])
        return hashlib.sha256(hashed).digest()

    def _from(self, rank: int, what: str) -> bytes:
        try:
            return self._receive(rank)
        except RuntimeError as error:
            raise RuntimeError(
                f"opening {self._number}, waiting for the {ROLES[rank]}'s {what}: "
                f"{one_sentence(error)}"
            ) from error

    def _refused(self, rank: int, why: str) -> SessionError:
        return SessionError(
            f"opening {self._number} is refused: the {ROLES[rank]} {why}; it does not "
            "follow the protocol, or the connection is damaged"
        )


class _Words:
    """The words of a share, without the framing of SPU's messages.

    Attributes:
        meta: Type and shape, as SPU writes them.
        copies: Parts that this party holds of each element, 1 or 2.
    """

    def __init__(self, share: Any, n: int):
        self.meta = share.meta
        self.copies = _COPIES if b"aby3." in share.meta else 1
        chunks = share.share_chunks
        self._heads = [head_of(chunk) for chunk in chunks]
        contents = [c[len(h) :] for c, h in zip(chunks, self._heads, strict=True)]
        self._ends = np.cumsum([*map(len, contents)])[:-1]
        words = np.frombuffer(b"".join(contents), np.uint8)
        self._words = words.reshape(n, self.copies, -1)
        # What stands above the bit of a boolean is nobody's concern.
        self._bits = share.meta.endswith(b",1>")

    def part(self, which: int) -> bytes:
        """Return one of the parts that this party holds; bits eight to a byte."""
        words = self._words[:, which]
        return np.packbits(words[:, 0] & 1).tobytes() if self._bits else words.tobytes()

    def share(self, parts: Sequence[bytes]) -> Any:
        """Return SPU's share of this array that holds these parts."""
        words = np.zeros_like(self._words)
        for which, part in enumerate(parts):
            data = np.frombuffer(part, np.uint8)
            if self._bits:
                words[:, which, 0] = np.unpackbits(data, count=len(words))
            else:
                words[:, which] = data.reshape(len(words), -1)
        contents = np.split(words.ravel(), self._ends)
        share = import_spu().Share()
        share.meta = self.meta
        share.share_chunks = [
            head + content.tobytes()
            for head, content in zip(self._heads, contents, strict=True)
        ]
        return share
