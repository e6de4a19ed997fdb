"""The result of a secure run and its cost, one JSON file in each party's folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ._ledger import Ledger, Spent

FORMAT, VERSION = "jaxsel secure run", 4
FILE = "result.json"

_COUNTED = (
    "rounds: calls of CrypTen's communicator between the two parties, or messages that "
    "SPU waited for; bytes: payload that this party sent plus received in them; sent: "
    "of these, what it sent; dealer_*: rounds and bytes with CrypTen's third party; "
    "seconds: wall-clock, of the whole from the party's start to its result"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """One phase.

    Attributes:
        samples: Rows that were scored.
        kept: Rows that it left.
        batch_size: Samples that were scored together.
        passes: Of the choice: batches of comparisons.
        comparisons: In all passes.
        wild: Numbers of the scoring that came out wild, as expected at least: 0 where
            the engine's cutting back does not fail below the ring's limit.
        outside: Samples that left the proxy's bounds, and were ranked last; None where
            none can, or nothing counts them.
    """

    samples: int
    kept: int
    batch_size: int
    passes: int
    comparisons: int
    wild: float = 0.0
    outside: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """The cost of one kind of step of a phase; see `Ledger`."""

    phase: str
    place: str
    name: str
    rounds: int
    bytes: int
    dealer_rounds: int
    dealer_bytes: int
    sent: int
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """The values of a kind that were opened in a phase, and in how many openings."""

    phase: str
    kind: str
    openings: int
    values: int


Basis = Literal["own rows", "own samples", "random probe", "nothing"]
BASES: dict[Basis, str] = {
    "own rows": "attacked with the answer on rows of the pool, judged on others of it",
    "own samples": "attacked on the model owner's own samples, by a choice among them",
    "random probe": "of public sizes: a random probe, and normal features",
    "nothing": "not attacked",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reveal:
    """What one phase opened, and what the best attacks make of it.

    Attributes:
        phase: "phase 1", ...
        opened: What both parties have seen, in words.
        basis: What the figures are of, see `BASES`.
        rows: That were attacked: of more rows more is recovered.
        outcomes: Spearman's rank correlation of the best attack's scores with the
            proxy's, from the outcomes of all comparisons; None where these were not
            opened or not attacked. How it is judged on a data owner's own rows, see
            `jaxsel.proxy.Recovery`.
        chosen: The same from the chosen set alone.
        overlap: Share of the best rows that the better of the two names.
        chance: The share that a guess names.
        verdict: A sentence.
    """

    phase: str
    opened: str
    basis: Basis
    rows: int = 0
    outcomes: float | None = None
    chosen: float | None = None
    overlap: float | None = None
    chance: float | None = None
    verdict: str

    @property
    def recovered(self) -> float | None:
        """The higher of the two rank correlations; None if nothing was attacked."""
        known = [each for each in (self.outcomes, self.chosen) if each is not None]
        return max(known, default=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A party's result; rows, phases, appraisal and openings are the same for both.

    Attributes:
        role: Whose it is.
        session: Name of the session.
        engine: That it ran on.
        rows: Rows of the pool that were chosen, ascending; without the excluded ones.
        phases: One entry each.
        appraisal: The mean score, whether it reaches the threshold, or None.
        steps: What each step took, in order.
        openings: What was opened, by phase and kind.
        fraction_bits: Of all numbers.
        terms: Of the engine: its protocol and ring, or CrypTen's provider.
        versions: Of jaxsel and the engine.
        reveals: What each phase gave away, as far as this party can tell; empty until
            that was measured, after the session.
        warnings: Sentences that this party was told.
        seconds: Wall-clock from this party's start to its result: waiting for the
            others, keys and compiling included, the steps of an interrupted run not.
    """

    role: str
    session: str
    engine: str
    rows: tuple[int, ...]
    phases: tuple[PhaseResult, ...]
    appraisal: float | bool | None
    steps: tuple[Step, ...]
    openings: tuple[Opening, ...]
    fraction_bits: int
    terms: Mapping[str, str]
    versions: Mapping[str, str]
    reveals: tuple[Reveal, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    def total(self, phase: str | None = None, place: str | None = None) -> Spent:
        """Return the sum over the steps of a phase and place; None for all of them."""
        total = Spent()
        fields = [field.name for field in dataclasses.fields(Spent)]
        for step in self.steps:
            if phase in (None, step.phase) and place in (None, step.place):
                total.add(Spent(**{name: getattr(step, name) for name in fields}))
        return total

    def to_json(self) -> str:
        """Return the result as JSON text that ends with a line feed."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            **dataclasses.asdict(self),
            "total": dataclasses.asdict(self.total()),
            "counted": _COUNTED,
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    @staticmethod
    def read(folder: str | Path) -> Result:
        """Return the result that lies in an output folder.

        Raises:
            ValueError: If it is no such file.
        """
        path = Path(folder) / FILE
        document = json.loads(path.read_text(encoding="utf-8"))
        if (document.get("format"), document.get("version")) != (FORMAT, VERSION):
            raise ValueError(f"{path} is no result of a secure run, version {VERSION}")
        fields: dict[str, Any] = {
            f.name: document[f.name] for f in dataclasses.fields(Result)
        }
        for name, kind in (
            ("phases", PhaseResult),
            ("steps", Step),
            ("openings", Opening),
            ("reveals", Reveal),
        ):
            fields[name] = tuple(kind(**entry) for entry in fields[name])
        for name in ("rows", "warnings"):
            fields[name] = tuple(fields[name])
        return Result(**fields)


def steps_of(ledger: Ledger) -> tuple[Step, ...]:
    """Return a ledger's steps."""
    return tuple(
        Step(phase=phase, place=place, name=name, **dataclasses.asdict(spent))
        for (phase, place, name), spent in ledger.steps.items()
    )


def openings_of(ledger: Ledger) -> tuple[Opening, ...]:
    """Return a ledger's openings, summed by phase and kind."""
    sizes: dict[tuple[str, str], list[int]] = {}
    for kind, phase, values in ledger.opened:
        sizes.setdefault((phase, kind), []).append(values)
    return tuple(
        Opening(phase=phase, kind=kind, openings=len(found), values=sum(found))
        for (phase, kind), found in sizes.items()
    )


def table(steps: Sequence[Sequence[str]]) -> str:
    """Return rows of text, the header first, as aligned columns; numbers to the right.

    The first column is text.
    """
    widths = [max(map(len, column)) for column in zip(*steps, strict=True)]
    lines = []
    for row in steps:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    return "\n".join(lines)
