"""The paper's grid: the choices its tables compare, as proxies in phases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from jaxsel.models import EncoderConfig
from jaxsel.proxy import Spec, ablation, paper_spec

TYPICAL = 0.2
"""The budget of most tables."""
_FIRST, _SECOND = 0.3, 0.5
"""Shares of the pool that a first of two and a first of three phases leave."""


class Cut(NamedTuple):
    """A proxy by the paper's three numbers, and the kind of its parts.

    Attributes:
        layers: The paper's l.
        heads: Its w.
        width: Its d.
        part: A name for `jaxsel.proxy.ablation`; "" for the paper's MLPs. Peers' parts
            come with the norm and the entropy exact.
    """

    layers: int
    heads: int
    width: int
    part: str = ""

    @property
    def goal(self) -> Literal["labels", "logits"]:
        """Training goal: MPCFormer's proxies are distilled from logits."""
        return "logits" if self.part == "2Quad" else "labels"

    def spec(self) -> Spec:
        """Return its specification."""
        spec = paper_spec(self.layers, self.heads, self.width)
        if self.part in ("2Quad", "Bolt"):
            spec = ablation(spec, "NoApprox")
        return ablation(spec, self.part) if self.part else spec


PROBE = Cut(0, 0, 0)
"""Ours: a linear probe on the public encoder, of the bootstrap set's labels."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """A way to spend a budget.

    Attributes:
        says: Description, for a reader.
        table: The table of the paper that has it, or "ours".
        budget: Share of the pool, the bootstrap set counted.
        phases: Proxies, each with the share of the pool that it leaves, None for the
            budget. None of them ranks if there are none.
        by: Who ranks where there are no phases: nobody, or the target itself.
    """

    says: str
    table: str
    budget: float = TYPICAL
    phases: tuple[tuple[Cut, float | None], ...] = ()
    by: Literal["proxies", "random", "target"] = "proxies"


_MAIN = ((16,), (2, 16), (2, 8, 16))
_WIDTHS = (
    *((2,), (4,), (8,), (16,)),
    *((2, 2), (2, 8), (2, 16), (4, 16)),
    *((2, 2, 2), (2, 2, 8), (2, 2, 16), (2, 8, 8), (2, 8, 16), (2, 16, 16)),
)
"""Widths of the phases of Table 5; `_MAIN` are Table 4's as well."""

OURS, RANDOM, ORACLE = "two phases", "random", "oracle"


def ways(config: EncoderConfig, *, paper: bool) -> dict[str, Way]:
    """Return the ways to compare for a target, by name.

    Without `paper` these are the ways of Table 1, and our probe. Layers and heads are
    cut to the target's where it has fewer.

    Args:
        config: Of the target.
        paper: Whether to add Tables 2 and 4 to 7, and the comparison with peers.
    """
    image = config.kind == "image"
    heads, last = config.heads, min(3, config.layers)
    first = last if image else 1
    pair = [(first, 1, 2), (last, heads, 16)]
    compared = {
        OURS: _sieve("The paper's two phases", "Table 1", pair),
        RANDOM: Way(says="Random", table="Table 1", by="random"),
        ORACLE: Way(says="The target itself (Oracle)", table="Table 1", by="target"),
        "probe": Way(
            says="A linear probe on the public encoder",
            table="ours",
            phases=((PROBE, None),),
        ),
    }
    if not paper:
        return compared
    for part in ("NoAttnSM", "NoAttnLN", "NoApprox"):
        compared[part] = _sieve(f"Two phases, {part}", "Table 2", pair, part)
    for part, name in (("2Quad", "MPCFormer"), ("Bolt", "Bolt")):
        says = f"Two phases, {name}'s softmax"
        compared[name] = _sieve(says, "Sections 5.3, 7.2", pair, part)
    # Table 4 gives a target of six layers one layer in every phase.
    deep = last if image or config.layers > 6 else 1
    for widths in _WIDTHS:
        several = len(widths) > 1
        sizes = [
            (deep if i else first, heads if i or not several else 1, width)
            for i, width in enumerate(widths)
        ]
        name = f"d = {', '.join(map(str, widths))}"
        says = f"{len(widths)} phase{'s' if several else ''}, {name}"
        table = "Tables 4 and 5" if widths in _MAIN else "Table 5"
        compared[name] = _sieve(says, table, sizes)
    for budget in (0.25, 0.3, 0.4):
        for name in (OURS, RANDOM, ORACLE):
            compared[f"{name}, {budget:.0%}"] = dataclasses.replace(
                compared[name], table="Table 6", budget=budget
            )
    for budget in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        compared[f"{RANDOM}, {budget:.0%}"] = dataclasses.replace(
            compared[RANDOM], table="Table 7", budget=budget
        )
    return compared


def cuts(compared: Iterable[Way]) -> list[Cut]:
    """Return the proxies of some ways, each once; without our probe."""
    distinct = dict.fromkeys(cut for way in compared for cut, _ in way.phases)
    return [cut for cut in distinct if cut != PROBE]


def _sieve(
    says: str, table: str, sizes: list[tuple[int, int, int]], part: str = ""
) -> Way:
    shares = {1: (), 2: (_FIRST,), 3: (_SECOND, _FIRST)}[len(sizes)]
    phases = zip((Cut(*size, part) for size in sizes), (*shares, None), strict=True)
    return Way(says=says, table=table, phases=tuple(phases))


PUBLISHED: Mapping[tuple[str, str], tuple[float, float, float]] = {
    ("glue/sst2", "DistilBERT"): (82.34, 79.08, 82.32),
    ("glue/qnli", "DistilBERT"): (71.46, 70.34, 71.44),
    ("glue/qqp", "DistilBERT"): (71.53, 66.18, 71.51),
    ("ag_news_subset", "DistilBERT"): (88.49, 86.43, 89.19),
    ("glue/sst2", "BERT"): (84.59, 79.58, 86.06),
    ("glue/qnli", "BERT"): (73.68, 73.56, 74.62),
    ("glue/qqp", "BERT"): (72.73, 68.84, 73.08),
    ("ag_news_subset", "BERT"): (89.04, 87.85, 89.74),
    ("cifar10", "ViT-small"): (96.46, 94.69, 96.87),
    ("cifar100", "ViT-small"): (69.11, 43.99, 68.40),
    ("cifar10", "ViT-base"): (96.61, 95.63, 96.94),
    ("cifar100", "ViT-base"): (68.42, 63.21, 67.85),
}
"""Table 8: test accuracy in per cent by the two phases, Random and Oracle."""


def called(config: EncoderConfig) -> str:
    """Return the paper's name for a target of this architecture; "" for another."""
    names = {
        ("text", 6, 768): "DistilBERT",
        ("text", 12, 768): "BERT",
        ("image", 12, 384): "ViT-small",
        ("image", 12, 768): "ViT-base",
    }
    return names.get((config.kind, config.layers, config.hidden), "")
