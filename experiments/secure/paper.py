"""The figures on cost that SelectFormer's text has; its plots are pictures to us."""

from __future__ import annotations

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

HOURS = {"exact target": 3740.0, "paper": 20.0}
"""Figures 6 and 7, DistilBERT on SST2: the target itself, and two phases of proxies."""

MPCFORMER = 7.0
"""Table 3, BERT: how many times as long a selection takes with MPCFormer's parts."""

ONE_PHASE = (0.33, 0.61)
"""Section 5.4: the share of a single phase's delay that a first phase saves."""
