"""The ledger of a secure run: its traffic, and the only place that opens secrets."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any, Literal

from ._compat import import_crypten

Opening = Literal["pivot", "mean", "above", "scores"]
OPENINGS: dict[Opening, str] = {
    "pivot": "which scores are above a pivot: one bit for each score that is left",
    "mean": "the mean score of what was chosen",
    "above": "whether that mean is at least a threshold: one bit",
    "scores": "scores themselves: in tests only",
}


@dataclasses.dataclass
class Spent:
    """Traffic of one party, sent plus received, the dealer's messages apart.

    Attributes:
        rounds: Calls of CrypTen's communicator between the two parties.
        bytes: Their payload.
        dealer_rounds: Calls to and from the third party.
        dealer_bytes: Their payload; party 0 alone asks it.
        seconds: Wall-clock time.
    """

    rounds: int = 0
    bytes: int = 0
    dealer_rounds: int = 0
    dealer_bytes: int = 0
    seconds: float = 0.0

    def add(self, other: Spent) -> None:
        for field in dataclasses.fields(self):
            more = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, more)


class Ledger:
    """Counts by step, and everything that was opened, of one party's run.

    CrypTen must be initialised. Between two steps nothing is counted.

    Attributes:
        steps: What each step took, by `(phase, place, name)`, in order.
        opened: Kind, phase and number of elements of each opening, in order.
        phase: The part of the run that steps are booked under.
    """

    def __init__(self, *, allow: tuple[Opening, ...] = ("pivot", "mean", "above")):
        crypten = import_crypten()
        from crypten.config import cfg

        cfg.communicator.verbose = True  # CrypTen counts only then
        self._communicator = crypten.communicator.get()
        self._dealer = (0, 0)
        if crypten.mpc.ttp_required():
            self._watch_dealer()
        self._allow = allow
        self.steps: dict[tuple[str, str, str], Spent] = {}
        self.opened: list[tuple[Opening, str, int]] = []
        self.phase = ""

    @contextlib.contextmanager
    def step(self, place: str, name: str) -> Iterator[None]:
        """Count what happens inside as one step."""
        before, dealt, start = self._counts(), self._dealer, time.perf_counter()
        yield
        rounds, size = (a - b for a, b in zip(self._counts(), before, strict=True))
        asked, got = (a - b for a, b in zip(self._dealer, dealt, strict=True))
        spent = Spent(
            rounds - asked, size - got, asked, got, time.perf_counter() - start
        )
        self.steps.setdefault((self.phase, place, name), Spent()).add(spent)

    def open(self, kind: Opening, secret: Any) -> Any:
        """Open a secret to both parties, float64, and note it.

        Raises:
            ValueError: If this run is not to open such a thing.
        """
        if kind not in self._allow:
            raise ValueError(f"kind must be one of {self._allow}, got {kind!r}")
        self.opened.append((kind, self.phase, secret.nelement()))
        # CrypTen's own decoding is one too low just above a negative whole number.
        return secret.reveal().double() / secret.encoder.scale

    def total(self, phase: str | None = None, place: str | None = None) -> Spent:
        """Return the sum over the steps of a phase and place; None for all of them."""
        total = Spent()
        for (of, at, _), spent in self.steps.items():
            if phase in (None, of) and place in (None, at):
                total.add(spent)
        return total

    def _counts(self) -> tuple[int, int]:
        return self._communicator.comm_rounds, int(self._communicator.comm_bytes)

    def _watch_dealer(self) -> None:
        """Tell the dealer's messages from the other party's: CrypTen adds them up."""
        from crypten.mpc.provider.ttp_provider import TTPClient

        client = TTPClient.get()
        ask = client.ttp_request

        @functools.wraps(ask)
        def counted(*args: Any, **kwargs: Any) -> Any:
            before = self._counts()
            result = ask(*args, **kwargs)
            pairs = zip(self._dealer, self._counts(), before, strict=True)
            self._dealer = tuple(sum_ + new - old for sum_, new, old in pairs)
            return result

        client.ttp_request = counted
