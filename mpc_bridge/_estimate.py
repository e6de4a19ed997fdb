"""Tables of a run's traffic and time: estimated before it, and measured."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from jaxsel.proxy import (
    MODELS,
    EngineName,
    Network,
    Traffic,
    check_engine,
    choice_cost,
    choice_warnings,
    cost,
)

from ._config import Config
from ._handshake import Refused
from ._network import network as network_for
from ._result import BASES, Result, Reveal, table
from ._toml import ConfigError
from .engines import engine_of

if TYPE_CHECKING:
    from ._calibrate import Calibration
    from ._holdings import Public

_DAY = 24.0  # hours


@dataclasses.dataclass(frozen=True)
class Step:
    """A part of a run: its name, traffic and seconds of computing."""

    name: str
    traffic: Traffic
    computing: float | None = None


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Estimated traffic and time of a run on an engine.

    Attributes:
        engine: Its name.
        steps: The parts of the run.
        network: The link; None if nobody has said.
    """

    engine: EngineName
    steps: tuple[Step, ...]
    network: Network | None

    @property
    def traffic(self) -> Traffic:
        return Traffic.sum(step.traffic for step in self.steps)

    @property
    def hours(self) -> float | None:
        """Hours of waiting for the network, and of computing where that is known."""
        if self.network is None:
            return None
        return sum(map(self.seconds, self.steps)) / 3600

    def seconds(self, step: Step) -> float:
        """Return the seconds of a step: it waits, sends and computes one by one."""
        waiting = self.network.wait(step.traffic, self.engine) if self.network else 0.0
        return waiting + (step.computing or 0.0)


def estimates(
    config: Config,
    public: Public,
    *,
    engine: EngineName | None = None,
    network: Network | None = None,
    calibration: Calibration | None = None,
) -> Estimate:
    """Estimate a run's traffic and time.

    Args:
        config: Of the run; its public part is enough.
        public: What `read_public` returned.
        engine: Another engine than the configuration's.
        network: The link, to get hours.
        calibration: Of this engine, to get seconds of computing.
    """
    from ._programs import Forward

    name = engine or check_engine(config.session.engine)
    leak = "rank" if name == "crypten" else config.session.leak
    steps: list[Step] = []
    if (model := MODELS.get(name)) is not None:
        started = None if calibration is None else calibration.started
        steps.append(Step("start", model.started, started))
    remaining = len(public.pool)
    sizes = batches(config, public)
    for i, phase in enumerate(config.phases):
        batch, manifest = sizes[i], public.manifests[i]
        lanes = engine_of(name).lanes_for(Forward(manifest).schedule())
        forward = cost(manifest, remaining, engine=name, batch_size=batch, lanes=lanes)
        choice = choice_cost(remaining, phase.keep, engine=name, leak=leak)
        scoring = choosing = None
        if calibration is not None:
            scoring = calibration.scoring(i, remaining, batch)
            choosing = calibration.choosing(choice.passes, choice.comparisons)
            if leak == "set" and choice.passes:
                choosing += _shuffling(calibration, name, remaining, phase.keep)
        what = f"phase {i + 1}: score {remaining:,} by {batch:,}"
        steps.append(Step(what, forward.all, scoring))
        what = f"phase {i + 1}: choose {phase.keep:,}"
        steps.append(Step(what, choice.expected, choosing))
        remaining = phase.keep
    if config.session.deliver and engine_of(name).own_process:
        from ._delivery import traffic

        sent = traffic(config, public.manifests[-1], engine_of(name).parties)
        steps.append(Step(f"delivery of {remaining:,} rows", sent))
    return Estimate(name, tuple(steps), network)


def _shuffling(calibration: Calibration, engine: EngineName, n: int, k: int) -> float:
    """Return the seconds of shuffling n scores, and the k chosen rows again."""
    if engine_of(engine).switches:
        layers = [layer.size for m in (n, k) for layer in network_for(m).layers]
        return calibration.shuffling(layers)
    again = choice_cost(k, 1, engine=engine)  # as many comparisons as the last one of k
    return calibration.choosing(again.passes, again.comparisons)


def batches(config: Config, public: Public) -> list[int]:
    """Return the samples of a batch of each phase, as a run takes them."""
    from ._programs import Forward

    owners = [o for o in (config.model_owner, config.data_owner) if o is not None]
    engine, remaining, sizes = engine_of(config.session.engine), len(public.pool), []
    for phase, manifest in zip(config.phases, public.manifests, strict=True):
        operations = Forward(manifest).schedule()
        fits = [engine.batch_for(operations, owner.memory) for owner in owners]
        most, lanes = (
            phase.batch_size or min(fits, default=64),
            engine.lanes_for(operations),
        )
        sizes.append(engine.batch_of(remaining, most, lanes))
        remaining = phase.keep
    return sizes


def estimate(
    config: Config,
    *,
    bandwidth: float | None = None,
    latency: float | None = None,
    calibrated: bool = False,
    reveals: bool = True,
) -> str:
    """Tabulate the estimated traffic, time and leakage of a run.

    Args:
        config: Of the run; its public part is enough.
        bandwidth: Bytes a second in each direction, to get hours; with `latency`. If
            left out, those of `[network]`.
        latency: Seconds one way.
        calibrated: Measure first, for a minute at most, how long this machine computes.
        reveals: Attack random probes in the place of the phases', to say what their
            answers should give away; up to a minute for a wide one.

    Raises:
        ConfigError: If only one of bandwidth and latency is given, or the engine can't
            be calibrated.
        Refused: If a manifest can't be read.
        SessionError: If the calibration failed.
    """
    from ._holdings import read_public

    if (bandwidth is None) != (latency is None):
        raise ConfigError("bandwidth and latency must be given together")
    network = network_of(config)
    if bandwidth is not None and latency is not None:
        network = Network(bandwidth=bandwidth, latency=latency)
    public = read_public(config)
    if config.session.engine == "published":
        return (
            "The data owner has the proxies and runs them alone: nothing is sent but "
            "the rows."
        )
    calibration = calibrate_run(config, public) if calibrated else None
    estimated = estimates(config, public, network=network, calibration=calibration)
    header = ["", "rounds", "MB"]
    header += ["computing, s"] if calibration is not None else []
    header += ["hours"] if network is not None else []
    elsewhere = ["messages elsewhere", "rounds", "MB"]
    elsewhere += ["hours"] if network is not None else []
    lines = [_line(estimated, step) for step in (*estimated.steps, _sum(estimated))]
    others = [
        _line(other, dataclasses.replace(_sum(other), name=f"all, on {other.engine}"))
        for other in _others(config, public, network)
    ]
    warnings = "".join(f"\n\n{warning}" for warning in _said(config, public))
    wild = _wild(config, public)
    given_away = f"\n\n{_given_away(config, public)}" if reveals else ""
    return (
        f"{table([header, *lines])}\n\n"
        f"{_MEANING[estimated.engine]}\n{wild}\nChoices as expected. "
        + (
            "Computing is that of all parties on this machine.\n\n"
            if calibration is not None
            else "Computing comes on top: --calibrate measures it.\n\n"
        )
        + f"{table([elsewhere, *others])}{given_away}{warnings}"
    )


def _wild(config: Config, public: Public) -> str:
    """Describe in a sentence the expected number of wrongly truncated products."""
    from ._programs import wild_expected

    engine, remaining, wild = engine_of(config.session.engine), len(public.pool), 0.0
    if engine.exact_cut:
        return (
            "No product below the ring's limit comes out wild. Inputs outside the "
            "manifest's bounds are refused; those within a proxy are measured on the "
            "bootstrap set, with a margin, not proven."
        )
    for phase, manifest in zip(config.phases, public.manifests, strict=True):
        wild += wild_expected(manifest, remaining, engine)
        remaining = phase.keep
    return (
        f"Of all products, {wild:.1g} or more are expected to come out wild: a "
        "sample's score is then anything, and nothing notices."
    )


def _given_away(config: Config, public: Public) -> str:
    from ._reveals import expected_table  # imports JAX

    keeps = [phase.keep for phase in config.phases]
    n, leak = len(public.pool), config.session.leak
    return expected_table(public.manifests, keeps, n, leak)


_OF_THREE = (
    "Payload that the owner who has more sends plus receives; rounds are messages."
)
_MEANING = {
    "crypten": "Payload that a party sends plus receives, without the third party's.",
    "spu-cheetah": "Payload sent plus received, as both count it; rounds are messages.",
    "spu-aby3": _OF_THREE,
    "spu-aby3-128": _OF_THREE,
}


def check_hours(config: Config, public: Public | None = None) -> None:
    """Refuse a run that takes longer than `max_hours`; warn of more than a day.

    Without a limit nothing is measured: what is warned of is the network's part.

    Args:
        config: Of the run.
        public: Its public part, where that has been read before.

    Raises:
        Refused: If the estimate is above the limit, with what would be cheaper.
        SessionError: If the calibration failed.
    """
    from ._holdings import read_public

    limit, network = config.session.max_hours, network_of(config)
    if network is None or config.session.engine == "published":
        return
    public = read_public(config) if public is None else public
    calibration = None
    if limit is not None and config.session.engine in MODELS:
        calibration = calibrate_run(config, public)
    estimated = estimates(config, public, network=network, calibration=calibration)
    hours = estimated.hours or 0.0
    if limit is not None and hours > limit:
        raise Refused(
            "the run must take no longer than session.max_hours",
            f"estimated are {_figure(hours)} hours on {estimated.engine}, {limit:g} "
            f"are allowed; {_cheaper(config, public, estimated)}",
        )
    if limit is None and hours > _DAY:
        sys.stderr.write(
            f"WARNING: the messages alone take {_figure(hours)} hours on "
            f"{estimated.engine}; session.max_hours sets a limit\n"
        )


def _cheaper(config: Config, public: Public, found: Estimate) -> str:
    """Suggest engines and settings that would cost less."""
    ways: list[str] = []
    network = found.network
    messages = sum(
        network.wait(step.traffic, found.engine) for step in found.steps if network
    )
    for other in _others(config, public, network):
        hours = other.hours or 0.0
        if hours * 3600 < messages:
            ways.append(
                f"engine {other.engine!r} (messages {_figure(hours)} hours instead of "
                f"{_figure(messages / 3600)})"
            )
    if public.manifests[0].layers:
        ways.append("a probe as the first phase")
    ways.append("a smaller pool, or a smaller keep of an early phase")
    return f"cheaper would be {', '.join(ways)}"


def network_of(config: Config) -> Network | None:
    """Return the network that a configuration states, if any."""
    if (link := config.network) is None:
        return None
    return Network(bandwidth=link.bandwidth * 1e6, latency=link.latency / 1e3)


def calibrate_run(config: Config, public: Public) -> Calibration:
    """Measure the programs of a run on this machine.

    Raises:
        ConfigError: If its engine is none of SPU's.
        SessionError: If the parties can't run here.
    """
    from ._calibrate import calibrate

    engine = config.session.engine
    if engine not in MODELS:
        raise ConfigError(
            f"only {', '.join(MODELS)} can be calibrated, got engine {engine!r}"
        )
    return calibrate(engine, public.manifests, batches(config, public))


def _others(config: Config, public: Public, network: Network | None) -> list[Estimate]:
    return [
        estimates(config, public, engine=name, network=network)
        for name in MODELS
        if name != config.session.engine
    ]


def _said(config: Config, public: Public) -> list[str]:
    remaining, warnings = len(public.pool), []
    for i, (phase, manifest) in enumerate(
        zip(config.phases, public.manifests, strict=True)
    ):
        warnings += [
            f"Phase {i + 1}: {warning}."
            for warning in choice_warnings(
                manifest, remaining, phase.keep, appraisal=config.appraisal.mode
            )
        ]
        remaining = phase.keep
    return warnings


def _sum(found: Estimate) -> Step:
    known = [step.computing for step in found.steps if step.computing is not None]
    return Step("all", found.traffic, sum(known) if known else None)


def _line(found: Estimate, step: Step) -> list[str]:
    line = [
        step.name,
        f"{step.traffic.rounds:,.0f}",
        _figure(step.traffic.bytes / 1e6),
    ]
    if step.computing is not None:
        line.append(_figure(step.computing))
    if found.network is not None:
        line.append(_figure(found.seconds(step) / 3600))
    return line


def summary(result: Result) -> str:
    """Tabulate a result: the choice, and each phase's traffic and time."""
    header = ["", "rounds", "MB", "third party's MB", "seconds"]
    lines = []
    for i, phase in enumerate(result.phases):
        name, choice = f"phase {i + 1}", result.total(f"phase {i + 1}", "choice")
        whole = result.total(name)
        appraisal = result.total(name, "appraisal")
        lines.append(
            [
                f"{name}: {phase.samples:,} to {phase.kept:,}",
                f"{whole.rounds:,}",
                _figure(whole.bytes / 1e6),
                _figure(whole.dealer_bytes / 1e6),
                f"{whole.seconds:,.1f}",
            ]
        )
        lines.append(
            [
                f"  of it choosing, in {phase.passes} passes",
                f"{choice.rounds:,}",
                _figure(choice.bytes / 1e6),
                _figure(choice.dealer_bytes / 1e6),
                f"{choice.seconds:,.1f}",
            ]
        )
        if appraisal.rounds:
            lines.append(
                [
                    "  of it the appraisal",
                    f"{appraisal.rounds:,}",
                    _figure(appraisal.bytes / 1e6),
                    _figure(appraisal.dealer_bytes / 1e6),
                    f"{appraisal.seconds:,.1f}",
                ]
            )
    if (delivery := result.total("delivery")).bytes:
        lines.append(
            [
                "delivery",
                f"{delivery.rounds:,}",
                _figure(delivery.bytes / 1e6),
                "0",
                f"{delivery.seconds:,.1f}",
            ]
        )
    shown = [f"{len(result.rows):,} rows chosen"]
    if isinstance(result.appraisal, bool):
        reached = "at least" if result.appraisal else "below"
        shown.append(f"their mean score is {reached} the threshold")
    elif result.appraisal is not None:
        shown.append(f"their mean score is {result.appraisal:.4f}")
    return f"{'; '.join(shown)}\n\n{table([header, *lines])}" + "".join(
        f"\n\n{_told(reveal)}" for reveal in result.reveals
    )


def _told(reveal: Reveal) -> str:
    """Describe a phase's openings and their leakage."""
    basis = "" if reveal.basis == "nothing" else f" ({BASES[reveal.basis]})"
    name = reveal.phase.capitalize()
    return f"{name} opened {reveal.opened}.\nThe proxy: {reveal.verdict}{basis}."


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
