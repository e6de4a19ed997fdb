"""The ledger of a secure run: its traffic, and the only place that opens secrets."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ._journal import Journal, NoJournal
from .engines import Engine, Program, Secret, engine_of

Opening = Literal["outside", "pivot", "shuffled", "rows", "mean", "above", "scores"]
OPENINGS: dict[Opening, str] = {
    "outside": "how many samples left the proxy's bounds: one count a phase",
    "pivot": "which scores are above a pivot: one bit for each score that is left",
    "shuffled": "likewise, once no party knows whose score is where: a draw of chance",
    "rows": "the rows that were chosen, in an order that says nothing about scores",
    "mean": "the mean score of what was chosen",
    "above": "whether that mean is at least a threshold: one bit",
    "scores": "scores themselves: in tests only",
}


@dataclasses.dataclass
class Spent:
    """Traffic of one party, sent plus received, a dealer's messages apart.

    Attributes:
        rounds: As the engine counts them: calls of CrypTen's communicator, or messages
            that SPU waited for.
        bytes: Their payload.
        dealer_rounds: Calls to and from the dealer of CrypTen's randomness.
        dealer_bytes: Their payload; party 0 alone asks it.
        sent: Of the bytes, what this party sent.
        seconds: Wall-clock time.
    """

    rounds: int = 0
    bytes: int = 0
    dealer_rounds: int = 0
    dealer_bytes: int = 0
    sent: int = 0
    seconds: float = 0.0

    def add(self, other: Spent) -> None:
        for field in dataclasses.fields(self):
            more = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, more)


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=5)


class Ledger:
    """Counts by step, and everything that was opened, of one party's run.

    Between two steps nothing is counted; `uncounted` says what went then.

    Args:
        engine: Of the run; CrypTen, as it is initialised in this process, if None.
        allow: What this run may open.
        journal: Where shares and what was opened are kept, to go on after a kill.
        warn: Gets sentences for whoever runs this; None gives a `UserWarning`.

    Attributes:
        engine: What it counts and opens by.
        steps: What each step took, by `(phase, place, name)`, in order.
        opened: Kind, phase and number of elements of each opening, in order.
        phase: The part of the run that steps are booked under.
        outside: By phase, how many samples left the proxy's bounds, where that was
            counted.
    """

    def __init__(
        self,
        engine: Engine | None = None,
        *,
        allow: tuple[Opening, ...] = (
            "outside",
            "pivot",
            "shuffled",
            "rows",
            "mean",
            "above",
        ),
        journal: Journal | None = None,
        warn: Callable[[str], None] | None = None,
    ):
        self.engine = engine = engine or engine_of("crypten")()
        self._allow = allow
        self.journal = journal or NoJournal()
        self.journal.watch(self)
        self._start = engine.count()
        self.steps: dict[tuple[str, str, str], Spent] = {}
        self.opened: list[tuple[Opening, str, int]] = []
        self.warn = warn or _warn
        self.outside: dict[str, int] = {}
        self.phase = ""

    def state(self) -> dict[str, Any]:
        """Return its counts and openings as JSON can hold them, for the journal."""
        steps = [
            [*names, *dataclasses.astuple(spent)] for names, spent in self.steps.items()
        ]
        return {"steps": steps, "opened": self.opened}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up the counts and openings of a run that was killed."""
        self.steps = {
            (phase, place, name): Spent(*spent)
            for phase, place, name, *spent in state["steps"]
        }
        self.opened = [(kind, phase, size) for kind, phase, size in state["opened"]]

    @contextlib.contextmanager
    def step(self, place: str, name: str) -> Iterator[None]:
        """Count the traffic and time of the block as one step."""
        before, start = self.engine.count(), time.perf_counter()
        yield
        spent = Spent(
            **dataclasses.asdict(self.engine.count() - before),
            seconds=time.perf_counter() - start,
        )
        self.steps.setdefault((self.phase, place, name), Spent()).add(spent)

    def run(self, program: Program, *operands: Any) -> Secret:
        """Run a program on one batch's operands."""
        return self.run_lanes(program, [operands])[0]

    def run_lanes(
        self, program: Program, lanes: Sequence[Sequence[Any]]
    ) -> list[Secret]:
        """Run a program on several batches' operands."""
        return self.engine.run(program, lanes, self.step)

    def open(
        self, kind: Opening, secret: Secret, *, first: int | None = None
    ) -> np.ndarray:
        """Open a secret to the parties, and note it.

        Args:
            kind: What it is.
            secret: Of the engine.
            first: How many elements it has; those behind are repeated ones.

        Raises:
            ValueError: If this run is not to open such a thing.
        """
        if kind not in self._allow:
            raise ValueError(f"kind must be one of {self._allow}, got {kind!r}")
        shape = self.engine.shape(secret)
        if first is not None:
            shape = (min(first, shape[0]), *shape[1:])
        self.journal.opening((kind, self.phase, math.prod(shape)))
        opened = self.engine.reveal(secret)[:first]
        self.opened.append((kind, self.phase, opened.size))
        return opened

    def total(self, phase: str | None = None, place: str | None = None) -> Spent:
        """Return the sum over the steps of a phase and place; None for all of them."""
        total = Spent()
        for (of, where, _), spent in self.steps.items():
            if phase in (None, of) and place in (None, where):
                total.add(spent)
        return total

    @property
    def uncounted(self) -> int:
        """Bytes that went between steps: of terms, and of nothing else."""
        total = self.total()
        counted = total.bytes + total.dealer_bytes
        spent = self.engine.count() - self._start
        return spent.bytes + spent.dealer_bytes - counted
