"""Checks across the parts of a run.toml."""

from __future__ import annotations

from typing import Any

from ._config import Config
from ._toml import ConfigError


def check_config(config: Config) -> None:
    """Check that the parts of a configuration are consistent.

    Raises:
        ConfigError: If a phase leaves no fewer rows, or a party has not one entry for
            each phase.
    """
    phases, session = config.phases, config.session
    if session.engine == "crypten":
        if session.rendezvous is None:
            raise ConfigError(
                "session.rendezvous is missing: engine 'crypten' meets at one"
            )
        if session.leak != "rank":
            raise ConfigError(
                "session.leak must be 'rank' with engine 'crypten', which can't "
                f"shuffle, got {session.leak!r}"
            )
    elif session.rendezvous is not None:
        raise ConfigError(
            f"session.rendezvous is for engine 'crypten' only, got {session.engine!r}: "
            "the parties have their addresses in [parties]"
        )
    if session.deliver and not session.engine.startswith("spu-"):
        raise ConfigError(
            f"session.deliver must be false with engine {session.engine!r}: only "
            "SPU's parties have a wire with TLS"
        )
    if session.max_hours is not None and config.network is None:
        raise ConfigError(
            "network is missing: session.max_hours needs its bandwidth and latency"
        )
    if config.model_owner is not None:
        _one_each("model_owner.weights", config.model_owner.weights, phases)
        if config.model_owner.samples:
            _one_each("model_owner.samples", config.model_owner.samples, phases)
    if config.data_owner is not None:
        _one_each("data_owner.inputs", config.data_owner.inputs, phases)
        if session.engine == "published":
            _one_each("data_owner.weights", config.data_owner.weights, phases)
        elif config.data_owner.weights:
            raise ConfigError(
                "data_owner.weights is for engine 'published' only, got "
                f"{session.engine!r}: the weights are the model owner's secret"
            )
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
