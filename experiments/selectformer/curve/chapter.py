"""The curve over the bootstrap set's size as a chapter of a report."""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments._kit.claims import (
    claim_table,
    differs_table,
    matrix,
    tally,
    untested_table,
)
from experiments._kit.words import standard_error
from experiments.selectformer.proxies.points import RATES
from experiments.selectformer.proxies.tables import BY_CONSTRUCTION, accepted_mean
from experiments.selectformer.sources import NAMES
from jaxsel.report import Chapter, Figure, Heading, Table, new_figure, style

from .claims import CLAIMS, judged
from .run import HEADS, POOL, WAYS, Curve

_MARKS = {"linear": "o-", "hidden": "s--"}


def curve_chapter(result: Curve) -> Chapter:
    """Show how each way ranks by the number of labels, for both kinds of heads."""
    claims = judged(result)
    untested = untested_table(claims, "Claims on which this run does not bear.")
    return Chapter(
        title="Proxies by the number of labels bought first",
        blocks=[
            matrix(claims, "Claims of ours, by kind of head and number of labels."),
            _figure(result),
            *summary(result),
            Heading("Rank correlation with the target"),
            *(_table(result, head) for head in HEADS),
            Heading(f"Of the claims {tally(claims)}"),
            claim_table(claims, "Claims of ours.", n_seeds=len(result.seeds)),
            *([] if untested is None else [untested]),
            differs_table(CLAIMS, "By what each claim is judged."),
            Heading("How it was measured"),
            _method(result),
        ],
        data={
            "seeds": result.seeds,
            "sizes": result.sizes,
            "ways": result.ways,
            "claims": [dataclasses.asdict(claim) for claim in claims],
            "cells": {
                f"{head}, {size}": dataclasses.asdict(cell)
                for (head, size), cell in result.cells.items()
            },
        },
    )


def summary(result: Curve) -> list[str]:
    """Give the paper's proxy and the probe at the smallest and the largest size."""
    lines: list[str] = []
    for head, says in HEADS.items():
        parts = [
            f"with {size:,} labels the paper's {_rank(result, head, size, 'paper')}, a "
            f"probe of the labels {_rank(result, head, size, 'labels probe')}, a "
            f"distilled one {_rank(result, head, size, 'distilled probe')}, by its "
            f"margin {_rank(result, head, size, 'margin probe')}"
            for size in (result.sizes[0], result.sizes[-1])
        ]
        lines.append(
            f"Rank correlation with the target, {NAMES[POOL]}, {len(result.seeds)} "
            f"seeds; {says}: {'; '.join(parts)}."
        )
    return [*lines, f"{BY_CONSTRUCTION} The paper's sets have 3,521 on average."]


def _values(result: Curve, head: str, size: int, way: str) -> np.ndarray:
    """Return rank correlations with the target, `[S]`; NaN where a proxy is refused."""
    return result.cells[head, size].spearman[:, result.ways.index(way)]


def _rank(result: Curve, head: str, size: int, way: str) -> str:
    mean = accepted_mean(_values(result, head, size, way))
    return "is refused" if mean is None else f"{mean:.2f}"


def _table(result: Curve, head: str) -> Table:
    """Tabulate rank correlation and overlap by way and number of labels."""
    rows: list[list[object]] = []
    for way in result.ways:
        cells: list[object] = []
        for size in result.sizes:
            values = _values(result, head, size, way)
            known = values[np.isfinite(values)]
            overlaps = result.cells[head, size].overlap[:, result.ways.index(way)]
            overlap = accepted_mean(overlaps)
            if overlap is None:
                cells.append("refused")
                continue
            error = f" ± {standard_error(known):.2f}" if len(known) > 1 else ""
            missing = len(values) - len(known)
            refused = f", {missing} refused" if missing else ""
            cells.append(f"{known.mean():.2f}{error} ({overlap:.2f}){refused}")
        rows.append([WAYS[way].says, *cells])
    accuracies = [result.cells[head, size].accuracy.mean() for size in result.sizes]
    rows.append(["the target is right in", *(f"{a:.1%}" for a in accuracies)])
    return Table(
        columns=("Way", *(f"{size:,} labels" for size in result.sizes)),
        rows=rows,
        caption=f"{HEADS[head].capitalize()}. In parentheses the share of a fifth "
        "chosen that the target would choose. “Refused”: the guard accepted the proxy "
        f"with no setting, of {len(result.seeds)} seeds.",
    )


def _figure(result: Curve) -> Figure:
    """Draw rank correlation against labels for the paper's phase and two probes."""
    figure = new_figure(8.0, 4.0)
    with style():
        ax = figure.subplots()
        for head in HEADS:
            for i, way in enumerate(("paper", "labels probe", "margin probe")):
                means = [
                    accepted_mean(_values(result, head, size, way))
                    for size in result.sizes
                ]
                ax.plot(
                    result.sizes,
                    [np.nan if mean is None else mean for mean in means],
                    _MARKS[head],
                    color=f"C{i}",
                    label=f"{way}, {head} head",
                )
        ax.set(xscale="log", xlabel="Labels bought first", ylabel="Rank correlation")
        ax.legend(ncols=2)
    return Figure(
        plot=figure,
        caption="Rank correlation with the target; a gap where the guard refuses. "
        f"{BY_CONSTRUCTION}",
        alt=" ".join(summary(result)[:2]),
    )


def _method(result: Curve) -> str:
    pool = next(iter(result.cells.values()))
    return (
        f"{pool.n.mean():,.0f} {NAMES[POOL].lower()} are offered, one class whole and "
        "each other one cut to a ninth. Bootstrap sets are dealt beside the pool, as "
        "imbalanced, so that it is the same for all sizes; a larger one holds the "
        "smaller. Half as many samples as are offered are there to distil on. Learning "
        "rates and penalties are searched for each size and head on a held-out deal, "
        f"{len(RATES)} tries for each method, and the library's guard decides what "
        "counts. "
        f"Seeds {', '.join(map(str, result.seeds))}."
    )
