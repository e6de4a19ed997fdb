"""Measurements for each claim on filtering, by setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments._kit.claims import Measured
from experiments._kit.judge import gap
from experiments._kit.words import standard_error

from .best import BY, best
from .cases import NAMES, WAYS, Case, cases, scale, strong
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


def on_claims(result: Filtering) -> Iterator[Measured]:
    """Yield measurements of the paper's claims, by its own rule."""
    for case in _by_averaging(result):
        yield from on_case(case)
    yield from _sizes(result)
    yield from _time(result)


def on_case(case: Case) -> Iterator[Measured]:
    """Yield one case's measurements of the paper's claims about final accuracy."""
    about = _about(case)
    for key, (name, a), (other, b) in (
        ("harm", ("clean alone", case.ideal), ("all data", case.none)),
        ("all data", ("selection", case.paper), ("all data", case.none)),
        ("benchmark", ("selection", case.paper), ("benchmark model", case.bench)),
        ("ideal", ("selection", case.paper), ("clean alone", case.ideal)),
    ):
        yield _compared(key, name, a, other, b, **about)


def on_ours(result: Filtering) -> Iterator[Measured]:
    """Yield measurements of our claims: other rules, the best threshold, writers."""
    for case in _by_averaging(result):
        about = _about(case)
        crossed = "cross-fitted", case.crossed
        quantile = "quantile", case.quantile
        for key, (name, a), (other, b) in (
            ("cross-fitted", crossed, ("paper's", case.paper)),
            ("quantile", quantile, ("paper's", case.paper)),
            ("quantile near", quantile, crossed),
            ("cross-fitted, all data", crossed, ("all data", case.none)),
            ("cross-fitted, benchmark", crossed, ("benchmark model", case.bench)),
        ):
            yield _compared(key, name, a, other, b, **about)
    for target, asked in result.questions.items():
        about = {
            "where": f"{NAMES[target]}, clean samples alone",
            "scale": scale(result),
        }
        ideal = asked["ideal"][:, -1]
        yield _compared("clean", "without", asked["hard"], "with", ideal, **about)
    yield from _threshold(result)
    yield from _writers(result)
    yield from _clients(result)


def _by_averaging(result: Filtering) -> list[Case]:
    return sorted(cases(result), key=lambda case: not case.family)  # plain first


def _about(case: Case) -> dict[str, str]:
    return {"where": case.where, "scale": case.scale, "apart": case.family}


def _compared(
    key: str, name: str, a: np.ndarray, other: str, b: np.ndarray, **about: Any
) -> Measured:
    return Measured(key=key, values=a - b, said=gap(name, a, other, b), **about)


def timed(
    result: Filtering,
) -> Iterator[tuple[str, str, str, np.ndarray, np.ndarray]]:
    """Yield the trainings for which the filter's messages were counted.

    Each is the target, kind of noise, way of training, and accuracies by rounds under
    the strongest noise: with clean samples alone, `[S, T]`, and by `TRAINED`,
    `[S, 4, T]`.
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
        result: Gives the rounds at which accuracy was evaluated.
        ideal: Accuracy with clean samples alone, `[S, T]`.
        accuracy: Accuracy by `TRAINED`, `[S, 4, T]`.
        share: Goal, as a share of the last accuracy with clean samples alone.
    """
    rounds = next(iter(result.questions.values()))["rounds"][0]
    goal = share * ideal[:, -1]
    lines = ideal, accuracy[:, 0], accuracy[:, 1]
    clean, without, kept = (rounds_to(line, goal, rounds) for line in lines)
    return clean, without, kept


def _sizes(result: Filtering) -> Iterator[Measured]:
    for target, asked in result.questions.items():
        none = result.noise[target]["open"]["accuracy"][:, -1, 0, -1]
        for s, share in enumerate(result.sizes.shares):
            samples = (
                f"{share * result.sizes.clean:.0f} benchmark samples ({share:.0%})"
            )
            about = {
                "where": f"{strong(result, target, 'open')}, {samples} ({share:.0%})",
                "scale": scale(result),
            }
            few = asked["sweep"][:, s, 0, 2]
            yield _compared("size", "selection", few, "all data", none, **about)


def _time(result: Filtering) -> Iterator[Measured]:
    """Yield rounds lost to noise, and messages saved by the filter, until a goal."""
    last = result.sizes.rounds
    for target, kind, way, ideal, accuracy in timed(result):
        clean, without, kept = to_goal(result, ideal, accuracy)
        where = strong(result, target, kind) + (f", {WAYS[way]}" if way else "")
        measures, words = result.best[target][kind], scale(result, way)
        size = float(measures["model"][0])
        late = np.minimum(without, last) - clean
        missed = int(np.isinf(without).sum())
        least = f", at least: missed in {missed} of {len(without)} seeds"
        least = least if missed else ""
        text = f"{late.mean():+.0f} rounds{least}"
        yield Measured(key="slow", where=where, scale=words, values=late, said=text)
        gains = saved(LINKS[SLOWEST], without, kept, measures["messages"], size, last)
        lost = int(np.isnan(gains).sum())
        yield Measured(
            key="time",
            where=where,
            scale=f"{words}; {SLOWEST}",
            values=gains,
            said="–" if lost else f"{_with_error(gains)} s{least}",
            other="training with the filter missed the goal in "
            f"{lost} of {len(gains)} seeds"
            if lost
            else "",
        )
        if not way:
            share = exchanged_bytes(measures["messages"], size) / (2 * last * size)
            text = f"{share.mean():.1%} of the bytes of {last} rounds"
            about = {"where": where, "scale": scale(result)}
            yield Measured(key="exchange", values=share, said=text, **about)


def _threshold(result: Filtering) -> Iterator[Measured]:
    """Yield the gaps between the paper's threshold and the best one."""
    seeds = np.arange(len(result.seeds))
    for target, kinds in result.best.items():
        for kind, measures in kinds.items():
            about = {"where": strong(result, target, kind), "scale": scale(result)}
            ours = measures["judged"][:, 0, 1]
            for by, name in enumerate(BY):
                other = measures["judged"][seeds, best(measures, by), 1]
                key = f"threshold, {name}"
                yield _compared(key, "λ*", ours, "best", other, **about)
            picked = best(measures, BY.index("loss"))
            more = measures["share"][:, 0] - measures["share"][seeds, picked]
            text = f"{_with_error(100 * more)} points of all data"
            yield Measured(key="threshold, share", values=more, said=text, **about)


def _writers(result: Filtering) -> Iterator[Measured]:
    """Yield comparisons of benchmark sets of few writers and of all writers."""
    measures = result.writers
    about = {
        "where": f"{strong(result, 'mnist', 'open')}, {FEW} of {STYLES} clusters of "
        "handwriting in place of writers",
        "scale": scale(result),
    }
    for f in RULES:
        everyone = measures["accuracy"][:, 0, f - 1]
        few = measures["accuracy"][:, 1, f - 1]
        kept, foreign = measures["own"][:, 1, f - 1], measures["foreign"][:, 1, f - 1]
        for key, name, a, other, b in (
            ("gain", "few writers", few, "all data", measures["none"]),
            ("near", "few", few, "all", everyone),
            ("foreign", "few writers'", kept, "others'", foreign),
        ):
            yield _compared(f"writers, {f}, {key}", name, a, other, b, **about)


def _clients(result: Filtering) -> Iterator[Measured]:
    """Yield gains of the paper's rule by kind of client (class or writer)."""
    for d, deal in enumerate(DEALS):
        for a, way in enumerate(AVERAGING):
            none, paper = result.clients["accuracy"][:, d, a, :2].T
            ideal = result.clients["accuracy"][:, d, a, -1]
            about = {
                "where": f"{strong(result, 'mnist', 'open')}, clients of {deal}, {way}",
                "scale": scale(result),
            }
            for key, other, b in (
                ("all data", "all data", none),
                ("clean", "clean alone", ideal),
            ):
                yield _compared(
                    f"clients, {key}", "selection", paper, other, b, **about
                )


def _with_error(values: np.ndarray) -> str:
    error = f" ± {standard_error(values):.1f}" if len(values) > 1 else ""
    return f"{values.mean():+.1f}{error}"
