"""A cell of filtering as a chapter of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from experiments._kit.claims import claim_table, judge, matrix
from experiments._kit.judge import Claim
from experiments._kit.words import listed, spread
from experiments.filter.cases import WORDS, Case
from experiments.filter.claims import CLAIMS
from experiments.filter.measured import on_case
from jaxsel.report import COLORS, Chapter, Figure, Heading, Table, new_figure, style

from .run import CellResult

_JUDGED = ("harm", "all data", "benchmark", "ideal")
_LINES = (
    "No selection",
    "The paper's rule",
    "Cross-fitted",
    "Quantile",
    "Clean alone",
    "Benchmark model",
)


def cases(result: CellResult) -> Iterator[Case]:
    """Yield a case for each kind and ratio of noise."""
    ideal, bench = result.clean["ideal"][:, -1], result.clean["benchmark"]
    for kind, measures in result.noise.items():
        for r, ratio in enumerate(result.sizes.ratios):
            yield Case(
                f"{result.data}, {WORDS[kind]} noise, {ratio:g} : 1",
                _scale(result),
                measures["accuracy"][:, r, :, -1],
                ideal,
                bench,
            )


def cell_claims(result: CellResult) -> list[Claim]:
    """Judge the paper's claims on accuracies in the end, by its own rule."""
    stated = {key: CLAIMS[key] for key in _JUDGED}
    return judge(
        stated, [measured for case in cases(result) for measured in on_case(case)]
    )


def cell_chapter(result: CellResult) -> Chapter:
    """Return the chapter on a cell: claims, accuracies and shares removed by filter."""
    claims, n = cell_claims(result), len(result.seeds)
    return Chapter(
        title=f"Filtering by loss on {result.data}",
        blocks=[
            matrix(claims, "The paper's claims on this cell, by its own rule."),
            _figure(result),
            _words(result),
            claim_table(claims, "What was measured.", n_seeds=n),
            _accuracies(result),
            _filters(result),
            Heading("How it was measured"),
            _method(result),
        ],
        data={
            "data": result.data,
            "others": result.others,
            "seeds": result.seeds,
            "sizes": dataclasses.asdict(result.sizes),
            "noise": result.noise,
            "clean": result.clean,
            "claims": [dataclasses.asdict(claim) for claim in claims],
        },
    )


def _scale(result: CellResult) -> str:
    sizes = result.sizes
    model = "a CNN" if sizes.net == "cnn" else "a perceptron"
    return (
        f"{sizes.clients} clients, {sizes.clean:,} clean samples of "
        f"{sizes.side}×{sizes.side} pixels, {model}"
    )


def _lines(case: Case) -> list[np.ndarray]:
    return [*case.trained.T, case.ideal, case.bench]


def _figure(result: CellResult) -> Figure:
    rows = [*cases(result)]
    figure = new_figure(8.0, 0.9 + 0.4 * len(rows))
    with style():
        ax = figure.subplots()
        for i, name in enumerate(_LINES):
            means = [100 * _lines(case)[i].mean() for case in rows]
            shape = "ovs^xD"[i]
            color = COLORS[i % len(COLORS)]
            ax.plot(means, np.arange(len(rows)), shape, color=color, label=name)
        ax.set_yticks(np.arange(len(rows)), [_noise(case) for case in rows])
        ax.invert_yaxis()
        ax.set_xlabel("Test accuracy, %")
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    lines = "; ".join(
        f"{_noise(case)}: "
        + ", ".join(
            f"{name} {100 * line.mean():.1f} %"
            for name, line in zip(_LINES, _lines(case), strict=True)
        )
        for case in rows
    )
    return Figure(
        plot=figure,
        caption="Test accuracy after the last round by kind of noise, mean over seeds.",
        alt=f"Test accuracy. {lines}.",
    )


def _noise(case: Case) -> str:
    return case.where.split(", ", 1)[1]


def _words(result: CellResult) -> str:
    lines = [
        f"{_noise(case)}: {100 * (case.paper - case.none).mean():+.1f}"
        for case in cases(result)
    ]
    return (
        f"The paper's rule less no selection, points of accuracy. {'; '.join(lines)}."
    )


def _accuracies(result: CellResult) -> Table:
    return Table(
        columns=("Noise", *_LINES),
        rows=[
            (_noise(case), *(spread(line) for line in _lines(case)))
            for case in cases(result)
        ],
        formats=("", *[".1%"] * len(_LINES)),
        caption="Test accuracy after the last round, plain averaging; mean ± standard "
        "deviation over seeds.",
    )


def _filters(result: CellResult) -> Table:
    rows = [
        (
            f"{WORDS[kind]} noise, {ratio:g} : 1",
            *(spread(measures[what][:, r, f]) for f in (0, 1) for what in _SHARES),
        )
        for kind, measures in result.noise.items()
        for r, ratio in enumerate(result.sizes.ratios)
    ]
    heads = [
        f"{rule}: {what}"
        for rule in ("Paper's rule", "Cross-fitted")
        for what in ("noise removed", "clean kept")
    ]
    return Table(
        columns=("Noise", *heads),
        rows=rows,
        formats=("", *[".1%"] * 4),
        caption="Shares of the noise that is removed and of the clean samples that are "
        "kept; mean ± standard deviation over seeds.",
    )


_SHARES = ("removed", "kept")


def _method(result: CellResult) -> str:
    sizes = result.sizes
    return (
        f"Clean samples, {sizes.test:,} test samples and a benchmark set of "
        f"{sizes.benchmark:.0%} of the clean ones are dealt anew by each seed, from "
        f"the training split. Open-set noise is drawn from {listed([*result.others])}; "
        "a class there counts as the task's of the same number, modulo the number of "
        "classes. Each client has one class; it takes 10 steps a round on 8 % of its "
        f"samples, over {sizes.rounds} rounds, and the server averages, as in the "
        "paper. The clients' "
        f"rate, {sizes.rate:g}, is the best of five on clean samples of another deal. "
        "The text of the paper that is at hand does not name pixels, rounds, "
        "rates, ratios of noise or the size of the benchmark set: these are ours."
    )
