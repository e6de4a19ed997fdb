"""Claims on proxies by the number of labels bought first, all of them ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from experiments._kit.claims import ABOVE, Measured, Stated, judge
from experiments._kit.judge import Claim
from experiments.selectformer.accepted import where_accepted

from .run import HEADS, WAYS, Curve

PAPER = "paper"
"""The way that others are compared with: the paper's last phase."""


def _ours(text: str, measure: str, because: str = "") -> Stated:
    return Stated(
        text=text,
        where="ours",
        measure=f"rank correlation with the target, {measure}",
        test=ABOVE,
        because=because,
        family="curve",
    )


CLAIMS: Mapping[str, Stated] = {
    **{
        name: _ours(
            f"Above the paper's last phase: {way.says}",
            "less the paper's last phase's",
            "it takes --published" if way.published else "",
        )
        for name, way in WAYS.items()
        if name != PAPER
    },
    "labels": _ours(
        "The paper's last phase ranks better after more labels",
        "with most labels less with fewest",
    ),
    "construction": _ours(
        "A probe of the labels ranks better where the target's head began as one",
        "linear head less hidden head",
    ),
}
"""Claims that the curve bears on, all ours: the paper shows no such curve."""


def on_claims(result: Curve) -> Iterator[Measured]:
    """Yield differences in rank correlation, by kind of head and number of labels."""

    def rank(way: str, head: str, size: int) -> np.ndarray:
        return result.cells[head, size].spearman[:, result.ways.index(way)]

    least, most = result.sizes[0], result.sizes[-1]
    for head in HEADS:
        for size in result.sizes:
            where = f"{size:,} labels, {head} head"
            for way in result.ways:
                if way != PAPER:
                    lead = rank(way, head, size) - rank(PAPER, head, size)
                    yield where_accepted(way, lead, where=where)
        more = rank(PAPER, head, most) - rank(PAPER, head, least)
        where = f"{most:,} labels and {least:,}, {head} head"
        yield where_accepted("labels", more, where=where)
    for size in result.sizes:
        linear, hidden = (rank("labels probe", head, size) for head in HEADS)
        where = f"{size:,} labels"
        yield where_accepted("construction", linear - hidden, where=where)


def judged(result: Curve) -> list[Claim]:
    """Judge all claims at 5 % together, by Holm's method."""
    return judge(CLAIMS, on_claims(result))
