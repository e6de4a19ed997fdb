"""Points in the plane of fidelity and secure cost: which proxies, in which phases."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

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
Source = Literal["rows", "gaussian", "both"]

RATES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
"""Learning rates of in vivo training that are tried for a proxy of the target."""

PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
"""Weights of the squared norm that are tried for a probe: as many."""

STARTS = 4
"""Initial weights of each emulator, the paper's and ours: the best is kept."""

DEEPEST = 3
"""Layers of the paper's deepest proxy, and so of its sub-model M_g."""

PUBLISHED = 5_120_000
"""Samples that the paper synthesises for each emulator."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A proxy, and its training.

    Attributes:
        spec: The proxy, or a probe.
        goal: Its training goal, see `jaxsel.proxy.Phase`.
        lesson: "bootstrap"; "own", and then the model owner's samples of the same
            source too; or "other", for samples of another source.
        layers: Of a probe: places in the features that it reads.
        training: Of a proxy of the target; its rate is the first one to try.
        kind: The score that it ranks by.
        backbone: Whether a proxy is cut from the paper's sub-model M_g, fine-tuned on
            the bootstrap set by itself, and its emulators are fitted to the activations
            of that; else it is cut from the fine-tuned target.
        source: Source of the emulators' ex vivo training, see `jaxsel.proxy.Phase`.
        n_points: Samples that each of them sees.
        refit: Whether the emulator of the entropy is fitted again after the in vivo
            training.
    """

    spec: Spec | ProbeSpec
    goal: Literal["labels", "logits", "ranks"] = "labels"
    lesson: Lesson = "bootstrap"
    layers: tuple[int, ...] = (1, 2, 3)
    training: Training = Training()
    kind: Kind = "entropy"
    backbone: bool = False
    source: Source = "both"
    n_points: int = 1_024_000
    refit: bool = False

    def tries(self) -> tuple[Candidate, ...]:
        """List the settings to try, from the boldest to the most cautious.

        They are learning rates of a proxy of the target, and penalties of a probe: as
        many for each method, whoever proposed it.
        """
        if isinstance(self.spec, ProbeSpec):
            specs = [dataclasses.replace(self.spec, l2=l2) for l2 in PENALTIES]
            return tuple(dataclasses.replace(self, spec=spec) for spec in specs)
        trainings = [
            dataclasses.replace(self.training, learning_rate=rate) for rate in RATES
        ]
        return tuple(
            dataclasses.replace(self, training=training) for training in trainings
        )


@dataclasses.dataclass(frozen=True)
class Point:
    """A selection: phases, each with a candidate and the share of the pool it leaves.

    Attributes:
        says: Description, for a reader.
        phases: Names of candidates, with the share of the pool that is left when a
            fifth is bought, the bootstrap set counted; None for the budget. A larger
            budget leaves proportionally more.
        origin: "paper" for the paper's own phases, "peer" for those with a
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


# The paper gives none: 20 epochs were the best of 0 to 20 in a trial on another deal of
# movie polarity. Rates come from `Candidate.tries`.
_PAPER = Training(20, 20)
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


def candidates(
    kind: Literal["text", "image"], *, variants: bool = False
) -> dict[str, Candidate]:
    """Return the proxies to make for a target, by name.

    Args:
        kind: Of the target: MiniLM, or the small ViT.
        variants: The proxies of `points(variants=True)` instead: the paper's other
            widths, its ablations, and its phases taught in other ways.
    """
    heads, first, training = 12, 1, _PAPER
    if kind == "image":  # the paper's first phase has three layers
        heads, first = 4, 3

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
    of_paper = {
        "d=2": paper(first, 1, 2),
        "d=8": paper(3, heads, 8),
        "d=16": paper(3, heads, 16),
    }
    if variants:
        specs = of_paper | {
            "d=4": paper(first, 1, 4),
            "last d=2": paper(3, heads, 2),
            "last d=4": paper(3, heads, 4),
            "1 layer d=16": paper(1, heads, 16),
            **{name: paper(3, heads, 16, name) for name in _ABLATIONS},
        }
        by_name = {n: Candidate(spec=s, training=training) for n, s in specs.items()}
        return by_name | {
            f"{name}, {width}": dataclasses.replace(by_name[width], **options)
            for name, options in _OPTIONS.items()
            for width in ("d=2", "d=16")
        }
    specs = of_paper | {
        "Bolt, first": peer(first, 1, "Bolt"),
        "Bolt": peer(3, heads, "Bolt"),
    }
    probe = Candidate(spec=ProbeSpec(), goal="logits", lesson="own")
    theirs = {n: Candidate(spec=s, training=training) for n, s in specs.items()}
    return {
        **theirs,
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
            training=Training(4, 32),
        ),
        "1 layer": Candidate(
            spec=linear, goal="logits", lesson="own", training=Training(4, 32)
        ),
        "words": dataclasses.replace(probe, layers=(0,)),
        "bootstrap": Candidate(spec=ProbeSpec()),
        "last layer": dataclasses.replace(probe, layers=(3,)),
        "probe": probe,
        "other": dataclasses.replace(probe, lesson="other"),
        "hidden": Candidate(spec=ProbeSpec(hidden=64), goal="ranks", lesson="own"),
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


_OPTIONS: dict[str, dict[str, Any]] = {
    "sub-model": {"backbone": True},
    "as published": {"backbone": True, "source": "gaussian", "n_points": PUBLISHED},
    "refitted": {"refit": True},
    "distilled": {"goal": "logits", "lesson": "own", "training": Training(4, 32)},
}
"""The paper's two phases in other ways: as its sections 4.2 and 4.3 have it, with one
addition of ours, and taught as our probes are."""

_OPTION_SAYS = {
    "sub-model": "The paper's two phases, cut from its sub-model",
    "as published": "The same, emulators trained on 5.12 million Gaussian samples",
    "refitted": "The paper's two phases, the entropy's emulator refitted in the end",
    "distilled": "The paper's two phases, distilled on own samples as our probes are",
}


def points(*, variants: bool = False) -> dict[str, Point]:
    """Return the points to compare, by name.

    Args:
        variants: The paper's two phases beside variants of its phases instead.
    """
    if not variants:
        return dict(_POINTS)
    return {"paper, 2 phases": _POINTS["paper, 2 phases"], **_variants()}


def _variants() -> dict[str, Point]:
    """Return the paper's ablations, and the widths of its Table 5."""
    variants = {
        name: Point(f"The paper's last phase, {says}", ((name, None),), "variant")
        for name, says in (
            ("NoAttnSM", "its softmax exact"),
            ("NoAttnLN", "its norms exact"),
            ("NoApprox", "nothing emulated"),
            ("1 layer d=16", "1 layer of 3"),
        )
    }
    for name, says in _OPTION_SAYS.items():
        phases = ((f"{name}, d=2", 0.3), (f"{name}, d=16", None))
        variants[f"paper, {name}"] = Point(says, phases, "variant")
    last = {2: "last d=2", 4: "last d=4", 8: "d=8", 16: "d=16"}
    for width in (2, 4, 8):
        variants[f"d = {width}"] = Point(
            f"The paper's last phase, d = {width}", ((last[width], None),), "variant"
        )
    for first, second in ((2, 2), (2, 8), (4, 16)):
        variants[f"d = {first}, {second}"] = Point(
            f"The paper's two phases, d = {first}, {second}",
            ((f"d={first}", 0.3), (last[second], None)),
            "variant",
        )
    for middle, end in ((2, 2), (2, 8), (2, 16), (8, 8), (16, 16)):
        variants[f"d = 2, {middle}, {end}"] = Point(
            f"The paper's three phases, d = 2, {middle}, {end}",
            (("d=2", 0.5), (last[middle], 0.3), (last[end], None)),
            "variant",
        )
    return variants
