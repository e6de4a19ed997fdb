"""Claims of the paper, and of ours, with a test of each; or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.values.judge import (
    Claim,
    Evidence,
    Finding,
    above,
    below,
    gap,
    settle,
    untested,
    within,
)
from jaxsel.demo.words import standard_error

from .best import BY, best
from .cases import NAMES, WAYS, cases, scale, strong
from .clients import AVERAGING, DEALS
from .links import LINKS, exchanged_bytes, rounds_to, saved
from .run import Filtering
from .writers import FEW, STYLES

NEAR = 0.02
"""Accuracies that differ by less are as good as one another."""
LITTLE = 0.05
"""Less than that share of the training's messages is little."""
GOAL = 0.8
"""Share of the accuracy with clean samples alone until which messages are counted."""
SLOWEST = next(iter(LINKS))

RULES = {1: "the paper's rule", 2: "the cross-fitted threshold"}


def paper_claims(result: Filtering) -> list[Claim]:
    """Judge the paper's claims by its own rule, those of a family at 5 % together."""
    found: list[Finding] = []
    for case in cases(result):
        said = lambda name, a, other, b, case=case: (
            {
                "where": case.where,
                "scale": case.scale,
                "measured": gap(name, a, other, b),
            }
        )
        found += [
            Finding(
                family="harm" + case.family,
                text="Training on noise as well makes the model worse",
                evidence=above(case.ideal - case.none),
                **said("clean alone", case.ideal, "all data", case.none),
            ),
            Finding(
                family="all data" + case.family,
                text="Selection trains a better model than all data",
                evidence=above(case.paper - case.none),
                **said("selection", case.paper, "all data", case.none),
            ),
            Finding(
                family="benchmark" + case.family,
                text="Selection trains a better model than the benchmark data alone",
                evidence=above(case.paper - case.bench),
                **said("selection", case.paper, "benchmark model", case.bench),
            ),
            Finding(
                family="ideal" + case.family,
                text="Selection is as good as clean samples alone, within "
                f"{100 * NEAR:g} points",
                evidence=within(case.paper - case.ideal, NEAR),
                **said("selection", case.paper, "clean alone", case.ideal),
            ),
        ]
    found += _sizes(result) + _time(result)
    return settle(_sorted(found)) + settle(_untested(result))


def own_claims(result: Filtering) -> list[Claim]:
    """Judge what is ours: other rules, the best threshold, few writers."""
    found: list[Finding] = []
    for case in cases(result):
        about = {"where": case.where, "scale": case.scale}
        found += [
            Finding(
                family="cross-fitted" + case.family,
                text="Cross-fitted losses train a better model than the paper's rule",
                measured=gap("cross-fitted", case.crossed, "paper's", case.paper),
                evidence=above(case.crossed - case.paper),
                **about,
            ),
            Finding(
                family="quantile" + case.family,
                text="The 95 % quantile trains a better model than the paper's rule",
                measured=gap("quantile", case.quantile, "paper's", case.paper),
                evidence=above(case.quantile - case.paper),
                **about,
            ),
            Finding(
                family="quantile near" + case.family,
                text="The 95 % quantile is as good as the cross-fitted threshold, "
                f"within {100 * NEAR:g} points",
                measured=gap("quantile", case.quantile, "cross-fitted", case.crossed),
                evidence=within(case.quantile - case.crossed, NEAR),
                **about,
            ),
            Finding(
                family="cross-fitted, all data" + case.family,
                text="Cross-fitted losses train a better model than all data",
                measured=gap("cross-fitted", case.crossed, "all data", case.none),
                evidence=above(case.crossed - case.none),
                **about,
            ),
            Finding(
                family="cross-fitted, benchmark" + case.family,
                text="Cross-fitted losses train a better model than the benchmark data "
                "alone",
                measured=gap(
                    "cross-fitted", case.crossed, "benchmark model", case.bench
                ),
                evidence=above(case.crossed - case.bench),
                **about,
            ),
        ]
    for target, asked in result.questions.items():
        ideal = asked["ideal"][:, -1]
        found.append(
            Finding(
                family="clean",
                text="Clean samples above the cross-fitted threshold are not missed, "
                f"within {100 * NEAR:g} points",
                where=f"{NAMES[target]}, clean samples alone",
                scale=scale(result),
                measured=gap("without", asked["hard"], "with", ideal),
                evidence=within(asked["hard"] - ideal, NEAR),
            )
        )
    found += _threshold(result) + _writers(result) + _clients(result)
    return settle(_sorted(found))


def timed(
    result: Filtering,
) -> Iterator[tuple[str, str, str, np.ndarray, np.ndarray]]:
    """Yield trainings whose filter's messages were counted, under strong noise.

    Target, kind of noise, way of training, and accuracies by rounds: with clean samples
    alone, `[S, T]`, and of those that are `TRAINED`, `[S, 4, T]`.
    """
    for target, kinds in result.best.items():
        for kind in kinds:
            plain = result.variants[target]["plain"]["ideal"]
            accuracy = result.plain[target][kind]["accuracy"][:, -1]
            yield target, kind, "plain", plain, accuracy
            accuracy = result.noise[target][kind]["accuracy"][:, -1]
            yield target, kind, "", result.questions[target]["ideal"], accuracy


def to_goal(
    result: Filtering, ideal: np.ndarray, accuracy: np.ndarray, share: float = GOAL
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rounds to a goal: clean alone, no filter, the paper's rule, `[S]`.

    Args:
        result: Whose rounds were evaluated when.
        ideal: Accuracy with clean samples alone, `[S, T]`.
        accuracy: Of those that are `TRAINED`, `[S, 4, T]`.
        share: Of the last accuracy with clean samples alone.
    """
    rounds = next(iter(result.questions.values()))["rounds"][0]
    goal = share * ideal[:, -1]
    lines = ideal, accuracy[:, 0], accuracy[:, 1]
    clean, without, kept = (rounds_to(line, goal, rounds) for line in lines)
    return clean, without, kept


def _sizes(result: Filtering) -> list[Finding]:
    """Test that small benchmark sets are enough, by the paper's rule."""
    found = []
    for target, asked in result.questions.items():
        none = result.noise[target]["open"]["accuracy"][:, -1, 0, -1]
        for s, share in enumerate(result.sizes.shares):
            few = asked["sweep"][:, s, 0, 2]
            found.append(
                Finding(
                    family="size",
                    text="Selection by a benchmark set of "
                    f"{share * result.sizes.clean:.0f} samples ({share:.0%}) trains a "
                    "better model than all data",
                    where=strong(result, target, "open"),
                    scale=scale(result),
                    measured=gap("selection", few, "all data", none),
                    evidence=above(few - none),
                )
            )
    return found


def _time(result: Filtering) -> list[Finding]:
    """Test what noise and the filter do to rounds and messages until a goal."""
    found, last = [], result.sizes.rounds
    for target, kind, way, ideal, accuracy in timed(result):
        clean, without, kept = to_goal(result, ideal, accuracy)
        where = strong(result, target, kind) + (f", {WAYS[way]}" if way else "")
        one = result.best[target][kind]
        size, about = float(one["model"][0]), {"where": where}
        late = np.minimum(without, last) - clean
        missed = int(np.isinf(without).sum())
        least = f", at least: missed in {missed} of {len(without)} seeds"
        found.append(
            Finding(
                family="slow",
                text=f"Noise slows training down, to {GOAL:.0%} of the clean accuracy",
                scale=scale(result, way),
                measured=f"{late.mean():+.0f} rounds" + (least if missed else ""),
                evidence=above(late),
                **about,
            )
        )
        gains = saved(LINKS[SLOWEST], without, kept, one["messages"], size, last)
        lost = int(np.isnan(gains).sum())
        evidence: Evidence | str = (
            untested(
                f"training with the filter missed the goal in {lost} of {len(gains)} "
                "seeds"
            )
            if lost
            else above(gains)
        )
        found.append(
            Finding(
                family="time",
                text=f"Selection saves messages, to {GOAL:.0%} of the clean accuracy, "
                "though its own are counted",
                scale=f"{scale(result, way)}; {SLOWEST}",
                measured="–"
                if lost
                else f"{_with_error(gains)} s" + (least if missed else ""),
                evidence=evidence,
                **about,
            )
        )
        if not way:
            whole = 2 * last * size
            share = exchanged_bytes(one["messages"], size) / whole
            found.append(
                Finding(
                    family="exchange",
                    text="Clients exchange little for it: less than "
                    f"{LITTLE:.0%} of the training's messages",
                    scale=scale(result),
                    measured=f"{share.mean():.1%} of the bytes of {last} rounds",
                    evidence=below(share, LITTLE),
                    **about,
                )
            )
    return found


def _untested(result: Filtering) -> list[Finding]:
    """Return the claims on which the miniature doesn't bear."""
    most = max(cases(result), key=lambda case: (case.paper - case.none).mean())
    gain = gap("selection", most.paper, "all data", most.none)
    rest = [
        (
            "Up to 25 % more accuracy than training with all data",
            "Image data sets",
            f"largest here: {gain} ({most.where})",
            "the paper's abstract says neither under which noise nor whether these are "
            "points, and data and models are others",
        ),
        (
            "A benchmark set of few writers is enough",
            "FEMNIST",
            "clusters of handwriting stand in, among our own claims",
            "no data set that is prepared here records who wrote what",
        ),
        (
            "Selection works across 370 clients, one for each writer",
            "FEMNIST",
            "–",
            f"there are {result.sizes.clients} clients, and clusters of handwriting "
            "stand in for writers, among our own claims",
        ),
        (
            "Selection shortens the time to train on clients' devices",
            "Completion time",
            "–",
            "computing is not timed: all clients run side by side in one process. "
            "Messages are counted instead",
        ),
    ]
    return [
        Finding(
            family="not tested",
            text=text,
            where=where,
            scale="",
            measured=measured,
            evidence=untested(why),
        )
        for text, where, measured, why in rest
    ]


def _threshold(result: Filtering) -> list[Finding]:
    """Test how near the paper's threshold is to the best one."""
    found = []
    for target, kinds in result.best.items():
        for kind, one in kinds.items():
            seeds = np.arange(len(result.seeds))
            about = {
                "family": "threshold",
                "where": strong(result, target, kind),
                "scale": scale(result),
            }
            for by, name in enumerate(BY):
                at = best(one, by)
                ours = one["judged"][:, 0, 1]
                other = one["judged"][seeds, at, 1]
                found.append(
                    Finding(
                        text="λ* trains as good a model as the threshold of the best "
                        f"held-out {name}, within {100 * NEAR:g} points",
                        measured=gap("λ*", ours, "best", other),
                        evidence=within(ours - other, NEAR),
                        **about,
                    )
                )
            at = best(one, BY.index("loss"))
            more = one["share"][:, 0] - one["share"][seeds, at]
            found.append(
                Finding(
                    text="λ* keeps less data than the threshold of the best held-out "
                    "loss",
                    measured=f"{_with_error(100 * more)} points of all data",
                    evidence=below(more, 0.0),
                    **about,
                )
            )
    return found


def _writers(result: Filtering) -> list[Finding]:
    """Test what a benchmark set of few writers costs."""
    one, found = result.writers, []
    about = {
        "family": "writers",
        "where": f"{strong(result, 'mnist', 'open')}, {FEW} of {STYLES} clusters of "
        "handwriting in place of writers",
        "scale": scale(result),
    }
    for f, rule in enumerate(RULES.values()):
        all_of_them, few = one["accuracy"][:, 0, f], one["accuracy"][:, 1, f]
        own, foreign = one["own"][:, 1, f], one["foreign"][:, 1, f]
        found += [
            Finding(
                text=f"By {rule}, few writers' samples train a better model than all "
                "data",
                measured=gap("few writers", few, "all data", one["none"]),
                evidence=above(few - one["none"]),
                **about,
            ),
            Finding(
                text=f"By {rule}, few writers' samples are as good as all writers', "
                f"within {100 * NEAR:g} points",
                measured=gap("few", few, "all", all_of_them),
                evidence=within(few - all_of_them, NEAR),
                **about,
            ),
            Finding(
                text=f"By {rule}, fewer clean samples of other writers are kept",
                measured=gap("few writers'", own, "others'", foreign),
                evidence=above(own - foreign),
                **about,
            ),
        ]
    return found


def _clients(result: Filtering) -> list[Finding]:
    """Test the paper's rule where clients are writers, as with FEMNIST."""
    found = []
    for d, deal in enumerate(DEALS):
        for a, way in enumerate(AVERAGING):
            none, paper = result.clients["accuracy"][:, d, a, :2].T
            ideal = result.clients["accuracy"][:, d, a, -1]
            about = {
                "where": f"{strong(result, 'mnist', 'open')}, clients of {deal}, {way}",
                "scale": scale(result),
            }
            found += [
                Finding(
                    family="clients, all data",
                    text="Where clients are single classes or writers, selection "
                    "trains a better model than all data",
                    measured=gap("selection", paper, "all data", none),
                    evidence=above(paper - none),
                    **about,
                ),
                Finding(
                    family="clients, clean",
                    text="Where clients are single classes or writers, selection is "
                    f"as good as clean samples alone, within {100 * NEAR:g} points",
                    measured=gap("selection", paper, "clean alone", ideal),
                    evidence=within(paper - ideal, NEAR),
                    **about,
                ),
            ]
    return found


def _sorted(found: Sequence[Finding]) -> list[Finding]:
    """Return findings family by family, each in its order."""
    families = list(dict.fromkeys(one.family for one in found))
    return sorted(found, key=lambda one: families.index(one.family))


def _with_error(values: np.ndarray) -> str:
    error = f" ± {standard_error(values):.1f}" if len(values) > 1 else ""
    return f"{values.mean():+.1f}{error}"
