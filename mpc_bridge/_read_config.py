"""Read a `run.toml`, and check each of its fields."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

from ._config import (
    Appraisal,
    Config,
    DataOwner,
    Inputs,
    Leak,
    Link,
    ModelOwner,
    Parties,
    PhaseConfig,
    Place,
    Session,
    ThirdParty,
)
from ._config_checks import check_config
from ._limits import read_limits
from ._toml import (
    GIB,
    REQUIRED,
    ConfigError,
    Table,
    as_address,
    as_arrays,
    as_bool,
    as_number,
    as_positive,
    as_rendezvous,
    as_seconds,
    as_size,
    as_texts,
    one_of,
)
from .engines import ENGINES


def read_config(path: str | Path) -> Config:
    """Read a run.toml; paths in it are relative to its folder.

    Raises:
        ConfigError: If it is no TOML, or a field is missing, unknown or wrong.
        OSError: If it can't be read.
    """
    path = Path(path)
    document = read_document(path)
    try:
        return config_of(document, path.resolve().parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_document(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: If it is none.
        OSError: If it can't be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no TOML file: {error}") from None


def config_of(document: dict[str, Any], folder: Path) -> Config:
    """Return the configuration of a document; paths are relative to the folder.

    Raises:
        ConfigError: If a field is missing, unknown or wrong.
    """
    return _config(Table(document, "", folder))


def _config(top: Table) -> Config:
    table = top.table("session")
    session = Session(
        name=table.text("name"),
        seed=table.count("seed", minimum=0),
        samples=table.count("samples"),
        engine=table.take("engine", one_of(*ENGINES), default="spu-cheetah"),
        rendezvous=table.take("rendezvous", as_rendezvous, default=None),
        exclude=table.rows("exclude"),
        leak=table.take("leak", one_of(*get_args(Leak)), default="rank"),
        timeout=table.take("timeout", as_seconds, default=60.0),
        wait=table.take("wait", as_seconds, default=1800.0),
        deliver=table.take("deliver", as_bool, default=False),
        max_hours=table.take("max_hours", as_positive, default=None),
    )
    table.done()
    parties = None
    if (table := top.table("parties", optional=True)) is not None:
        parties = Parties(
            model_owner=_place(table.table("model_owner")),
            data_owner=_place(table.table("data_owner")),
            third_party=_place(table.table("third_party", optional=True)),
        )
        table.done()
    network = None
    if (table := top.table("network", optional=True)) is not None:
        network = Link(
            bandwidth=table.take("bandwidth", as_positive),
            latency=table.take("latency", as_positive),
        )
        table.done()
    phases = tuple(map(_phase, top.tables("phases", default=[])))
    appraisal = Appraisal()
    if (table := top.table("appraisal", optional=True)) is not None:
        mode = table.take("mode", one_of("mean", "threshold", "none"))
        needed = REQUIRED if mode == "threshold" else None
        threshold = table.take("threshold", as_number, default=needed)
        if mode != "threshold" and threshold is not None:
            raise ConfigError(
                f"appraisal.threshold is for mode 'threshold' only, got {threshold} "
                f"with mode {mode!r}"
            )
        appraisal = Appraisal(mode=mode, threshold=threshold)
        table.done()
    model_owner = data_owner = third_party = None
    if (table := top.table("model_owner", optional=True)) is not None:
        weights = tuple(map(table.path_of, table.take("weights", as_texts)))
        samples = tuple(map(_inputs, table.tables("samples", default=[])))
        measure = table.take("measure", as_bool, default=True)
        model_owner = ModelOwner(
            weights=weights, samples=samples, measure=measure, **_private(table)
        )
    if (table := top.table("data_owner", optional=True)) is not None:
        inputs = tuple(map(_inputs, table.tables("inputs")))
        weights = tuple(map(table.path_of, table.take("weights", as_texts, default=[])))
        folder = table.text("pools", default=None)
        data_owner = DataOwner(
            inputs=inputs,
            weights=weights,
            deliver=tuple(
                map(table.path_of, table.take("deliver", as_arrays, default=[]))
            ),
            pools=None if folder is None else table.path_of(folder),
            few_rows=table.count("few_rows", default=100),
            measure=table.take("measure", as_bool, default=True),
            **_private(table),
        )
    if (table := top.table("third_party", optional=True)) is not None:
        third_party = ThirdParty(**_private(table))
    top.done()
    config = Config(
        session=session,
        phases=phases,
        appraisal=appraisal,
        parties=parties,
        network=network,
        model_owner=model_owner,
        data_owner=data_owner,
        third_party=third_party,
    )
    check_config(config)
    return config


def _phase(at: Table) -> PhaseConfig:
    phase = PhaseConfig(
        manifest=at.path_of(at.text("manifest")),
        keep=at.count("keep"),
        batch_size=at.count("batch_size", default=None),
    )
    at.done()
    return phase


def _place(at: Table | None) -> Any:
    if at is None:
        return None
    place = Place(name=at.text("name"), address=at.take("address", as_address))
    at.done()
    return place


def _inputs(at: Table) -> Inputs:
    mask = at.text("mask", default=None)
    x = at.path_of(at.text("x"))
    at.done()
    return Inputs(x=x, mask=None if mask is None else at.path_of(mask))


def _private(at: Table) -> dict[str, Any]:
    """Read the private settings that both parties have."""
    part = {
        "output": at.path_of(at.text("output")),
        "memory": at.take("memory", as_size, default=2 * GIB),
    }
    folder = at.text("certificates", default=None)
    part["certificates"] = None if folder is None else at.path_of(folder)
    part["listen"] = at.take("listen", as_address, default=None)
    part["limits"] = read_limits(at.table("limits", optional=True))
    at.done()
    return part
