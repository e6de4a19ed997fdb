"""The result of a secure run and its cost, one JSON file in each party's folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jaxsel._files.codec import read_json

from ._ledger import Ledger, Spent

FORMAT, VERSION = "jaxsel secure run", 5
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
    """Openings of one phase, and the success of the best attacks on them.

    Attributes:
        phase: "phase 1", ...
        opened: What both parties have seen, in words.
        basis: What the figures are of, see `BASES`.
        rows: That were attacked: of more rows more is recovered.
        outcomes: Spearman's rank correlation of the best attack's scores with the
            proxy's, from the outcomes of all comparisons; None where these were not
            opened or not attacked. How it is judged on a data owner's own rows, see
            `jaxsel.proxy.Leakage`.
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
        known = [share for share in (self.outcomes, self.chosen) if share is not None]
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
        discarded: What was opened in this output folder besides: by sessions that were
            given up or answered before, and by steps that were cut and opened again.
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
    discarded: tuple[Opening, ...] = ()
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
        """Return the result as JSON text that ends with a line feed.

        Its `sha256` is that of the rest, by which `read` notices what was changed.
        """
        document = {
            "format": FORMAT,
            "version": VERSION,
            **dataclasses.asdict(self),
            "total": dataclasses.asdict(self.total()),
            "counted": _COUNTED,
        }
        document["sha256"] = _digest(document)
        return json.dumps(document, indent=1, allow_nan=False) + "\n"

    @staticmethod
    def read(folder: str | Path) -> Result:
        """Return the result that lies in an output folder.

        Raises:
            OSError: If the file can't be opened.
            ValueError: If it is no such file, or was changed since it was written.
        """
        path = Path(folder) / FILE
        content = path.read_bytes()
        try:
            return Result._parsed(read_json(content.decode("utf-8"), "the result"))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"{path} is no result of a secure run, version {VERSION}, or was "
                f"changed since: {error}"
            ) from error

    @staticmethod
    def _parsed(document: dict[str, Any]) -> Result:
        about = (document.get("format"), document.get("version"))
        if about != (FORMAT, VERSION):
            raise ValueError(f"it has format and version {about}")
        if document.pop("sha256", None) != _digest(document):
            raise ValueError("its sha256 differs, or is missing")
        fields: dict[str, Any] = {
            f.name: document[f.name] for f in dataclasses.fields(Result)
        }
        for name, kind in (
            ("phases", PhaseResult),
            ("steps", Step),
            ("openings", Opening),
            ("discarded", Opening),
            ("reveals", Reveal),
        ):
            fields[name] = tuple(kind(**entry) for entry in fields[name])
        for name in ("rows", "warnings"):
            fields[name] = tuple(fields[name])
        return Result(**fields)


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def steps_of(ledger: Ledger) -> tuple[Step, ...]:
    """Return a ledger's steps."""
    return tuple(
        Step(phase=phase, place=place, name=name, **dataclasses.asdict(spent))
        for (phase, place, name), spent in ledger.steps.items()
    )


def openings_of(opened: Iterable[tuple[str, str, int]]) -> tuple[Opening, ...]:
    """Sum openings, each a kind, a phase and its values, by phase and kind."""
    sizes: dict[tuple[str, str], list[int]] = {}
    for kind, phase, values in opened:
        sizes.setdefault((phase, kind), []).append(values)
    return tuple(
        Opening(phase=phase, kind=kind, openings=len(counts), values=sum(counts))
        for (phase, kind), counts in sizes.items()
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
