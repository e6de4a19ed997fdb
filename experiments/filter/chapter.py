"""Federated loss filtering in miniature as a chapter of a report."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from experiments._kit.claims import (
    claim_table,
    differs_table,
    matrix,
    tally,
    untested_table,
)
from experiments._kit.judge import Claim
from experiments._kit.scenes.federation import KINDS
from experiments._kit.scenes.loss_figure import first_rounds, loss_figure
from experiments._kit.scenes.thresholds import FILTERS, TRAINED
from experiments._kit.words import listed, spread
from jaxsel.report import (
    COLORS,
    Chapter,
    Figure,
    Heading,
    Table,
    new_figure,
    plot_curves,
    style,
)

from .cases import NAMES, WAYS, WORDS
from .claims import CLAIMS, own_claims, paper_claims
from .clients import PLAIN_RATE
from .figures import (
    SERVER,
    best_table,
    clients_table,
    completion_table,
    difference_table,
    exchange_table,
    gains_table,
    writers_table,
)
from .run import WRITTEN, Filtering


def filter_chapter(result: Filtering) -> Chapter:
    """Return the chapter on federated loss filtering: claims, figures and tables."""
    paper, ours = paper_claims(result), own_claims(result)
    n, first = len(result.seeds), next(iter(result.noise))
    blocks: list[Any] = [
        "A hundred clients have data of one class each (or of one writer, where it "
        "says so), and much of it is noise: "
        "samples of other data sets (open-set), or wrong labels (closed-set). Who asks "
        "has a small clean benchmark set. A model trained on it tells the loss of each "
        "sample, and clients keep those below a threshold: the one at which the kept "
        "losses are distributed most like the benchmark's (`jaxsel.filter`). The "
        "server sees counts of losses, not the losses.",
        matrix(paper, "The paper's claims, by the paper's rule."),
        gains_table(paper),
        _curve_figure(result, first, next(iter(KINDS))),
        *_untested(paper),
        matrix(ours, "What is not in the paper: other rules, and other questions."),
        Heading("What was measured for each claim"),
        claim_table(paper, "The paper's claims, by the paper's rule.", n_seeds=n),
        claim_table(ours, "What is not in the paper.", n_seeds=n),
        Heading("What differs from the paper"),
        difference_table(),
        differs_table(CLAIMS, "By what each claim is judged."),
    ]
    for target, kinds in result.noise.items():
        blocks += [
            Heading(f"Samples kept, {NAMES[target]}"),
            _kept_table(result, target),
            *(_loss_figure(result, target, kind) for kind in KINDS),
            _filter_words(result, target),
            Heading(f"What clients learn, {NAMES[target]}"),
            _accuracy_table(result, target),
            *(
                _curve_figure(result, target, kind)
                for kind in kinds
                if (target, kind) != (first, next(iter(KINDS)))
            ),
            _variant_table(result, target),
            Heading(f"Completion time in messages, {NAMES[target]}"),
            exchange_table(result, target),
            completion_table(result, target),
            Heading(f"The best threshold, {NAMES[target]}"),
            best_table(result, target),
            Heading(f"What the benchmark set must be like, {NAMES[target]}"),
            _sweep_table(result, target),
            _lacking_table(result, target),
            _question_words(result, target),
        ]
        if target == WRITTEN:
            blocks += [
                Heading("Clients of single classes, and writers"),
                clients_table(result),
                Heading("A benchmark set from few writers"),
                writers_table(result),
            ]
    blocks += [Heading("How it was measured"), _method(result)]
    title = f"Filtering by loss: of the paper's claims {tally(paper)}"
    return Chapter(title=title, blocks=tuple(blocks), data=_data(result))


def _untested(claims: list[Claim]) -> list[Table]:
    table = untested_table(claims)
    return [] if table is None else [table]


def _kept_table(result: Filtering, target: str) -> Table:
    rows = []
    for kind in KINDS:
        measures = result.noise[target][kind]
        for r, ratio in enumerate(result.sizes.ratios):
            for f, name in enumerate(FILTERS):
                rows.append(
                    (
                        f"{WORDS[kind]}, {ratio:g} : 1",
                        name,
                        spread(measures["removed"][:, r, f]),
                        spread(measures["kept"][:, r, f]),
                    )
                )
    return Table(
        columns=("Noise : data", "Filter", "Noise removed", "Clean samples kept"),
        rows=rows,
        formats=("", "", ".1%", ".1%"),
        caption="What is removed and kept, mean ± standard deviation over seeds. "
        "“threshold” splits the benchmark set in two, as the paper does; the others "
        "use cross-fitted losses, but for the mixture, which uses none.",
    )


def _accuracy_table(result: Filtering, target: str) -> Table:
    asked = result.questions[target]
    rounds, last = asked["rounds"][0], result.variants[target]["plain"]
    ways = (
        ("plain averaging", result.plain[target], last),
        (SERVER, result.noise[target], asked),
    )
    rows = []
    for kind in KINDS:
        for r, ratio in enumerate(result.sizes.ratios):
            for way, by_kind, alone in ways:
                goal = 0.9 * alone["ideal"][:, -1]
                rows += [
                    (
                        f"{WORDS[kind]}, {ratio:g} : 1",
                        way,
                        name,
                        spread(by_kind[kind]["accuracy"][:, r, t, -1]),
                        first_rounds(by_kind[kind]["accuracy"][:, r, t], goal, rounds),
                    )
                    for t, name in enumerate(TRAINED)
                ]
    rows += [
        (
            "none",
            way,
            "clean samples alone",
            spread(alone["ideal"][:, -1]),
            first_rounds(alone["ideal"], 0.9 * alone["ideal"][:, -1], rounds),
        )
        for way, _, alone in ways
    ]
    rows.append(("–", "–", "benchmark model alone", spread(asked["benchmark"]), "–"))
    return Table(
        columns=(
            "Noise : data",
            "Averaging",
            "Trained on",
            "Accuracy",
            "Rounds to 90% of the ideal",
        ),
        rows=rows,
        formats=("", "", "", ".1%", ""),
        caption=f"Accuracy on test samples after {rounds[-1]} rounds, mean ± standard "
        "deviation over seeds, and rounds until it reaches 90% of that with clean "
        "samples alone and the same averaging, as evaluated, median over seeds.",
    )


def _loss_figure(result: Filtering, target: str, kind: str) -> Figure:
    """Draw the losses of the first seed under the strongest noise."""
    measures, r = result.noise[target][kind], len(result.sizes.ratios) - 1
    first = {name: measures[name][0, r] for name in ("histograms", "values", "band")}
    removed, kept = measures["removed"][0, r, 1], measures["kept"][0, r, 1]
    what = f"{WORDS[kind].capitalize()} noise, {result.sizes.ratios[r]:g} : 1"
    return loss_figure(**first, removed=removed, kept=kept, what=what)


def _curve_figure(result: Filtering, target: str, kind: str) -> Figure:
    """Draw accuracy against rounds under the strongest noise."""
    r = len(result.sizes.ratios) - 1
    accuracy = result.noise[target][kind]["accuracy"][:, r]
    asked = result.questions[target]
    lines = {name: accuracy[:, t] for t, name in enumerate(TRAINED)}
    lines["clean samples alone"] = asked["ideal"]
    figure = new_figure()
    with style():
        ax = figure.subplots()
    plot_curves(asked["rounds"][0], lines, ax=ax, xlabel="Round", ylabel="Accuracy")
    bench = asked["benchmark"].mean()
    ax.axhline(bench, color=COLORS[-1], linewidth=0.8, linestyle=":")
    return Figure(
        plot=figure,
        caption=f"{WORDS[kind].capitalize()} noise, {result.sizes.ratios[r]:g} : 1: "
        "accuracy by rounds, with one standard deviation; dotted: the benchmark model.",
        alt="In the end: "
        + listed([f"{name} {line[:, -1].mean():.0%}" for name, line in lines.items()])
        + f"; benchmark model {bench:.0%}.",
    )


def _filter_words(result: Filtering, target: str) -> str:
    measures, r = result.noise[target]["open"], len(result.sizes.ratios) - 1
    kept = measures["by_source"][:, r]
    names = result.others[target]
    sizes = result.sizes
    return (
        "Of strong open-set noise the cross-fitted threshold keeps "
        + listed(
            [f"{kept[:, i].mean():.0%} of {NAMES[n]}" for i, n in enumerate(names)]
        )
        + f". The server asked {measures['rounds_asked'].mean():.1f} times on average, "
        f"and a client's counts have {measures['bytes_sent'].max() / 1000:.1f} KB at "
        f"most, with {sizes.benchmark * sizes.clean / 2:.0f} benchmark losses."
    )


def _variant_table(result: Filtering, target: str) -> Table:
    rounds = result.questions[target]["rounds"][0]
    rows = []
    for name, measures in result.variants[target].items():
        goal = 0.9 * measures["ideal"][:, -1]
        lines = {"clean samples alone": measures["ideal"]} | {
            trained: measures["accuracy"][:, t] for t, trained in enumerate(TRAINED)
        }
        rows += [
            (WAYS[name], trained, spread(line[:, -1]), first_rounds(line, goal, rounds))
            for trained, line in lines.items()
        ]
        bench = spread(measures["benchmark"])
        rows.append((WAYS[name], "–, benchmark model alone", bench, "–"))
    strong = max(result.sizes.ratios)
    return Table(
        columns=("With", "Trained on", "Accuracy", "Rounds to 90% of the ideal"),
        rows=rows,
        formats=("", "", ".1%", ""),
        caption=f"Strong open-set noise, {strong:g} : 1, trained in another way: by "
        "the mean of the clients' parameters as in the paper, or as named.",
    )


def _sweep_table(result: Filtering, target: str) -> Table:
    sweep = result.questions[target]["sweep"]
    return Table(
        columns=(
            "Benchmark set",
            "Filter",
            "Noise removed",
            "Clean samples kept",
            "Accuracy",
        ),
        rows=[
            (
                f"{share:.0%}: {share * result.sizes.clean:.0f} samples",
                FILTERS[f],
                *(spread(sweep[:, s, f, i]) for i in range(3)),
            )
            for s, share in enumerate(result.sizes.shares)
            for f in range(2)
        ],
        formats=("", "", ".1%", ".1%", ".1%"),
        caption="How large must it be? Strong open-set noise.",
    )


def _lacking_table(result: Filtering, target: str) -> Table:
    asked = result.questions[target]
    ways = ("one threshold", "by class; one for others", "by class; keep others")
    return Table(
        columns=("Threshold", "Of the class", "Of other classes", "Noise removed"),
        rows=[
            (
                way,
                spread(asked["lacking"][:, i, 0]),
                spread(asked["lacking"][:, i, 1]),
                spread(asked["lacking_removed"][:, i]),
            )
            for i, way in enumerate(ways)
        ],
        formats=("", ".1%", ".1%", ".1%"),
        caption="Must it have all classes? Clean samples kept where it lacks one, "
        "another one for each seed. Strong open-set noise.",
    )


def _question_words(result: Filtering, target: str) -> str:
    asked = result.questions[target]
    without, ideal = asked["lacking_accuracy"], asked["ideal_accuracy"]
    right = asked["hard_right"]
    return (
        "Of a class that the benchmark set lacks, one threshold keeps "
        f"{asked['lacking'][:, 0, 0].mean():.0%} of the clean samples: the accuracy on "
        f"it is {without[:, 0].mean():.0%} in the end, where it is "
        f"{ideal[:, 0].mean():.0%} with all clean samples, and "
        f"{without[:, 1].mean():.0%} rather than {ideal[:, 1].mean():.0%} on others. "
        "Good data with a large loss: of the clean samples that the threshold drops, "
        "the model trained on all clean ones gets "
        f"{np.nanmean(right[:, 0]):.0%} right, though it saw them, and "
        f"{np.nanmean(right[:, 1]):.0%} of those that the threshold keeps. Trained "
        f"without those dropped, the clients reach {asked['hard'].mean():.1%}, with "
        f"them {asked['ideal'][:, -1].mean():.1%}."
    )


def _method(result: Filtering) -> str:
    sizes, n = result.sizes, len(result.seeds)
    return (
        f"{n} seed{'s' if n > 1 else ''}. {sizes.clients} clients of one class each, "
        f"{sizes.clean} clean samples of {sizes.side}×{sizes.side} pixels in uneven "
        "shares; other data sets' samples go to clients class by class. Wrong labels "
        "are of samples that nobody has otherwise. A perceptron with "
        f"{sizes.hidden} hidden units; benchmark models take {sizes.fit} steps of "
        f"Adam on {sizes.benchmark:.0%} of the number of clean samples, and clients "
        f"{sizes.rounds} rounds of 10 steps of SGD with minibatches of 8% of what they "
        "have; the server takes the mean of their parameters, as in the paper, or lets "
        f"Adam go towards it. Steps ({PLAIN_RATE:g} of the clients with plain "
        f"averaging, {sizes.rate:g} with Adam) were settled on seeds 100 and 101, by "
        "the accuracy with clean samples alone."
    )


def _data(result: Filtering) -> dict[str, Any]:
    return {
        "seeds": result.seeds,
        "full": result.full,
        "sizes": dataclasses.asdict(result.sizes),
        "filters": FILTERS,
        "trained": TRAINED,
        "noise": result.noise,
        "variants": result.variants,
        "questions": result.questions,
        "best": result.best,
        "writers": result.writers,
        "plain": result.plain,
        "clients": result.clients,
        "claims": [dataclasses.asdict(claim) for claim in paper_claims(result)],
        "own_claims": [dataclasses.asdict(claim) for claim in own_claims(result)],
    }
