"""`run.toml`: what both parties agree on, and what each of them keeps to itself."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any, Literal

from ._toml import (
    GIB,
    REQUIRED,
    ConfigError as ConfigError,
    Table,
    as_number,
    as_rendezvous,
    as_size,
    as_texts,
    one_of,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Session:
    """The part that is the same for every role.

    Attributes:
        name: Of the session; parties of two sessions refuse each other.
        seed: Of the pivots: public.
        rendezvous: Where the model owner listens, "tcp://host:port". Port 0, for
            `local` only, takes a free one.
        samples: Samples of the pool, N.
        exclude: Rows of the pool that are bought already, or an `.npy` file of them;
            both parties know them, and nobody scores them.
    """

    name: str
    seed: int
    rendezvous: str
    samples: int
    exclude: tuple[int, ...] | Path = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhaseConfig:
    """One phase, public.

    Attributes:
        manifest: Its proxy's `manifest.json`.
        keep: How many rows it leaves; the excluded ones are not among them.
        batch: Samples that are scored together; None takes what fits the smaller
            memory budget of the two.
    """

    manifest: Path
    keep: int
    batch: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Appraisal:
    """The appraisal: both learn the chosen rows' mean score, one bit, or nothing.

    The bit says whether the mean is at least `threshold`.
    """

    mode: Literal["mean", "threshold", "none"] = "none"
    threshold: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOwner:
    """The model owner's part: a folder with weights for each phase."""

    weights: tuple[Path, ...]
    output: Path
    memory: int = 2 * GIB


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """The samples of one phase, `.npy` files: `x`, and `mask` if they are padded."""

    x: Path
    mask: Path | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOwner:
    """The data owner's part: the samples for each phase."""

    inputs: tuple[Inputs, ...]
    output: Path
    memory: int = 2 * GIB


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run.toml; a party leaves the other's part out."""

    session: Session
    phases: tuple[PhaseConfig, ...] = ()
    appraisal: Appraisal = Appraisal()
    model_owner: ModelOwner | None = None
    data_owner: DataOwner | None = None

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


def read_config(path: str | Path) -> Config:
    """Read a run.toml; paths in it are relative to its folder.

    Raises:
        ConfigError: If it is no TOML, or a field is missing, unknown or wrong.
        OSError: If it can't be read.
    """
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} is no TOML file: {error}") from None
    try:
        return _config(Table(document, "", path.resolve().parent))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _config(top: Table) -> Config:
    at = top.table("session")
    session = Session(
        name=at.text("name"),
        seed=at.count("seed", minimum=0),
        rendezvous=at.take("rendezvous", as_rendezvous),
        samples=at.count("samples"),
        exclude=at.rows("exclude"),
    )
    at.done()
    phases = tuple(map(_phase, top.tables("phases", default=[])))
    appraisal = Appraisal()
    if (at := top.table("appraisal", optional=True)) is not None:
        mode = at.take("mode", one_of("mean", "threshold", "none"))
        needed = REQUIRED if mode == "threshold" else None
        threshold = at.take("threshold", as_number, default=needed)
        if mode != "threshold" and threshold is not None:
            raise ConfigError(
                f"appraisal.threshold is for mode 'threshold' only, got {threshold} "
                f"with mode {mode!r}"
            )
        appraisal = Appraisal(mode=mode, threshold=threshold)
        at.done()
    model_owner = data_owner = None
    if (at := top.table("model_owner", optional=True)) is not None:
        weights = tuple(map(at.path_of, at.take("weights", as_texts)))
        model_owner = ModelOwner(weights=weights, **_private(at))
    if (at := top.table("data_owner", optional=True)) is not None:
        inputs = tuple(map(_inputs, at.tables("inputs")))
        data_owner = DataOwner(inputs=inputs, **_private(at))
    top.done()
    config = Config(
        session=session,
        phases=phases,
        appraisal=appraisal,
        model_owner=model_owner,
        data_owner=data_owner,
    )
    check_config(config)
    return config


def _phase(at: Table) -> PhaseConfig:
    phase = PhaseConfig(
        manifest=at.path_of(at.text("manifest")),
        keep=at.count("keep"),
        batch=at.count("batch", default=None),
    )
    at.done()
    return phase


def _inputs(at: Table) -> Inputs:
    mask = at.text("mask", default=None)
    x = at.path_of(at.text("x"))
    at.done()
    return Inputs(x=x, mask=None if mask is None else at.path_of(mask))


def _private(at: Table) -> dict[str, Any]:
    """Return what the parts of both parties have."""
    part = {
        "output": at.path_of(at.text("output")),
        "memory": at.take("memory", as_size, default=2 * GIB),
    }
    at.done()
    return part


def check_config(config: Config) -> None:
    """Check what its parts must have in common.

    Raises:
        ConfigError: If a phase leaves no fewer rows, or a party has not one entry for
            each phase.
    """
    phases = config.phases
    if config.model_owner is not None:
        _one_each("model_owner.weights", config.model_owner.weights, phases)
    if config.data_owner is not None:
        _one_each("data_owner.inputs", config.data_owner.inputs, phases)
    before = config.session.samples
    if isinstance(config.session.exclude, tuple):
        before -= len(config.session.exclude)
    for i, phase in enumerate(config.phases):
        if phase.keep >= before:
            raise ConfigError(
                f"phases[{i}].keep must be below the {before} rows that are left "
                f"before it, got {phase.keep}"
            )
        before = phase.keep


def _one_each(name: str, given: tuple[Any, ...], phases: tuple[Any, ...]) -> None:
    if len(given) != len(phases):
        raise ConfigError(
            f"{name} must have one entry for each of the {len(phases)} phases, "
            f"got {len(given)}"
        )


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
