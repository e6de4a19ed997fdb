"""Phases to search among: the paper's, and cheaper ones."""

from __future__ import annotations

from jaxsel.models import Target
from jaxsel.proxy._manifest import Emulator
from jaxsel.proxy._parties._plan import Phase, ProbeSpec, Training
from jaxsel.proxy._spec import Spec, paper_spec

PAPER_SCHEDULES: dict[str, tuple[tuple[str, float | None], ...]] = {
    "paper, 1 phase": (("paper d=16", None),),
    "paper, 2 phases": (("paper d=2", 0.3), ("paper d=16", None)),
    "paper, 3 phases": (("paper d=2", 0.5), ("paper d=8", 0.3), ("paper d=16", None)),
}
"""The paper's schedules of one, two and three phases (its Table 4): names of
`default_candidates`, each with the share of the pool that it leaves."""


def default_candidates(target: Target, *, features: bool = True) -> dict[str, Phase]:
    """Return phases to search among, by name: the paper's proxies, and cheaper ones.

    Distilled ones learn from the bootstrap set and from `distil`, where there is any.

    Args:
        target: The target: no candidate has more layers or heads than it.
        features: Whether samples have features, which probes read.
    """
    layers, heads = target.config.layers, target.config.heads
    linear = Spec(
        1,
        heads,
        attention=Emulator("linear", bias=True),
        norm=Emulator("polynomial", degree=2),
        read="mean",
        secure=Emulator("mlp", width=16),
    )
    deep = min(3, layers)
    candidates = {
        "paper d=2": _paper(1, 1, 2),
        "paper d=8": _paper(deep, heads, 8),
        "paper d=16": _paper(deep, heads, 16),
        "1 layer": Phase(linear, goal="logits", training=Training(4, 32, 1e-3)),
    }
    if features:
        candidates |= {
            "probe": Phase(ProbeSpec(l2=0.1), goal="logits"),
            "probe of labels": Phase(ProbeSpec(l2=0.1)),
            "hidden probe": Phase(ProbeSpec(hidden=64, l2=0.01), goal="ranks"),
        }
    return candidates


def _paper(layers: int, heads: int, width: int) -> Phase:
    # At .001 the guard refuses the deepest on bootstrap sets of some dozens.
    return Phase(paper_spec(layers, heads, width), training=Training(20, 20, 1e-4))
