"""Claims that a choice by a linear target's scores beats a random one, a row a way."""

from __future__ import annotations

from collections.abc import Mapping

from experiments._kit.claims import ABOVE, Stated, judge
from experiments._kit.judge import Claim
from experiments.selectformer.accepted import where_accepted
from experiments.selectformer.sources import NAMES

from .run import Accuracy
from .trial import BUDGETS
from .ways import WAYS

CLAIMS: Mapping[str, Stated] = {
    name: Stated(
        text=f"{way.says} is above a random choice at {BUDGETS[0]:.0%}",
        where="Table 1, Oracle and Random" if name == "entropy" else "ours",
        measure="test accuracy beyond the mean random purchase of as many",
        test=ABOVE,
        differs="target and final model are linear on public features, the paper's are "
        "fine-tuned transformers"
        if name == "entropy"
        else "",
        family="above random",
    )
    for name, way in WAYS.items()
}
"""A claim for each way to choose; the first is the paper's, in its Table 1."""


def judged(result: Accuracy) -> list[Claim]:
    """Test each way at the first budget on each pool, all by Holm's method."""
    return judge(
        CLAIMS,
        [
            where_accepted(
                way,
                100 * pool.gains[:, 0, i],
                "points",
                where=NAMES[name],
                scale=f"{pool.n.mean():,.0f} samples, a linear target",
            )
            for name, pool in result.pools.items()
            for i, way in enumerate(WAYS)
        ],
    )
