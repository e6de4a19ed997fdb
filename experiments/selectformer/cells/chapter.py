"""A cell of the paper as a chapter of a report, beside the paper's figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from experiments._kit.claims import (
    ABOVE,
    Measured,
    SeedTest,
    Stated,
    claim_table,
    judge,
    matrix,
)
from experiments._kit.judge import Claim
from experiments._kit.words import listed, spread, standard_error
from jaxsel.report import COLORS, Chapter, Figure, Heading, Table, new_figure, style

from .grid import ORACLE, OURS, PUBLISHED, RANDOM
from .run import CellResult
from .trial import ACCEPTED, BOOTSTRAP, EPOCHS, POINTS, RATES, TUNING

CLOSE = 0.01
"""Accuracy by which a choice may be below the target's own: our bound, since the paper
calls its own "comparable"."""

CLAIMS: Mapping[str, Stated] = {
    "random": Stated(
        text="The two phases train a better model than a random choice",
        where="Table 1; section 5.2",
        measure="test accuracy, the two phases less Random",
        test=ABOVE,
    ),
    "oracle": Stated(
        text=f"They are at most {100 * CLOSE:g} point below the target's own choice",
        where="Table 1; “comparable” in section 5.2",
        measure="test accuracy, the two phases less Oracle",
        test=SeedTest("above", -CLOSE),
    ),
    "budgets": Stated(
        text="They stay above a random choice with budgets of 25 %, 30 % and 40 %",
        where="Table 6; section 5.2",
        measure="test accuracy by budget, the two phases less Random",
        test=ABOVE,
        because="it takes --paper",
    ),
    "more": Stated(
        text="A random choice of 70 % is no better than 20 % by the two phases",
        where="Table 7; section 5.2",
        measure="test accuracy, two phases with 20 % less Random with 70 %",
        test=ABOVE,
        because="it takes --paper",
    ),
    "peers": Stated(
        text="They are above MPCFormer's and Bolt's softmax in the same two phases",
        where="Section 5.3, 7.2",
        measure="test accuracy, the two phases less each",
        test=ABOVE,
        because="it takes --paper",
    ),
    "emulators": Stated(
        text="Emulators cost at most 2 points beside exact operations",
        where="Table 2; section 5.4, whose largest loss is 1.24 points",
        measure="test accuracy, the two phases less NoApprox",
        test=SeedTest("above", -0.02),
        because="it takes --paper",
    ),
    "phases": Stated(
        text="Two phases are above one",
        where="Table 4; section 5.4 (in general)",
        measure="test accuracy, d = 2, 16 less d = 16",
        test=ABOVE,
        because="it takes --paper",
    ),
    "hours": Stated(
        text="Hours of a secure choice",
        where="Figures 6 to 8",
        because="`python -m experiments secure` counts them",
    ),
    "probe": Stated(
        text="Our linear probe is above the two phases",
        where="ours",
        measure="test accuracy, the probe less the two phases",
        test=ABOVE,
    ),
}


def cell_claims(result: CellResult) -> list[Claim]:
    """Judge the paper's claims on one cell, and one of ours."""
    known = {*result.compared}
    pairs = {
        "random": [(OURS, RANDOM)],
        "oracle": [(OURS, ORACLE)],
        "budgets": [(f"{OURS}, {b}", f"{RANDOM}, {b}") for b in ("25%", "30%", "40%")],
        "more": [(OURS, f"{RANDOM}, 70%")],
        "peers": [(OURS, "MPCFormer"), (OURS, "Bolt")],
        "emulators": [(OURS, "NoApprox")],
        "phases": [("d = 2, 16", "d = 16")],
        "probe": [("probe", OURS)],
    }
    measured: list[Measured] = []
    for key, comparisons in pairs.items():
        if not {name for pair in comparisons for name in pair} <= known:
            continue
        gaps = np.stack([result.of(a) - result.of(b) for a, b in comparisons])
        usable = np.isfinite(gaps).all(axis=0)
        refused = [
            n for pair in comparisons for n in pair if np.isnan(result.of(n)).all()
        ]
        measured.append(
            Measured(
                key=key,
                where=f"{result.data}, {result.target}",
                scale=f"{result.n.mean():,.0f} samples, {usable.sum()} seeds",
                values=gaps[:, usable] if usable.any() else np.zeros((1, 1)),
                said=", ".join(map(_points, gaps[:, usable])) if usable.any() else "–",
                other=""
                if usable.any()
                else f"the guard refused {listed([*dict.fromkeys(refused)])}",
            )
        )
    return judge(CLAIMS, measured)


def cell_chapter(result: CellResult) -> Chapter:
    """Show each of the paper's tables for this cell, beside its published figures."""
    claims = cell_claims(result)
    n = len(result.seeds)
    tables = dict.fromkeys(way.table for way in result.compared.values())
    return Chapter(
        title=f"SelectFormer on {result.data}, {result.target}",
        blocks=[
            matrix(claims, "The paper's claims on this cell, by its own recipe."),
            _figure(result),
            _words(result),
            claim_table(claims, "What was measured.", n_seeds=n),
            Heading("By the paper's tables"),
            *(_table(result, name) for name in tables),
            Heading("Which proxies the guard accepted"),
            _proxies(result),
            Heading("How it was measured"),
            _method(result),
        ],
        data={
            "data": result.data,
            "target": result.target,
            "seeds": result.seeds,
            "ways": [*result.compared],
            "proxies": [list(cut) for cut in result.made],
            **{
                name: getattr(result, name)
                for name in ("n", "tested", "accuracy", "rho", "rate", "emulated")
            },
            "refused": result.refused,
            "claims": [dataclasses.asdict(claim) for claim in claims],
        },
    )


def _points(gaps: np.ndarray) -> str:
    error = f" ± {standard_error(100 * gaps):.2f}" if len(gaps) > 1 else ""
    return f"{100 * gaps.mean():+.2f}{error} points"


def _table(result: CellResult, table: str) -> Table:
    paper = PUBLISHED.get((result.data, result.target))
    theirs = dict(zip((OURS, RANDOM, ORACLE), paper or (), strict=False))
    rows = []
    for name, way in result.compared.items():
        # Random and the two phases stand in each table, as in the paper.
        same = name in (OURS, RANDOM) and table != "ours"
        if way.table != table and not same:
            continue
        usable = np.isfinite(result.of(name))
        accuracies = result.of(name)[usable]
        share = f"{theirs[name]:.2f} %" if name in theirs else ""
        rho = result.rho[usable, [*result.compared].index(name)]
        rows.append(
            (
                way.says,
                f"{way.budget:.0%}",
                share,
                spread(accuracies) if len(accuracies) else "refused",
                spread(rho) if len(accuracies) and np.isfinite(rho).all() else "",
                f"{len(accuracies)} of {len(result.seeds)}",
            )
        )
    return Table(
        columns=(
            "Way",
            "Budget",
            "Paper, Table 8",
            "Accuracy",
            "Rank with target",
            "Seeds",
        ),
        rows=rows,
        formats=("", "", "", ".2%", ".2f", ""),
        caption=f"{table}: test accuracy of the fine-tuned target, mean ± standard "
        "deviation over the seeds in which no proxy was refused.",
    )


def _proxies(result: CellResult) -> Table:
    rows = []
    for k, cut in enumerate(result.made):
        rates = result.rate[:, k]
        fine = np.isfinite(rates)
        rows.append(
            (
                f"{cut.layers} layers, {cut.heads} heads, d = {cut.width}",
                cut.part or "the paper's MLPs",
                f"{fine.sum()} of {len(rates)}",
                listed([f"{r:g}" for r in sorted(set(rates[fine]))]) or "none",
                spread(result.emulated[fine, k]) if fine.any() else "",
            )
        )
    return Table(
        columns=("Proxy", "Parts", "Accepted", "At rates", "Emulated with exact"),
        rows=rows,
        formats=("", "", "", "", ".3f"),
        caption="Proxies whose emulated entropies rank as the exact ones by "
        f"{ACCEPTED:g} on the bootstrap set at one of {len(RATES)} rates, the highest "
        "first.",
    )


def _figure(result: CellResult) -> Figure:
    names = [n for n, way in result.compared.items() if np.isfinite(result.of(n)).any()]
    figure = new_figure(8.8, 0.8 + 0.28 * len(names))
    means = [100 * np.nanmean(result.of(name)) for name in names]
    with style():
        ax = figure.subplots()
        ax.plot(means, np.arange(len(names)), "o", color=COLORS[0])
        ax.axvline(
            100 * float(np.nanmean(result.of(RANDOM))), color=COLORS[-1], linewidth=0.8
        )
        ax.set_yticks(np.arange(len(names)), names)
        ax.invert_yaxis()
        ax.set_xlabel("Test accuracy, %")
    text = "; ".join(f"{n} {m:.1f} %" for n, m in zip(names, means, strict=True))
    return Figure(
        plot=figure,
        caption="Test accuracy after each purchase, mean over seeds; the line is a "
        "random fifth.",
        alt=f"Test accuracy: {text}.",
    )


def _words(result: CellResult) -> str:
    paper = PUBLISHED.get((result.data, result.target))
    gaps = 100 * (result.of(OURS) - result.of(RANDOM))
    gaps = gaps[np.isfinite(gaps)]
    if not len(gaps):
        return "The guard refused a proxy of the two phases in every seed."
    beside = f", in the paper {paper[0] - paper[1]:+.2f}" if paper else ""
    return f"The two phases less Random: {gaps.mean():+.2f} points of accuracy{beside}."


def _method(result: CellResult) -> str:
    return (
        "One class of the training split is kept whole, each other one cut to a ninth: "
        f"{result.n.mean():,.0f} samples, by a rule that the sizes of the paper's "
        f"pools show. {BOOTSTRAP:.0%} are bought at random. The bottom layers are "
        f"fine-tuned on them, emulators learn from {POINTS:,} Gaussian points, proxies "
        f"{EPOCHS} epochs in vivo, at the highest of {len(RATES)} rates that the guard "
        f"accepts. The target is fine-tuned on each purchase by `{TUNING!r}`, the same "
        f"for all, and tested on {result.tested:,} samples. The paper does not say, "
        "and so ours are: that recipe, rates and epochs, how many tokens a text has, "
        "reading the mean over rows, and which heads a first phase keeps. Table 4 "
        "gives DistilBERT one layer in its last phase, Table 6 three: each row follows "
        "its table."
    )
