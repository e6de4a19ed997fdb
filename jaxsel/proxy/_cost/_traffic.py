"""Messages and bytes by party, of one operation or of many."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Iterable
from typing import Literal, get_args

from jaxsel._inputs.show import brief

EngineName = Literal["crypten", "spu-cheetah", "spu-aby3", "spu-aby3-128"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)


@brief
@dataclasses.dataclass(frozen=True)
class Traffic:
    """Messages and payload of the parties that compute: two, or three with a helper.

    Attributes:
        rounds: As the engine counts them: calls of CrypTen's communicator, or messages
            that a party of SPU waits for, the mean of the parties.
        waits: Latencies, one way, that pass one after the other; of CrypTen, rounds.
        sent: Bytes that each party sends, by rank: the model owner, the data owner,
            the helper. Where a public draw assigns the parties' roles, as in ABY3,
            the expectation.
        received: Bytes that each party receives.
    """

    rounds: float
    waits: float
    sent: tuple[float, ...]
    received: tuple[float, ...]

    @classmethod
    def equal(cls, rounds: float, each: float, parties: int = 2) -> Traffic:
        """Return rounds in which every party sends and receives as much."""
        return cls(rounds, rounds, (each,) * parties, (each,) * parties)

    @classmethod
    def sum(cls, parts: Iterable[Traffic]) -> Traffic:
        """Return the sum of one or more, one after the other."""
        return functools.reduce(operator.add, parts)

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.rounds + other.rounds,
            self.waits + other.waits,
            tuple(a + b for a, b in zip(self.sent, other.sent, strict=True)),
            tuple(a + b for a, b in zip(self.received, other.received, strict=True)),
        )

    def __mul__(self, times: float) -> Traffic:
        """Return as much this many times, one after the other."""
        return Traffic(
            self.rounds * times,
            self.waits * times,
            tuple(size * times for size in self.sent),
            tuple(size * times for size in self.received),
        )

    @property
    def bytes(self) -> float:
        """Bytes sent plus received by the owner who has more of both."""
        return max(a + b for a, b in zip(self.sent[:2], self.received[:2], strict=True))

    @property
    def one_way(self) -> float:
        """The most bytes that a party sends, or receives."""
        return max(*self.sent, *self.received)

    @property
    def total(self) -> float:
        """Bytes that all parties send."""
        return math.fsum(self.sent)


def check_engine(engine: str) -> EngineName:
    """Return the name of an engine, or raise if its costs are unknown.

    Args:
        engine: Such as "spu-aby3".

    Raises:
        ValueError: If there is no such engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    return engine
