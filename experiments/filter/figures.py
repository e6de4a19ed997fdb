"""Tables of claims, completion time, few writers and the best threshold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments._kit.judge import Claim
from experiments._kit.words import spread
from jaxsel.report import Table

from .best import BY, best
from .cases import WAYS, WORDS
from .claims import CLAIMS
from .clients import AVERAGING, DEALS, LINES
from .links import LARGE, LINKS, filter_seconds, saved, training_seconds
from .measured import NEAR, RULES, SLOWEST, timed, to_goal
from .run import Filtering
from .writers import FEW, SOURCES, STYLES

GOALS = (0.6, 0.8, 0.9)
"""Shares of the accuracy with clean samples alone."""

SERVER = "Adam at the server"

DIFFERENCES = (
    (
        "MNIST, 14×14 pixels, 2,000 clean samples",
        "several image data sets, FEMNIST too",
    ),
    ("a perceptron; with --full a CNN too", "CNNs"),
    (
        "plain averaging, and Adam towards the clients' mean",
        "plain averaging, weighted by how much clients keep",
    ),
    (
        "100 clients, all in each round: of one class each, or clusters of handwriting",
        "100 clients of one class each, and 370 writers with FEMNIST",
    ),
    (
        "open-set noise of Fashion-MNIST and scikit-learn's digits; wrong labels are "
        "of samples that nobody has otherwise",
        "open-set noise of other data sets mixed in, closed-set noise by wrong labels",
    ),
    (
        "no writers are known: clusters of handwriting stand in",
        "FEMNIST's benchmark set is from few of its writers",
    ),
    (
        "the exact threshold, found by counts that clients send",
        "the distributions of clients' losses go to the server",
    ),
    (
        "cross-fitted losses, quantile, mixture, thresholds by class: ours",
        "one threshold, by losses of one half of the benchmark set",
    ),
    (
        "seconds of messages over stated links; computing is not timed",
        "completion time",
    ),
)
"""Pairs of our setup and the paper's."""


def gains_table(claims: Sequence[Claim]) -> Table:
    """Tabulate the gains of the paper's rule over three baselines, by setting."""
    against = {
        CLAIMS[key].text: words
        for key, words in (
            ("all data", "all data: is it better?"),
            ("benchmark", "benchmark data alone: is it better?"),
            ("ideal", f"clean data alone: within {100 * NEAR:g} points?"),
        )
    }
    cells: dict[str, list[str]] = {}
    for text in against:
        for c in claims:
            if c.text == text:
                gain = c.measured.split(": ")[1].removesuffix(" points")
                cells.setdefault(c.where, []).append(f"{gain}, {c.verdict}")
    return Table(
        columns=("Setting", *against.values()),
        rows=[(where, *row) for where, row in cells.items()],
        caption="Points of accuracy that selection by the paper's rule gains over each "
        "baseline, and whether its claim holds.",
    )


def difference_table() -> Table:
    """Tabulate the differences from the paper, `DIFFERENCES`."""
    return Table(
        columns=("Here", "In the paper"),
        rows=[*DIFFERENCES],
        caption="What differs from the paper.",
    )


def exchange_table(result: Filtering, target: str) -> Table:
    """Tabulate the time of a round, of the filter, and of all rounds, by link."""
    measures = result.best[target]["open"]
    last = result.sizes.rounds
    rows = []
    for name, link in LINKS.items():
        for size in (float(measures["model"][0]), float(LARGE)):
            extra = [filter_seconds(link, seed, size) for seed in measures["messages"]]
            one_round = float(training_seconds(link, np.array(1), size))
            cost = float(np.mean(extra))
            rows.append(
                (
                    name,
                    f"{size / 1e6:.3g} MB",
                    duration(one_round),
                    duration(cost),
                    f"{cost / one_round:.1f}",
                    duration(last * one_round),
                )
            )
    return Table(
        columns=(
            "Link of a client",
            "Model",
            "One round",
            "Filtering",
            "in rounds",
            f"{last} rounds",
        ),
        rows=rows,
        caption="Time of messages, mean over seeds, with the paper's rule under strong "
        "open-set noise: a model to the clients and back in each round; for the filter "
        "the benchmark's model to the clients, questions, answers, and the verdict. "
        f"The model of {LARGE / 1e6:.3g} MB (LEAF's CNN for FEMNIST) was not trained.",
    )


def completion_table(result: Filtering, target: str) -> Table:
    """Tabulate rounds and message time to `GOALS`, the filter's messages included."""
    link, last, rows = LINKS[SLOWEST], result.sizes.rounds, []
    for of, kind, way, ideal, accuracy in timed(result):
        if of != target:
            continue
        measures = result.best[target][kind]
        size = float(measures["model"][0])
        for goal in GOALS:
            lines = to_goal(result, ideal, accuracy, goal)
            gains = [
                saved(link, *lines[1:], measures["messages"], bytes_, last)
                for bytes_ in (size, float(LARGE))
            ]
            least = bool(np.isinf(lines[1]).any())
            rows.append(
                (
                    f"{WORDS[kind]}, {WAYS.get(way, SERVER)}",
                    f"{goal:.0%}",
                    *(_rounds(line, last) for line in lines),
                    *(_gain(gain, least=least) for gain in gains),
                )
            )
    return Table(
        columns=(
            "Noise and averaging",
            "Goal",
            "Rounds, clean alone",
            "no selection",
            "the paper's rule",
            "Saved",
            f"Saved, {LARGE / 1e6:.3g} MB",
        ),
        rows=rows,
        caption="Rounds until a share of the last accuracy with clean samples alone, "
        f"median over seeds, as evaluated every {result.sizes.evaluate_every} rounds; "
        f"and messages that the paper's rule saves, mean over seeds ({SLOWEST}), less "
        "the filter's own. “At least” where training without selection misses the goal "
        f"in a seed: it counts as {last} rounds. The larger model is taken to need as "
        "many rounds, which was not tried.",
    )


def best_table(result: Filtering, target: str) -> Table:
    """Compare the paper's threshold with the best ones."""
    seeds, rows = np.arange(len(result.seeds)), []
    for kind, measures in result.best[target].items():
        picks = {"λ*, the paper's": np.zeros(len(seeds), int)}
        picks |= {
            f"best held-out {name}": best(measures, i) for i, name in enumerate(BY)
        }
        for name, picked in picks.items():
            pick = lambda key, m=measures, i=picked: m[key][seeds, i]
            judged = pick("judged")
            rows.append(
                (
                    WORDS[kind],
                    name,
                    spread(pick("values")),
                    spread(pick("share")),
                    spread(pick("removed")),
                    spread(pick("kept")),
                    spread(judged[:, 0]),
                    spread(judged[:, 1]),
                )
            )
    return Table(
        columns=(
            "Noise",
            "Threshold",
            "Loss kept at most",
            "Data kept",
            "Noise removed",
            "Clean kept",
            "Test loss",
            "Accuracy",
        ),
        rows=rows,
        formats=("", "", ".2f", ".1%", ".1%", ".1%", ".3f", ".1%"),
        caption="λ* and the thresholds that train the best models, of ten that include "
        "λ*, under strong noise: chosen on one half of the test samples, judged on the "
        "other. Mean ± standard deviation over seeds.",
    )


def writers_table(result: Filtering) -> Table:
    """Compare benchmark sets of few writers and of all writers, by filter."""
    measures = result.writers
    names = {"all": "all writers", "few": f"{FEW} of {STYLES} writers"}
    rows: list[tuple[object, ...]] = [
        (
            names[source],
            rule,
            *(spread(measures[key][:, s, f]) for key in ("removed", "own", "foreign")),
            spread(measures["accuracy"][:, s, f]),
        )
        for s, source in enumerate(SOURCES)
        for f, rule in enumerate(RULES.values())
    ]
    rows += [
        (names[source], "benchmark model alone", *["–"] * 3, spread(bench))
        for source, bench in zip(SOURCES, measures["benchmark"].T, strict=True)
    ]
    rows += [
        ("–", "no selection", *["–"] * 3, spread(measures["none"])),
        ("–", "clean samples alone", *["–"] * 3, spread(measures["ideal"])),
    ]
    return Table(
        columns=(
            "Benchmark samples of",
            "Filter",
            "Noise removed",
            "Kept of the few writers",
            "Kept of other writers",
            "Accuracy",
        ),
        rows=rows,
        formats=("", "", ".1%", ".1%", ".1%", ".1%"),
        caption="Benchmark sets of equal size under strong open-set noise, mean ± "
        f"standard deviation over seeds. A writer is one of {STYLES} clusters of "
        "MNIST's digits by slant, stroke and width, since nobody knows who wrote them.",
    )


def clients_table(result: Filtering) -> Table:
    """Tabulate accuracy by kind of client (class or writer) and averaging."""
    measures = result.clients
    return Table(
        columns=("Clients", "Classes each", "Averaging", *map(_capital, LINES)),
        rows=[
            (
                _capital(deal),
                spread(measures["classes"][:, d]),
                way,
                *(spread(measures["accuracy"][:, d, a, i]) for i in range(len(LINES))),
            )
            for d, deal in enumerate(DEALS)
            for a, way in enumerate(AVERAGING)
        ],
        formats=("", ".1f", "", *[".1%"] * len(LINES)),
        caption="Accuracy after the last round under strong open-set noise, mean ± "
        "standard deviation over seeds. Writers are clusters of handwriting. The "
        "thresholds are the same: they are found over all clients together.",
    )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def duration(seconds: float) -> str:
    """Format a time in seconds, minutes or hours."""
    size = abs(seconds)
    if size < 60:
        return f"{seconds:.2g} s" if size < 10 else f"{seconds:.0f} s"
    if size < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def _rounds(rounds: np.ndarray, last: int) -> str:
    middle = np.median(rounds)
    return f"{middle:.0f}" if np.isfinite(middle) else f"not in {last}"


def _gain(gains: np.ndarray, *, least: bool) -> str:
    lost = int(np.isnan(gains).sum())
    if lost:
        return f"not known: missed in {lost} of {len(gains)} seeds"
    return ("at least " if least else "") + duration(float(gains.mean()))
