"""`run.toml` as objects: shared terms of a session, and each party's settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from ._limits import Limits
from ._toml import GIB

Leak = Literal["rank", "set"]
LEAKS: dict[Leak, str] = {
    "rank": "for each pivot, which of the scores that are left lie above it",
    "set": "the chosen rows",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Session:
    """The part that is the same for every role.

    Attributes:
        name: Of the session; parties of two sessions refuse each other.
        seed: Of the pivots: public.
        samples: Samples of the pool, N.
        engine: "spu-cheetah", between two parties alone; "spu-aby3", with a helper;
            "spu-aby3-128", likewise, with more digits; "crypten", for measurement;
            "published", the data owner alone.
        rendezvous: Where CrypTen's model owner listens, "tcp://host:port". Port 0, for
            `local` only, takes a free one. SPU's parties have `parties`.
        exclude: Rows of the pool that are bought already, or an `.npy` file of them;
            both parties know them, and nobody scores them.
        leak: What a choice opens: see `choose`.
        timeout: Of every wait for another party's message, in seconds.
        wait: For the others to start, in seconds.
        deliver: Whether the data owner sends the chosen rows at the end, as it has
            committed to them before the choice; SPU's engines only.
        max_hours: A run that is estimated to take longer is refused before anything is
            shared; needs `[network]`.
    """

    name: str
    seed: int
    samples: int
    engine: str = "spu-cheetah"
    rendezvous: str | None = None
    exclude: tuple[int, ...] | Path = ()
    leak: Leak = "rank"
    timeout: float = 60.0
    wait: float = 1800.0
    deliver: bool = False
    max_hours: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """The network between the parties, for estimates.

    Attributes:
        bandwidth: Megabytes a second in each direction.
        latency: Milliseconds for a message to arrive, one way.
    """

    bandwidth: float
    latency: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where a party of SPU's engines listens, and the name in its certificate."""

    name: str
    address: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parties:
    """The parties of SPU's engines, public; the third one is aby3's helper."""

    model_owner: Place
    data_owner: Place
    third_party: Place | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseConfig:
    """One phase, public.

    Attributes:
        manifest: Its proxy's `manifest.json`.
        keep: How many rows it leaves; the excluded ones are not among them.
        batch_size: Samples that are scored together; None takes what fits the smaller
            memory budget of the two.
    """

    manifest: Path
    keep: int
    batch_size: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Appraisal:
    """The appraisal: both learn the chosen rows' mean score, one bit, or nothing.

    The bit says whether the mean is at least `threshold`.
    """

    mode: Literal["mean", "threshold", "none"] = "none"
    threshold: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOwner:
    """The model owner's part: a folder with weights for each phase.

    Attributes:
        weights: Of `export`, one a phase.
        output: Folder for the result.
        memory: Bytes for what grows with the batch.
        certificates: Folder of `python -m mpc_bridge certs`; SPU's engines need it.
        listen: Where this party listens, "host:port", if the address that the others
            have is another one.
        samples: Samples like those of the pool, the same ones for each phase, to
            measure by what the answers gave away; none if empty.
        measure: Whether that is measured, after the session.
        limits: What it answers at most, over all sessions of its output folder.
    """

    weights: tuple[Path, ...]
    output: Path
    memory: int = 2 * GIB
    certificates: Path | None = None
    listen: str | None = None
    samples: tuple[Inputs, ...] = ()
    measure: bool = True
    limits: Limits = Limits()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """The samples of one phase, `.npy` files: `x`, and `mask` if they are padded."""

    x: Path
    mask: Path | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOwner:
    """The data owner's part: the samples for each phase.

    Attributes:
        inputs: Of each phase.
        output: Folder for the result.
        memory: Bytes for what grows with the batch.
        certificates: Folder of `python -m mpc_bridge certs`; SPU's engines need it.
        listen: Where this party listens, "host:port", if the address that the others
            have is another one.
        weights: With engine "published", the folders that were published, one a phase.
        deliver: Files of the arrays that are delivered, `.npy` or `.npz`, with a row
            for each sample; what the last phase reads if empty.
        pools: Folder for digests of the pools of all sessions: a pool that differs from
            an earlier one by few rows is warned of. As secret as the samples; None
            keeps none.
        few_rows: Rows from which on a difference is not warned of.
        measure: Whether the answers are attacked after the session, to say in the
            result what they gave away.
        limits: What it answers at most, over all sessions of its output folder.
    """

    inputs: tuple[Inputs, ...]
    output: Path
    memory: int = 2 * GIB
    certificates: Path | None = None
    listen: str | None = None
    weights: tuple[Path, ...] = ()
    deliver: tuple[Path, ...] = ()
    pools: Path | None = None
    few_rows: int = 100
    measure: bool = True
    limits: Limits = Limits()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThirdParty:
    """The helper's part, of aby3; CrypTen's dealer needs none."""

    output: Path
    memory: int = 2 * GIB
    certificates: Path | None = None
    listen: str | None = None
    limits: Limits = Limits()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run.toml; a party leaves the other's part out."""

    session: Session
    phases: tuple[PhaseConfig, ...] = ()
    appraisal: Appraisal = Appraisal()
    parties: Parties | None = None
    network: Link | None = None
    model_owner: ModelOwner | None = None
    data_owner: DataOwner | None = None
    third_party: ThirdParty | None = None

    def part(self, rank: int) -> ModelOwner | DataOwner | ThirdParty | None:
        """Return the part of the role of this rank."""
        return (self.model_owner, self.data_owner, self.third_party)[rank]

    def with_limits(self, change: Callable[[Limits], Limits]) -> Config:
        """Return the configuration with other limits in each part that it has."""
        parts = {
            name: dataclasses.replace(part, limits=change(part.limits))
            for name in ("model_owner", "data_owner", "third_party")
            if (part := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **parts)

    def write(self, path: str | Path) -> None:
        """Write the configuration as a run.toml, with absolute paths."""
        lines: list[str] = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            tables = value if isinstance(value, tuple) else (value,)
            header = f"[[{field.name}]]" if isinstance(value, tuple) else field.name
            for table in (table for table in tables if table is not None):
                lines.append(header if header[0] == "[" else f"[{header}]")
                lines += [f"{key} = {text}" for key, text in _entries(table)]
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _entries(table: Any) -> list[tuple[str, str]]:
    values = {f.name: getattr(table, f.name) for f in dataclasses.fields(table)}
    return [(name, _toml(value)) for name, value in values.items() if value is not None]


def _toml(value: Any) -> str:
    """Return a value as TOML writes it; of strings and numbers it is JSON."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if dataclasses.is_dataclass(value):
        fields = ", ".join(f"{name} = {text}" for name, text in _entries(value))
        return f"{{ {fields} }}"
    return json.dumps(
        str(value.resolve()) if isinstance(value, Path) else value, ensure_ascii=False
    )
