"""Points in the plane of fidelity and secure cost: which proxies, in which phases."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxsel.proxy import (
    Emulator,
    ProbeSpec,
    Spec,
    Training,
    ablation,
    paper_spec,
)

Kind = Literal["entropy", "margin", "prior_entropy"]
Lesson = Literal["bootstrap", "own", "other"]
Origin = Literal["paper", "peer", "variant", "ours"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A proxy, and what it learns from.

    Attributes:
        spec: The proxy, or a probe.
        goal: What it is trained on, see `jaxsel.proxy.Phase`.
        lesson: "bootstrap"; "own", and then the model owner's samples of the same
            source too; or "other", those of another source.
        layers: Of a probe: places in the features that it reads.
        training: Of a proxy of the target.
        kind: The score that it ranks by.
    """

    spec: Spec | ProbeSpec
    goal: Literal["labels", "logits", "ranks"] = "labels"
    lesson: Lesson = "bootstrap"
    layers: tuple[int, ...] = (1, 2, 3)
    training: Training = Training()
    kind: Kind = "entropy"


@dataclasses.dataclass(frozen=True)
class Point:
    """A selection: phases, each with a candidate and the share of the pool it leaves.

    Attributes:
        says: What it is, for a reader.
        phases: Names of candidates, with the share of the pool that is left when a
            fifth is bought, the bootstrap set counted; None for the budget. A larger
            budget leaves proportionally more.
        origin: Whose it is: "paper" for the paper's own phases, "peer" for those with a
            peer's parts, as the paper compares them, "variant" for the paper's with
            other sizes or one part undone.
        published: Whether the model owner shows the proxy, so that nothing is secret.
        diverse: Whether the last phase multiplies scores by distances.
        exact: Whether candidates rank by the exact entropies of their logits: the best
            that an emulator of the entropy could do.
    """

    says: str
    phases: tuple[tuple[str, float | None], ...]
    origin: Origin = "ours"
    published: bool = False
    diverse: bool = False

    exact: bool = False

    @property
    def last(self) -> str:
        """The candidate of the last phase."""
        return self.phases[-1][0]


# The best of seven recipes, of 0 to 20 epochs at rates from 1e-4 to 1e-3, in a trial on
# another deal of movie polarity.
_PAPER = Training(20, 20, 1e-3)
_ABLATIONS = ("NoAttnSM", "NoAttnLN", "NoApprox")
SEARCHED = (
    "words",
    "bootstrap",
    "last layer",
    "probe",
    "other",
    "probe, margin",
    "probe, prior",
    "hidden",
    "1 layer",
)
"""Candidates that schedules are searched among: ours. The others are compared."""

ATTACKED = ("bootstrap", "probe")
"""Candidates that the data owner tries to recover from a choice."""


def candidates(kind: Literal["text", "image"], *, full: bool) -> dict[str, Candidate]:
    """Return the proxies to make for a target, by name.

    Args:
        kind: Of the target: MiniLM, or the small ViT.
        full: Whether to add the paper's other widths and its ablations.
    """
    heads, first, training = 12, 1, _PAPER
    if kind == "image":  # the paper's first phase has three layers; 1e-3 diverges
        heads, first, training = 4, 3, Training(20, 20, 3e-4)

    def paper(layers: int, heads: int, width: int, part: str | None = None) -> Spec:
        spec = paper_spec(layers, heads, width)
        return spec if part is None else ablation(spec, part)

    def peer(layers: int, heads: int, part: str) -> Spec:
        return ablation(paper(layers, heads, 16, "NoApprox"), part)

    linear = Spec(
        1,
        heads,
        attention=Emulator("linear", bias=True),
        norm=Emulator("polynomial", degree=2),
        read="mean",
        secure=Emulator("mlp", width=16),
    )
    theirs = {
        "d=2": paper(first, 1, 2),
        "d=8": paper(3, heads, 8),
        "d=16": paper(3, heads, 16),
        "Bolt, first": peer(first, 1, "Bolt"),
        "Bolt": peer(3, heads, "Bolt"),
    }
    if full:
        theirs |= {
            "d=4": paper(first, 1, 4),
            "last d=2": paper(3, heads, 2),
            "last d=4": paper(3, heads, 4),
            "1 layer d=16": paper(1, heads, 16),
            **{name: paper(3, heads, 16, name) for name in _ABLATIONS},
        }
    probe = Candidate(spec=ProbeSpec(l2=0.1), goal="logits", lesson="own")
    return {
        **{name: Candidate(spec=s, training=training) for name, s in theirs.items()},
        "2Quad, first": Candidate(
            spec=peer(first, 1, "2Quad"), goal="logits", training=training
        ),
        "2Quad": Candidate(
            spec=peer(3, heads, "2Quad"), goal="logits", training=training
        ),
        "2Quad, own": Candidate(
            spec=peer(3, heads, "2Quad"),
            goal="logits",
            lesson="own",
            training=Training(4, 32, 1e-3),
        ),
        "1 layer": Candidate(
            spec=linear, goal="logits", lesson="own", training=Training(4, 32, 1e-3)
        ),
        "words": dataclasses.replace(probe, layers=(0,)),
        "bootstrap": Candidate(spec=ProbeSpec(l2=0.1)),
        "last layer": dataclasses.replace(probe, layers=(3,)),
        "probe": probe,
        "other": dataclasses.replace(probe, lesson="other"),
        "hidden": Candidate(
            spec=ProbeSpec(hidden=64, l2=0.01), goal="ranks", lesson="own"
        ),
        "probe, margin": dataclasses.replace(probe, kind="margin"),
        "probe, prior": dataclasses.replace(probe, kind="prior_entropy"),
    }


_POINTS: dict[str, Point] = {
    "paper, 1 phase": Point(
        "The paper's: 3 layers, all heads, d = 16", (("d=16", None),), "paper"
    ),
    "paper, 2 phases": Point(
        "The paper's: d = 2 first", (("d=2", 0.3), ("d=16", None)), "paper"
    ),
    "paper, 3 phases": Point(
        "The paper's: d = 2, 8, 16",
        (("d=2", 0.5), ("d=8", 0.3), ("d=16", None)),
        "paper",
    ),
    "paper, exact score": Point(
        "Its two phases, ranked by the exact entropies of their logits",
        (("d=2", 0.3), ("d=16", None)),
        "variant",
        exact=True,
    ),
    "MPCFormer": Point(
        "MPCFormer's softmax in these two phases, distilled on the bootstrap set",
        (("2Quad, first", 0.3), ("2Quad", None)),
        "peer",
    ),
    "MPCFormer, own": Point(
        "Its last phase, distilled on the model owner's samples too",
        (("2Quad, own", None),),
        "peer",
    ),
    "Bolt": Point(
        "Bolt's softmax in these two phases",
        (("Bolt, first", 0.3), ("Bolt", None)),
        "peer",
    ),
    "words": Point("Linear probe on mean embedded rows, distilled", (("words", None),)),
    "bootstrap probe": Point(
        "Linear probe on layers 2, 4, 6, labels of the bootstrap set only",
        (("bootstrap", None),),
    ),
    "last-layer probe": Point(
        "Linear probe on the last layer, distilled", (("last layer", None),)
    ),
    "probe": Point("Linear probe on layers 2, 4, 6, distilled", (("probe", None),)),
    "published probe": Point(
        "The same, shown to the data owner, who ranks in the clear",
        (("probe", None),),
        published=True,
    ),
    "probe, other": Point(
        "The same, distilled on samples of another source", (("other", None),)
    ),
    "hidden probe": Point(
        "64 hidden units on layers 2, 4, 6, distilled on ranks", (("hidden", None),)
    ),
    "1 layer": Point(
        "1 layer, all heads, linear attention, distilled", (("1 layer", None),)
    ),
    "probe, 1 layer": Point(
        "Linear probe first, then that layer", (("probe", 0.3), ("1 layer", None))
    ),
    "probe, margin": Point(
        "The linear probe, ranked by the margin", (("probe, margin", None),)
    ),
    "probe, prior": Point(
        "The linear probe, the bootstrap set's class shares divided out",
        (("probe, prior", None),),
    ),
    "probe × distance": Point(
        "The linear probe times distance from what is chosen",
        (("probe", None),),
        diverse=True,
    ),
}


def points(*, full: bool) -> dict[str, Point]:
    """Return what to compare, by name; more of the paper's if `full`."""
    return {**_POINTS, **(_variants() if full else {})}


def _variants() -> dict[str, Point]:
    """Return the paper's ablations, and the widths of its Table 5."""
    found = {
        name: Point(f"The paper's last phase, {said}", ((name, None),), "variant")
        for name, said in (
            ("NoAttnSM", "its softmax exact"),
            ("NoAttnLN", "its norms exact"),
            ("NoApprox", "nothing emulated"),
            ("1 layer d=16", "1 layer of 3"),
        )
    }
    last = {2: "last d=2", 4: "last d=4", 8: "d=8", 16: "d=16"}
    for width in (2, 4, 8):
        found[f"d = {width}"] = Point(
            f"The paper's last phase, d = {width}", ((last[width], None),), "variant"
        )
    for first, second in ((2, 2), (2, 8), (4, 16)):
        found[f"d = {first}, {second}"] = Point(
            f"The paper's two phases, d = {first}, {second}",
            ((f"d={first}", 0.3), (last[second], None)),
            "variant",
        )
    for middle, end in ((2, 2), (2, 8), (2, 16), (8, 8), (16, 16)):
        found[f"d = 2, {middle}, {end}"] = Point(
            f"The paper's three phases, d = 2, {middle}, {end}",
            (("d=2", 0.5), (last[middle], 0.3), (last[end], None)),
            "variant",
        )
    return found
