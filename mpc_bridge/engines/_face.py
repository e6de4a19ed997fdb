"""The interface of an engine: the operations that a secure session uses.

An engine is one party's side of a protocol. It shares arrays, runs programs on shares,
reveals results and counts what it sends. Sessions, choices, appraisals, ledgers and
results are written once, above it.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from jaxsel.proxy import Operation, Steps

Secret = Any
"""A secret array, in an engine's own form; `Engine.shape` tells its shape."""

MODEL_OWNER, DATA_OWNER, THIRD_PARTY = 0, 1, 2
"""Ranks of the roles."""

FEWEST_BITS = 8
"""Fraction bits below which scores say little."""

Book = Callable[[str, str], contextlib.AbstractContextManager[None]]
"""Books what is sent inside under the place and the name of a step."""


@dataclasses.dataclass(frozen=True)
class Unseen:
    """An array of another party: its shape, and whether it is of numbers or bits."""

    shape: tuple[int, ...]
    bits: bool = False


@dataclasses.dataclass(frozen=True)
class Program(abc.ABC):
    """A computation on shares, written once for all engines.

    A program is hashable: engines that compile do so once for each program and shapes.

    Attributes:
        place, name: Under which its cost is booked.
        padded: Which operands, public ones, an engine may lengthen by repeating their
            last entry, so that few shapes occur; the result grows with them.
    """

    place: ClassVar[str]
    name: ClassVar[str]
    padded: ClassVar[tuple[int, ...]] = ()

    @abc.abstractmethod
    def steps(self, cat: Callable[[Sequence[Any]], Any], *operands: Any) -> Steps:
        """Yield the operations that communicate, and return the result.

        See `jaxsel.proxy.secure_steps` for what operands can do. They may also be
        indexed by a public array of rows.

        Args:
            cat: Join operands along the last axis.
            operands: Secrets, and public arrays.
        """

    def schedule(self) -> tuple[Operation, ...] | None:
        """Return the operations if they are known beforehand: batches run in step."""
        return None


@dataclasses.dataclass(frozen=True)
class Count:
    """A party's messages and bytes so far.

    Attributes:
        rounds: Messages that it waited for, or calls of CrypTen's communicator.
        bytes: Payload that it sent plus received.
        dealer_rounds, dealer_bytes: The same with a dealer of randomness, apart.
        sent: Of the bytes, what it sent.
    """

    rounds: int = 0
    bytes: int = 0
    dealer_rounds: int = 0
    dealer_bytes: int = 0
    sent: int = 0

    def __sub__(self, other: Count) -> Count:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Count(*(after - before for after, before in pairs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Meeting:
    """Where and how the parties of a session meet.

    Attributes:
        session: The name of the session.
        rendezvous: Where CrypTen's parties meet, "tcp://host:port".
        addresses: "host:port" of each party by rank, where it listens, of SPU's.
        names: Of the parties by rank, as their certificates have them.
        certificates: This party's folder of `certs`, of SPU's.
        listen: Where this party listens, if not at its own address.
        timeout: Of every wait for a message, in seconds.
        wait: For the others to start, in seconds.
        hello: What must be the same for all that meet, by name: public, and JSON.
        declines: Why this party does not come: only that is told; "" if it does. SPU's
            engines know of it.
        give_up: End this process with a sentence that says why, for an engine whose
            call does not return; None if that is not to be done.
        test_only_first_party: CrypTen without a third party, which protects nothing.
    """

    session: str
    rendezvous: str | None = None
    addresses: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    certificates: Path | None = None
    listen: str | None = None
    timeout: float = 60.0
    wait: float = 1800.0
    hello: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    declines: str = ""
    give_up: Callable[[str], None] | None = None
    test_only_first_party: bool = False


class Engine(abc.ABC):
    """One party's side of a protocol, connected to the others.

    Attributes:
        name: As `[session] engine` names it.
        notice: What it does not protect from, in sentences.
        roles: Ranks that take part in a session.
        parties: How many of them compute on shares, the first ones.
        lanes: Batches that `run` is best given at once; `lanes_for` knows more.
        ring: Bits of a number in it.
        most_bits: Fraction bits that it is best given, where numbers are small.
        fewest_bits: Those that it can be given, where numbers are large.
        spare_bits: By how many bits attention's weights are folded larger than they
            are, to keep their digits: where larger products are cut back as safely.
        exact_cut: Whether a product below the ring's limit is always cut back to its
            digits, and never comes out wild.
        switches: Whether scores are shuffled by networks of switches, which each party
            sets for itself by bits that it shares, and not by the operation "highest".
        watches: Whether samples with numbers beyond the manifest's bounds are counted.
        published: Whether the data owner has the proxies too.
        own_process: Whether a role needs a process of its own, which it may end.
        rank: Of this party: 0 the model owner, 1 the data owner, 2 a third party.
    """

    name: ClassVar[str]
    notice: ClassVar[str]
    roles: ClassVar[tuple[int, ...]] = (MODEL_OWNER, DATA_OWNER)
    parties: ClassVar[int] = 2
    lanes: ClassVar[int] = 1
    ring: ClassVar[int] = 64
    most_bits: ClassVar[int] = 16
    fewest_bits: ClassVar[int] = FEWEST_BITS
    spare_bits: ClassVar[int] = 0
    exact_cut: ClassVar[bool] = True
    switches: ClassVar[bool] = False
    watches: ClassVar[bool] = False
    published: ClassVar[bool] = False
    own_process: ClassVar[bool] = False
    rank: int

    @classmethod
    @abc.abstractmethod
    def connect(
        cls, rank: int, meeting: Meeting
    ) -> contextlib.AbstractContextManager[Engine]:
        """Connect to the other parties, and disconnect at the end.

        Raises:
            SessionError: If there is no meeting.
        """

    @classmethod
    def serve(cls, rank: int, meeting: Meeting) -> None:
        """Play a role that does not compute on shares, until the session ends."""
        raise ValueError(f"rank must be below {cls.parties}, got {rank}")

    @classmethod
    @abc.abstractmethod
    def explain(cls, rank: int, error: BaseException) -> str | None:
        """Explain a transport error to a role; None for any other error."""

    @classmethod
    @abc.abstractmethod
    def versions(cls) -> dict[str, str]:
        """Return the versions that all parties must share, by package."""

    @abc.abstractmethod
    def exchange(self, message: bytes) -> list[bytes]:
        """Send a public message to all; return the messages of all parties by rank.

        Raises:
            ValueError: If what arrives is no such message.
        """

    def send(self, rank: int, message: bytes) -> None:
        """Send a message to one party alone, which calls `receive`."""
        raise ValueError(f"engine {self.name!r} sends to all parties only")

    def receive(self, rank: int) -> bytes:
        """Return the next message that a party has sent to this one alone."""
        raise ValueError(f"engine {self.name!r} sends to all parties only")

    @abc.abstractmethod
    def start(self, fraction_bits: int) -> None:
        """Set the fraction bits of all numbers, before anything is shared."""

    @abc.abstractmethod
    def share(self, owner: int, *arrays: np.ndarray | Unseen) -> tuple[Secret, ...]:
        """Share arrays that one party has; the others know their shapes."""

    @abc.abstractmethod
    def run(
        self, program: Program, lanes: Sequence[Sequence[Any]], book: Book
    ) -> list[Secret]:
        """Run a program on several batches' operands; return the result of each."""

    @abc.abstractmethod
    def reveal(self, secret: Secret) -> np.ndarray:
        """Open a secret: the only way by which one can leave. `Ledger.open` calls it.

        Returns:
            Numbers in float64, bits as booleans, whole numbers in int64.
        """

    @abc.abstractmethod
    def dump(self, secret: Secret) -> bytes:
        """Return this party's shares of a secret, to be kept on its own disk."""

    @abc.abstractmethod
    def load(self, data: bytes) -> Secret:
        """Restore a secret from the shares of `dump`; all parties call it together.

        Raises:
            ValueError: If the bytes are no such shares.
        """

    @abc.abstractmethod
    def join(self, secrets: Sequence[Secret]) -> Secret:
        """Join secrets along their first axis."""

    @abc.abstractmethod
    def shape(self, secret: Secret) -> tuple[int, ...]:
        """Return the shape of a secret.

        Raises:
            TypeError: If it is none of this engine.
        """

    @abc.abstractmethod
    def count(self) -> Count:
        """Return the traffic since the engine was made."""

    @classmethod
    @abc.abstractmethod
    def copies(cls, operation: Operation) -> int:
        """Return the words that an operation holds for each number it is given."""

    @classmethod
    def batch_for(cls, operations: Sequence[Operation], memory: int) -> int:
        """Return how many samples go through a schedule at once.

        Args:
            operations: Of the proxy.
            memory: Bytes for what depends on the batch.
        """
        most = 1
        for operation in operations:
            words = sum(
                math.prod(shape[1:]) for shape in operation.shapes if shape[0] == -1
            )
            most = max(most, words * cls.copies(operation))
        return max(1, memory // (cls.ring // 8 * most))

    @classmethod
    def lanes_for(cls, operations: Sequence[Operation]) -> int:
        """Return how many batches `run` is best given at once, of a schedule."""
        del operations
        return cls.lanes

    @classmethod
    def batch_of(cls, n: int, most: int, lanes: int) -> int:
        """Return the batch size for n samples, at most `most`."""
        del lanes
        return min(n, most)

    @property
    @abc.abstractmethod
    def fraction_bits(self) -> int:
        """Fraction bits of its numbers."""

    @abc.abstractmethod
    def terms(self) -> dict[str, Any]:
        """Return the terms that all parties must share, by name."""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Enter the context of a run, such as switched off gradients."""
        yield
