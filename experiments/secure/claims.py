"""The paper's claims on secure cost as rows of data, most of them figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from experiments._kit.claims import Measured, SeedTest, Stated, judge
from experiments._kit.judge import Claim, gap
from experiments._kit.words import listed
from experiments.selectformer.sources import NAMES

from .paper import HOURS, LENGTHS, MPCFORMER, ONE_PHASE
from .run import SecureCosts

CLOSE = 1.25
"""A count is near the paper's figure if neither is this many times the other."""

LITTLE = 0.005
"""Accuracy that a choice in secret may cost: the difference that the paper reports."""

_WITHOUT = "messages alone are counted here, and the paper's delays include computing"


class PaperFigure(NamedTuple):
    """A figure of the paper: the claim, its place, the figure, and how to show it."""

    text: str
    where: str
    value: float
    format: str = ",.0f"


FIGURES = {
    "comparison rounds": PaperFigure("A comparison takes 8 rounds", "Section 4.1", 8),
    "comparison bytes": PaperFigure("A comparison sends 432 bytes", "Section 4.1", 432),
    "softmax rounds": PaperFigure(
        "The softmax of a block takes 142 rounds", "Figure 2", 142
    ),
    "softmax share": PaperFigure(
        "The softmax of a block sends 81.9 % of its bytes", "Figure 2", 0.819, ".1%"
    ),
    "BERT rounds": PaperFigure(
        "BERT takes 3,252 rounds for a batch of 4", "Section 1", 3252
    ),
    "BERT GB": PaperFigure("BERT sends 245 GB for a batch of 4", "Section 1", 245),
    "softmax by MLP": PaperFigure(
        "The softmax sends 42 times the bytes of its MLP", "Section 5.4", 42, ".3g"
    ),
    "norm by MLP": PaperFigure(
        "The norm sends 8.25 times the bytes of its MLP", "Section 5.4", 8.25, ".3g"
    ),
}
"""The paper's figures that are counted here, on CrypTen."""

CLAIMS: Mapping[str, Stated] = {
    **{
        key: Stated(
            text=figure.text,
            where=figure.where,
            measure=f"count, at most {CLOSE:g} times more or less: our bound",
            test=SeedTest("counted"),
            differs="the paper says neither how long its texts are nor how it counts",
        )
        for key, figure in FIGURES.items()
    },
    "accuracy": Stated(
        text=f"A choice in secret costs at most {100 * LITTLE:g} points of accuracy",
        where="Section 5.4, “minor accuracy loss”; the bound is ours",
        measure="test accuracy, after the secret choice less after the clear one",
        test=SeedTest("above", -LITTLE),
        because="no engine of SPU is installed here, or no data set is prepared",
        differs="a linear probe chooses on SPU's engines, and a linear model learns",
    ),
    **{
        key: Stated(text=text, where=where, because=because)
        for key, text, where, because in (
            (
                "scheduling",
                "Overlapping computing and messages takes 1.3 to 1.4 times fewer hours",
                "Contribution 3; section 5.4, Figure 7",
                "the overlap is not implemented; the figures are of batches of 4 one "
                "by one over 4 in step, which share their rounds",
            ),
            (
                "two phases",
                "Two phases of proxies take two orders of magnitude fewer hours than "
                f"the target: {HOURS['paper']:,.0f} of {HOURS['exact target']:,.0f}",
                "Section 5.2, Figure 6",
                _WITHOUT,
            ),
            (
                "MPCFormer",
                f"A selection takes {MPCFORMER:g} times as long with MPCFormer's parts",
                "Section 5.3, Table 3",
                f"{_WITHOUT}; of MPCFormer's parts the softmax alone is taken",
            ),
            (
                "one phase",
                "A first phase saves {:.0%} to {:.0%} of the last one's hours".format(
                    *ONE_PHASE
                ),
                "Section 5.4",
                _WITHOUT,
            ),
        )
    },
}
"""The paper's claims; last, those on which counts of messages do not bear."""


def judged(result: SecureCosts) -> list[Claim]:
    """Judge figures at each length of a text, and accuracies of all purchases."""
    return judge(CLAIMS, on_claims(result))


def near(count: float, paper: float) -> bool:
    """Tell whether a count is at most `CLOSE` times more or less than a figure."""
    return 1 / CLOSE <= count / paper <= CLOSE


def on_claims(result: SecureCosts) -> Iterator[Measured]:
    """Yield counts by length of a text, and accuracies by engine and pool."""
    lengths = [f"{length} tokens" for length in LENGTHS]
    for key, figure in FIGURES.items():
        for length, where in zip(LENGTHS, lengths, strict=True):
            count = result.claims[length][key]
            far = np.array([not near(count, figure.value)])
            shown = f"{count:{figure.format}} counted"
            yield Measured(key=key, where=where, values=far, said=shown)
    ratios = [_delays(result, length) for length in LENGTHS]
    for key in ratios[0]:
        counts = np.array([of[key] for of in ratios])
        shown = listed([f"{count:.3g}" for count in counts])
        yield Measured(key=key, where=listed(lengths), values=counts, said=shown)
    for engine, of in result.purchases.items():
        for name, bought in of.items():
            secret, clear, _ = bought.accuracy.T
            yield Measured(
                key="accuracy",
                where=f"{NAMES[name]}, {engine}",
                scale=f"{bought.n.mean():,.0f} samples, a linear model",
                values=secret - clear,
                said=gap("secret", secret, "clear", clear),
            )


def _delays(result: SecureCosts, length: int) -> dict[str, float]:
    """Return ratios of hours on CrypTen by claim, for texts of `length` tokens."""
    hours = {
        target: {way: engines["crypten"].hours for way, engines in of.items()}
        for target, of in result.selections[length].items()
    }
    small, large = hours["DistilBERT"], hours["BERT"]
    return {
        "scheduling": result.claims[length]["scheduling"],
        "two phases": small["exact target"] / small["paper"],
        "MPCFormer": large["MPCFormer"] / large["paper"],
        "one phase": 1 - small["paper"] / small["paper, 1 phase"],
    }
