"""Results of attacks on a proxy: figures, a table, and a verdict."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxsel._inputs.show import brief
from jaxsel.proxy._cost._cost import markdown

RECOVERED, IN_PART = 0.9, 0.5
"""Rank correlations from which a proxy counts as recovered, or in part."""


@dataclasses.dataclass(frozen=True)
class Recovery:
    """The best of several attacks on one kind of answer.

    Attributes:
        attack: The one with the highest rank correlation, in hindsight.
        rank_correlation: Spearman's, of the attacker's with the proxy's scores of fresh
            samples: 1 ranks as the proxy does, 0 knows nothing of it. Where samples are
            judged by the opened answer, over the maximum that its ties allow: of a set,
            twice the area under the curve, less 1.
        overlap: Share of the best fresh samples, as many of a hundred as were chosen,
            that the attacker names.
        cosine: Of a linear probe's direction with the attacker's, features standardised
            (for C classes: mean over the C - 1 principal angles); None for other
            proxies and for surrogates with a hidden layer.
    """

    attack: str
    rank_correlation: float
    overlap: float
    cosine: float | None


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Leakage:
    """The part of a proxy that the data owner recovers from one phase's answer.

    Attacks that are known here bound it from below: better ones may exist.

    Attributes:
        n: Samples that the choice was made from.
        keep: How many were chosen.
        width: Features that the attacks read, d, constant ones left out.
        fresh: Samples that attacks are judged by: those that the choice had not seen,
            or that the attacks had not.
        passes: Pivots that the choice drew.
        outcomes: Recovered from the outcomes of all comparisons; None for "set", which
            shows none.
        chosen: Recovered from the chosen set alone, which every engine shows.
        judged_by: "scores": the proxy's, of samples that the choice had not seen.
            "answer": the choice's answer on samples that the attacks had not seen,
            all that a data owner has.
    """

    n: int
    keep: int
    width: int
    fresh: int
    passes: int
    outcomes: Recovery | None
    chosen: Recovery
    judged_by: Literal["scores", "answer"] = "scores"

    @property
    def chance(self) -> float:
        """The overlap that a random guess has."""
        return self.keep / self.n

    @property
    def rank_correlation(self) -> float:
        """The highest that an attack reached."""
        return max(r.rank_correlation for r in (self.outcomes, self.chosen) if r)

    @property
    def verdict(self) -> str:
        """The meaning of these figures for the model owner, as a sentence."""
        rho = self.rank_correlation
        which = "fresh" if self.judged_by == "scores" else "held-out"
        measure = f"rank correlation {rho:.2f} on {self.fresh:,} {which} samples"
        if rho >= RECOVERED:
            return (
                f"recovered ({measure}): whoever holds the samples can rank others as "
                "this proxy does, so that computing in secret protects nothing of it; "
                'a linear probe may as well be published (engine = "published")'
            )
        if rho >= IN_PART:
            return (
                f"recovered in part ({measure}): treat the proxy's ranking as known to "
                "the data owner after a few such sessions"
            )
        return (
            f"not recovered by these attacks ({measure}); others may do better, and "
            "answers of further sessions with the same proxy add up"
        )

    def table(self) -> str:
        """Return a Markdown table of the recoveries by kind of answer."""
        header = ("from", "best attack", "rank correlation", "overlap", "cosine")
        rows = (
            (f"outcomes of {self.passes} passes", self.outcomes),
            ("chosen set alone", self.chosen),
            ("a random guess", Recovery("", 0.0, self.chance, None)),
        )
        lines = [
            (
                name,
                recovery.attack,
                f"{recovery.rank_correlation:.3f}",
                f"{recovery.overlap:.3f}",
                "" if recovery.cosine is None else f"{recovery.cosine:.4f}",
            )
            for name, recovery in rows
            if recovery is not None
        ]
        return markdown(header, lines)

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.verdict}"
