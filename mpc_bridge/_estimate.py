"""Tables for people: what a run will send, and what one has sent."""

from __future__ import annotations

from jaxsel.proxy import Network, choice_cost, cost

from ._config import Config, ConfigError
from ._result import Result, table


def estimate(
    config: Config, *, bandwidth: float | None = None, latency: float | None = None
) -> str:
    """Return what a run will send, counted from the manifests: a table.

    Args:
        config: Of the run; its public part is enough.
        bandwidth: Bytes a second in each direction, to get hours; with `latency`.
        latency: Seconds one way.

    Raises:
        ConfigError: If only one of bandwidth and latency is given.
        Refused: If a manifest can't be read.
    """
    from ._holdings import read_public
    from ._scoring import LANES, batch_for

    if (bandwidth is None) != (latency is None):
        raise ConfigError("bandwidth and latency must be given together")
    network = None
    if bandwidth is not None and latency is not None:
        network = Network(bandwidth=bandwidth, latency=latency)
    public = read_public(config)
    owners = [o for o in (config.model_owner, config.data_owner) if o is not None]
    lines, left = [], len(public.pool)
    totals = [0.0, 0.0, 0.0]
    for i, (phase, manifest) in enumerate(
        zip(config.phases, public.manifests, strict=True)
    ):
        batch = phase.batch or min(
            (batch_for(manifest, owner.memory) for owner in owners), default=64
        )
        batch = min(batch, left)
        forward = cost(manifest, left, network, batch=batch, lanes=LANES)
        choice = choice_cost(left, phase.keep, network)
        for what, rounds, size, seconds in (
            (
                f"score {left:,} by {batch:,}",
                forward.rounds,
                forward.bytes,
                forward.seconds,
            ),
            (f"choose {phase.keep:,}", choice.rounds, choice.bytes, choice.seconds),
        ):
            lines.append(_line(f"phase {i + 1}: {what}", rounds, size, seconds))
            for j, value in enumerate((rounds, size, seconds or 0)):
                totals[j] += value
        left = phase.keep
    lines.append(_line("all", totals[0], totals[1], totals[2] if network else None))
    header = ["", "rounds", "MB", *(["hours"] if network else [])]
    return (
        f"{table([header, *lines])}\n\n"
        "Payload that a party sends plus receives, without the third party's; choices "
        "as expected.\nComputing comes on top, and an appraisal, which is small."
    )


def summary(result: Result) -> str:
    """Return a result as a table: what was chosen, and what each phase took."""
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
    shown = [f"{len(result.rows):,} rows chosen"]
    if isinstance(result.appraisal, bool):
        reached = "at least" if result.appraisal else "below"
        shown.append(f"their mean score is {reached} the threshold")
    elif result.appraisal is not None:
        shown.append(f"their mean score is {result.appraisal:.4f}")
    return f"{'; '.join(shown)}\n\n{table([header, *lines])}"


def _line(name: str, rounds: float, size: float, seconds: float | None) -> list[str]:
    hours = [] if seconds is None else [_figure(seconds / 3600)]
    return [name, f"{rounds:,.0f}", _figure(size / 1e6), *hours]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
