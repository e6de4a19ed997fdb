"""Claims on filtering by loss as rows of data, the paper's and ours.

The text of the paper that is at hand is notes on it. Where they name a baseline, and no
result, the claim is what the method is for.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments._kit.claims import ABOVE, BELOW, SeedTest, Stated, judge
from experiments._kit.judge import Claim

from .measured import GOAL, LITTLE, NEAR, RULES, on_claims, on_ours
from .run import Filtering

_WITHIN = SeedTest("within", NEAR)
_POINTS = f"within {100 * NEAR:g} points"
_PERCEPTRON = "a perceptron, smaller pools; settings with Adam at the server as well"

CLAIMS: Mapping[str, Stated] = {
    "harm": Stated(
        text="Training on noise as well makes the model worse",
        where="Introduction",
        measure="last accuracy: clean samples alone less all data",
        test=ABOVE,
        differs=_PERCEPTRON,
    ),
    "all data": Stated(
        text="Selection trains a better model than all data",
        where="Setup, third baseline",
        measure="last accuracy: the paper's rule less no selection",
        test=ABOVE,
        differs=_PERCEPTRON,
    ),
    "benchmark": Stated(
        text="Selection trains a better model than the benchmark data alone",
        where="Setup, first baseline",
        measure="last accuracy: the paper's rule less the benchmark's model",
        test=ABOVE,
        differs=_PERCEPTRON,
    ),
    "ideal": Stated(
        text=f"Selection is as good as clean samples alone, {_POINTS}",
        where="Setup, second baseline; the bound is ours",
        measure="last accuracy: the paper's rule less clean samples alone",
        test=_WITHIN,
        differs=_PERCEPTRON,
    ),
    "size": Stated(
        text="Selection by a small benchmark set trains a better model than all data",
        where="Setup, benchmark data: a certain percentage",
        measure="last accuracy by size of the benchmark set, less all data's",
        test=ABOVE,
        differs="the paper's percentages are not in the text; Adam at the server only",
    ),
    "slow": Stated(
        text=f"Noise slows training down, to {GOAL:.0%} of the clean accuracy",
        where="Introduction; completion time",
        measure="rounds with all data less rounds with clean samples alone",
        test=ABOVE,
        differs="rounds are counted, not time; the goal is ours",
    ),
    "time": Stated(
        text=f"Selection saves messages, to {GOAL:.0%} of the clean accuracy, though "
        "its own are counted",
        where="Completion time",
        measure="seconds of messages saved on the slowest link",
        test=ABOVE,
        differs="messages over stated links, no computing; the goal is ours",
    ),
    "exchange": Stated(
        text="Clients exchange little for it: less than "
        f"{LITTLE:.0%} of the training's messages",
        where="“A small amount of meta-information”; the bound is ours",
        measure="bytes of the filter over those of all rounds",
        test=SeedTest("below", LITTLE),
        differs="counts at questions, where the paper's clients send distributions",
    ),
    "few writers": Stated(
        text="A benchmark set of few writers is enough",
        where="Setup, FEMNIST",
        because="no data set that is prepared here records who wrote what; clusters of "
        "handwriting stand in, among our own claims",
    ),
    "many clients": Stated(
        text="Selection works across 370 clients, one for each writer",
        where="Setup, FEMNIST",
        because="there are fewer clients here, and clusters of handwriting stand in "
        "for writers, among our own claims",
    ),
    "devices": Stated(
        text="Selection shortens the time to train on clients' devices",
        where="Completion time",
        because="computing is not timed: all clients run side by side in one process. "
        "Messages are counted instead",
    ),
}
"""The paper's claims."""


def _ours(text: str, measure: str, test: SeedTest) -> Stated:
    return Stated(text=text, where="ours", measure=measure, test=test)


OURS: Mapping[str, Stated] = {
    "cross-fitted": _ours(
        "Cross-fitted losses train a better model than the paper's rule",
        "last accuracy, cross-fitted less the paper's rule",
        ABOVE,
    ),
    "quantile": _ours(
        "The 95 % quantile trains a better model than the paper's rule",
        "last accuracy, quantile less the paper's rule",
        ABOVE,
    ),
    "quantile near": _ours(
        f"The 95 % quantile is as good as the cross-fitted threshold, {_POINTS}",
        "last accuracy, quantile less cross-fitted",
        _WITHIN,
    ),
    "cross-fitted, all data": _ours(
        "Cross-fitted losses train a better model than all data",
        "last accuracy, cross-fitted less no selection",
        ABOVE,
    ),
    "cross-fitted, benchmark": _ours(
        "Cross-fitted losses train a better model than the benchmark data alone",
        "last accuracy, cross-fitted less the benchmark's model",
        ABOVE,
    ),
    "clean": _ours(
        f"Clean samples above the cross-fitted threshold are not missed, {_POINTS}",
        "last accuracy without them less with them",
        _WITHIN,
    ),
    **{
        f"threshold, {name}": Stated(
            text="λ* trains as good a model as the threshold of the best held-out "
            f"{name}, {_POINTS}",
            where="ours",
            measure=f"accuracy at λ* less at the threshold of the best {name}",
            test=_WITHIN,
            family="threshold",
        )
        for name in ("loss", "accuracy")
    },
    "threshold, share": Stated(
        text="λ* keeps less data than the threshold of the best held-out loss",
        where="ours",
        measure="share of all data kept, λ* less the best",
        test=BELOW,
        family="threshold",
    ),
    **{
        f"writers, {f}, {key}": Stated(
            text=f"By {rule}, {text}",
            where="ours",
            measure=measure,
            test=test,
            family="writers",
        )
        for f, rule in RULES.items()
        for key, text, measure, test in (
            (
                "gain",
                "few writers' samples train a better model than all data",
                "last accuracy, few writers less no selection",
                ABOVE,
            ),
            (
                "near",
                f"few writers' samples are as good as all writers', {_POINTS}",
                "last accuracy, few writers less all",
                _WITHIN,
            ),
            (
                "foreign",
                "fewer clean samples of other writers are kept",
                "share kept, few writers' less others'",
                ABOVE,
            ),
        )
    },
    "clients, all data": _ours(
        "Where clients are single classes or writers, selection trains a better model "
        "than all data",
        "last accuracy, the paper's rule less no selection",
        ABOVE,
    ),
    "clients, clean": _ours(
        "Where clients are single classes or writers, selection is as good as clean "
        f"samples alone, {_POINTS}",
        "last accuracy, the paper's rule less clean samples alone",
        _WITHIN,
    ),
}
"""Claims that are not in the paper: other rules, the best threshold, writers."""


def paper_claims(result: Filtering) -> list[Claim]:
    """Judge the paper's claims by its own rule, each at 5 % for all its settings."""
    return judge(CLAIMS, on_claims(result))


def own_claims(result: Filtering) -> list[Claim]:
    """Judge our own claims, each family at 5 % for all its settings."""
    return judge(OURS, on_ours(result))
