"""Points in the plane of fidelity and secure cost: which proxies, in which phases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from jaxsel.proxy import Emulator, ProbeSpec, Spec, Training, ablation, paper_spec

Lesson = Literal["bootstrap", "own", "other"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A proxy, and what it learns from.

    Attributes:
        spec: The proxy, or a probe.
        goal: What it is trained on, see `jaxsel.proxy.Phase`.
        lesson: "bootstrap"; "own", and then the model owner's texts of the same source
            too; or "other", those of another source.
        layers: Of a probe: places in `LAYERS` whose features it reads.
        training: Of a proxy of the target.
    """

    spec: Spec | ProbeSpec
    goal: Literal["labels", "logits", "ranks"] = "labels"
    lesson: Lesson = "bootstrap"
    layers: tuple[int, ...] = (1, 2, 3)
    training: Training = Training()


@dataclasses.dataclass(frozen=True)
class Point:
    """A selection: phases, each with a candidate and the share of the pool it leaves.

    Attributes:
        says: What it is, for a reader.
        phases: Names of candidates, with the share of the pool that is left, the
            bootstrap set counted; None for the budget.
        origin: Whose it is: "paper" for the paper's own phases, "ablation" for these
            with one part undone or replaced by a peer's, as the paper compares them.
    """

    says: str
    phases: tuple[tuple[str, float | None], ...]
    origin: Literal["paper", "ablation", "ours"] = "ours"


def _published(layers: int, heads: int, width: int) -> Candidate:
    spec = paper_spec(layers, heads, width)
    # The best of seven recipes, of 0 to 20 epochs at rates from 1e-4 to 1e-3, in a
    # trial on another deal of movie polarity.
    return Candidate(spec=spec, training=Training(20, 20, 1e-3))


_LINEAR = Spec(
    1,
    12,
    attention=Emulator("linear", bias=True),
    norm=Emulator("polynomial", degree=2),
    read="mean",
    secure=Emulator("mlp", width=16),
)
_LAST = _published(3, 12, 16)

CANDIDATES: Mapping[str, Candidate] = {
    "l1 w1 d2": _published(1, 1, 2),
    "l3 w12 d8": _published(3, 12, 8),
    "l3 w12 d16": _LAST,
    "1 layer": Candidate(
        spec=_LINEAR, goal="logits", lesson="own", training=Training(4, 32, 1e-3)
    ),
    "words": Candidate(
        spec=ProbeSpec(l2=0.1), goal="logits", lesson="own", layers=(0,)
    ),
    "bootstrap": Candidate(spec=ProbeSpec(l2=0.1)),
    "last layer": Candidate(
        spec=ProbeSpec(l2=0.1), goal="logits", lesson="own", layers=(3,)
    ),
    "linear": Candidate(spec=ProbeSpec(l2=0.1), goal="logits", lesson="own"),
    "other texts": Candidate(spec=ProbeSpec(l2=0.1), goal="logits", lesson="other"),
    "hidden": Candidate(spec=ProbeSpec(hidden=64, l2=0.01), goal="ranks", lesson="own"),
}

POINTS: Mapping[str, Point] = {
    "paper, 1 phase": Point(
        "The paper's: 3 layers, 12 heads, d = 16", (("l3 w12 d16", None),), "paper"
    ),
    "paper, 2 phases": Point(
        "The paper's: 1 layer, 1 head, d = 2 first",
        (("l1 w1 d2", 0.3), ("l3 w12 d16", None)),
        "paper",
    ),
    "paper, 3 phases": Point(
        "The paper's: d = 2, 8, 16",
        (("l1 w1 d2", 0.5), ("l3 w12 d8", 0.3), ("l3 w12 d16", None)),
        "paper",
    ),
    "words": Point(
        "Linear probe on mean word embeddings, distilled", (("words", None),)
    ),
    "bootstrap probe": Point(
        "Linear probe on layers 2, 4, 6, labels of the bootstrap set only",
        (("bootstrap", None),),
    ),
    "last-layer probe": Point(
        "Linear probe on the last layer, distilled", (("last layer", None),)
    ),
    "probe": Point("Linear probe on layers 2, 4, 6, distilled", (("linear", None),)),
    "probe, other texts": Point(
        "The same, distilled on texts of another source", (("other texts", None),)
    ),
    "hidden probe": Point(
        "64 hidden units on layers 2, 4, 6, distilled on ranks", (("hidden", None),)
    ),
    "1 layer": Point(
        "1 layer, 12 heads, linear attention, distilled", (("1 layer", None),)
    ),
    "probe, 1 layer": Point(
        "Linear probe first, then that layer", (("linear", 0.3), ("1 layer", None))
    ),
}

ABLATIONS = ("NoAttnSM", "NoAttnLN", "NoApprox", "2Quad", "Bolt")
"""Of the paper's last phase; with `--full`."""


def candidates(*, full: bool) -> dict[str, Candidate]:
    """Return the proxies to make, the ablations' too if `full`."""
    more = {}
    if full:
        assert isinstance(_LAST.spec, Spec)
        more = {
            name: dataclasses.replace(_LAST, spec=ablation(_LAST.spec, name))
            for name in ABLATIONS
        }
    return {**CANDIDATES, **more}


def points(*, full: bool) -> dict[str, Point]:
    """Return what to compare, the ablations too if `full`."""
    more = {}
    if full:
        more = {
            name: Point(
                f"Ablation of the paper's last phase: {name}",
                ((name, None),),
                "ablation",
            )
            for name in ABLATIONS
        }
    return {**POINTS, **more}
