"""The result of a secure run and its cost, one JSON file in each party's folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._ledger import Ledger, Spent

FORMAT, VERSION = "jaxsel secure run", 1
FILE = "result.json"

_COUNTED = (
    "rounds: calls of CrypTen's communicator between the two parties; bytes: payload "
    "that this party sent plus received in them; dealer_*: the same with the third "
    "party; seconds: wall-clock"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """One phase.

    Attributes:
        samples: Rows that were scored.
        kept: Rows that it left.
        batch: Samples that were scored together.
        passes: Of the choice: batches of comparisons.
        comparisons: In all passes.
    """

    samples: int
    kept: int
    batch: int
    passes: int
    comparisons: int


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
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """The values of a kind that were opened in a phase, and in how many openings."""

    phase: str
    kind: str
    openings: int
    values: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A party's result; rows, phases and appraisal are the same for both.

    Attributes:
        role: Whose it is.
        session: Name of the session.
        rows: Rows of the pool that were chosen, ascending; without the excluded ones.
        phases: One entry each.
        appraisal: The mean score, whether it reaches the threshold, or None.
        steps: What each step took, in order.
        openings: What was opened, by phase and kind.
        provider: Of the correlated randomness.
        versions: Of jaxsel, CrypTen, torch.
    """

    role: str
    session: str
    rows: tuple[int, ...]
    phases: tuple[PhaseResult, ...]
    appraisal: float | bool | None
    steps: tuple[Step, ...]
    openings: tuple[Opening, ...]
    provider: str
    versions: Mapping[str, str]

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
        ):
            fields[name] = tuple(kind(**entry) for entry in fields[name])
        fields["rows"] = tuple(fields["rows"])
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
