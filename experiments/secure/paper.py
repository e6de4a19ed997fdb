"""The figures on cost that SelectFormer's text has; its plots are pictures to us."""

from __future__ import annotations

import dataclasses

ROWS, SHARE = 42_000, 0.2
"""Samples of its pool of SST2, and the share that is bought."""

BANDWIDTH, LATENCY = 100e6, 0.1
"""Of its link: bytes a second, and seconds one way."""

BERT = {
    "layers": 12,
    "heads": 12,
    "head_width": 64,
    "hidden": 768,
    "intermediate": 3072,
    "n_classes": 2,
}
DISTILBERT = {**BERT, "layers": 6}

LENGTHS = (128, 512)
"""Tokens of a text: the paper does not say how many."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A figure of the paper on what CrypTen sends.

    Attributes:
        where: In the paper.
        says: What the figure is of.
        value: The figure.
        format: How to show it.
    """

    where: str
    says: str
    value: float
    format: str = ",.0f"


CLAIMS = {
    "comparison rounds": Claim(
        where="section 4.1", says="a comparison, rounds", value=8
    ),
    "comparison bytes": Claim(
        where="section 4.1", says="a comparison, bytes", value=432
    ),
    "softmax rounds": Claim(
        where="Figure 2", says="the softmax of a block, rounds", value=142
    ),
    "softmax share": Claim(
        where="Figure 2",
        says="the softmax of a block, of its bytes",
        value=0.819,
        format=".1%",
    ),
    "BERT rounds": Claim(
        where="section 1", says="BERT, a batch of 4, rounds", value=3252
    ),
    "BERT GB": Claim(where="section 1", says="BERT, a batch of 4, GB", value=245),
    "softmax by MLP": Claim(
        where="section 5.4",
        says="the softmax's bytes over its MLP's",
        value=42,
        format=".3g",
    ),
    "norm by MLP": Claim(
        where="section 5.4",
        says="the norm's bytes over its MLP's",
        value=8.25,
        format=".3g",
    ),
    "scheduling": Claim(
        where="section 5.4, 1.3 to 1.4",
        says="hours of the last proxy, batches of 4 one by one over 4 in step",
        value=1.35,
        format=".3g",
    ),
}

HOURS = {"exact target": 3740.0, "paper": 20.0}
"""Figures 6 and 7, DistilBERT on SST2: the target itself, and two phases of proxies."""

MPCFORMER = 7.0
"""Table 3, BERT: how many times as long a selection takes with MPCFormer's parts."""

ONE_PHASE = (0.33, 0.61)
"""Section 5.4: the share of a single phase's delay that a first phase saves."""
