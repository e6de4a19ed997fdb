"""Ways to select, as phases of proxies of a target, and their counted traffic."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxsel.proxy import (
    Emulator,
    EngineName,
    Manifest,
    Network,
    Spec,
    ablation,
    choice_cost,
    cost,
    manifest,
    paper_spec,
    probe_manifest,
)

from .paper import BANDWIDTH, BERT, DISTILBERT, LATENCY, ROWS, SHARE

BOOTSTRAP, FIRST = 0.05, 0.3
"""Shares of the pool: bought at random, and left by the first of two phases."""

BATCH = 64

ENGINES: tuple[EngineName, ...] = ("crypten", "spu-cheetah", "spu-aby3")
"""Engines to count the cost on."""

NETWORK = Network(bandwidth=BANDWIDTH, latency=LATENCY, one_way_per_round=1.0)
"""The paper's link. A round takes one latency, the least that it can."""


def whole(layers: int) -> Spec:
    """Return the target itself, nothing emulated."""
    exact = ablation(paper_spec(layers, 12, 16), "NoApprox")
    return dataclasses.replace(exact, ffn="gelu")


OURS = Spec(
    1,
    12,
    attention=Emulator("linear", bias=True),
    norm=Emulator("polynomial", degree=2),
    read="mean",
)


@dataclasses.dataclass(frozen=True)
class Way:
    """Phases, the last of which leaves the purchase.

    Attributes:
        says: Description, for a reader.
        phases: A proxy each; None is a linear probe on public features.
        ours: Whether products are folded: the others' are taken as CrypTen's layers do.
    """

    says: str
    phases: tuple[Spec | None, ...]
    ours: bool = False


def ways(last: int, layers: int) -> dict[str, Way]:
    """Return the ways to select, by name.

    Args:
        last: Layers of the paper's last proxy: 1 for DistilBERT, 3 for BERT.
        layers: Of the target.
    """
    two = (paper_spec(1, 1, 2), paper_spec(last, 12, 16))
    exact = tuple(ablation(spec, "NoApprox") for spec in two)

    def replaced(name: str) -> tuple[Spec, ...]:
        return tuple(ablation(spec, name) for spec in exact)

    return {
        "exact target": Way("The target itself", (whole(layers),)),
        "exact proxies": Way("The paper's proxies, nothing emulated", exact),
        "Bolt": Way("The same with Bolt's softmax", replaced("Bolt")),
        "MPCFormer": Way("The same with MPCFormer's softmax", replaced("2Quad")),
        "paper": Way("The paper's two phases", two),
        "paper, 1 phase": Way("The last of them alone", two[1:]),
        "probe, 1 layer": Way(
            "Ours: linear probe, then 1 layer with linear attention", (None, OURS), True
        ),
        "probe": Way("Ours: linear probe alone", (None,), True),
    }


def selections(length: int) -> dict[str, tuple[Mapping[str, Any], dict[str, Way]]]:
    """Return targets with their ways: the paper's delays are of DistilBERT and BERT."""
    return {
        "DistilBERT": ({**DISTILBERT, "length": length}, ways(1, 6)),
        "BERT": ({**BERT, "length": length}, ways(3, 12)),
    }


def manifests(way: Way, sizes: Mapping[str, Any]) -> tuple[Manifest, ...]:
    """Return the manifests of a way's phases."""
    plan = "folded" if way.ours else "plain"
    return tuple(
        probe_manifest(width=sizes["hidden"], n_classes=sizes["n_classes"])
        if spec is None
        else manifest(spec, **sizes, plan=plan)
        for spec in way.phases
    )


@dataclasses.dataclass(frozen=True)
class Counted:
    """Cost of a selection: payload of one owner, rounds, hours on the paper's link.

    Computing is not in the hours, nor what ABY3's helper sends in the payload.
    """

    bytes: float
    rounds: float
    hours: float


def counted(
    phases: tuple[Manifest, ...], engine: EngineName, *, rows: int = ROWS
) -> Counted:
    """Count a selection of a fifth of a pool, a twentieth bought before at random.

    Args:
        phases: Manifests.
        engine: One of `ENGINES`.
        rows: Samples of the pool.
    """
    bought = round(BOOTSTRAP * rows)
    remaining, size, rounds, seconds = rows - bought, 0.0, 0.0, 0.0
    for i, phase in enumerate(phases):
        share = SHARE if i == len(phases) - 1 else FIRST
        keep = round(share * rows) - bought
        forward = cost(phase, remaining, NETWORK, engine=engine, batch_size=BATCH)
        choice = choice_cost(remaining, keep, NETWORK, engine=engine)
        size += forward.bytes + choice.bytes
        rounds += forward.rounds + choice.rounds
        seconds += (forward.seconds or 0.0) + (choice.seconds or 0.0)
        remaining = keep
    return Counted(size, rounds, seconds / 3600)
