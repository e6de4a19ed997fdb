"""A cell of the study as a chapter of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from experiments._kit.claims import Measured, claim_table, judge, matrix
from experiments._kit.judge import Claim
from experiments._kit.scenes.valuations import figure_of
from experiments._kit.words import listed, spread
from experiments.values.claims import CLAIMS
from experiments.values.measured import on_application
from experiments.values.methods import METHODS, STUDIED, named
from jaxsel.report import Chapter, Figure, Heading, Table

from .run import FOREIGN, START, CellResult

TITLES = {
    "noisy": "Noisy labels, 10 %",
    "pattern": "Pattern watermark, 10 %",
    "instance": "Foreign images",
    "summary": "Summarisation",
    "acquisition": "Acquisition",
}
_FOUND = ("noisy", "pattern", "instance")
_ACCURACY = ("summary", "acquisition")
_NETWORK = "the study trains {} again, not a logistic regression"


def cell_claims(result: CellResult) -> list[Claim]:
    """Judge the study's claims on this cell, by its own methods."""
    measured = [*_measured(result)]
    shown = {row.key for row in measured}
    stated = {key: claim for key, claim in CLAIMS.items() if key in shown}
    return judge(stated, measured)


def cell_chapter(result: CellResult) -> Chapter:
    """Return the chapter on a cell: claims with verdicts, and figures by value."""
    claims, n = cell_claims(result), len(result.seeds)
    shown = [name for name in TITLES if name in result.applications]
    return Chapter(
        title=f"Values of data on {_where(result)}",
        blocks=[
            matrix(claims, "The study's claims on this cell, by its own methods."),
            _figure(result, shown[0]),
            _words(result),
            claim_table(claims, "What was measured.", n_seeds=n),
            _table(result, _FOUND, "auc", ".3f", "Area under the curve of share found"),
            _table(result, _ACCURACY, "mean_accuracy", ".1%", "Mean test accuracy"),
            *(_figure(result, name) for name in shown[1:]),
            Heading("How it was measured"),
            _method(result),
        ],
        data={
            "data": result.data,
            "target": result.target,
            "others": result.others,
            "seeds": result.seeds,
            "sizes": dataclasses.asdict(result.sizes),
            "applications": {
                name: {
                    "x": curves.x,
                    "mean": curves.mean(),
                    "summary": curves.summary,
                    "reference": curves.reference,
                }
                for name, curves in result.applications.items()
            },
            "claims": [dataclasses.asdict(claim) for claim in claims],
        },
    )


def _measured(result: CellResult) -> Iterator[Measured]:
    sizes = result.sizes
    for name, curves in result.applications.items():
        points = f"{sizes.n:,} points"
        if name == "acquisition":
            points = f"{START // 2} to {START // 2 + 50 * sizes.rounds} points"
        about = {"where": _where(result), "scale": f"{points}, {_seen(result)}"}
        yield from on_application(name, curves, about, other=_other(result, name))


def _other(result: CellResult, name: str) -> str:
    """Return why retrained values can't test the study's claims; "" if they can.

    The study trains logistic regressions on features of images with wrong labels and
    on grey images with foreign ones.
    """
    if name == "acquisition":
        return "the study does not name the model that it trains again"
    if name == "noisy":
        if result.kind == "text":
            return _NETWORK.format("naive Bayes on texts")
        return "" if result.target else _NETWORK.format("a convolutional network")
    if name == "instance" and result.grey:
        return ""
    # With a word the study compares no values that train again.
    if name == "pattern" and not result.grey:
        return ""
    return _NETWORK.format("a network")


def _where(result: CellResult) -> str:
    return f"{result.data}, {result.target}" if result.target else result.data


def _seen(result: CellResult) -> str:
    if result.target:
        return f"{result.sizes.width} components of the target's features"
    return "8×8 pixels"


def _figure(result: CellResult, name: str) -> Figure:
    return figure_of(result.applications[name], STUDIED, TITLES[name])


def _words(result: CellResult) -> str:
    auc = result.applications["noisy"].summary
    parts = [f"{named(m)} {auc[m]['auc'].mean():.3f}" for m in METHODS if m in auc]
    return f"Wrong labels, area under the curve: {', '.join(parts)}."


def _table(
    result: CellResult, names: tuple[str, ...], measure: str, form: str, caption: str
) -> Table:
    shown = {n: result.applications[n] for n in names if n in result.applications}
    rows = [
        (
            named(m),
            *(
                spread(c.summary[m][measure]) if m in c.summary else None
                for c in shown.values()
            ),
        )
        for m in METHODS
        if any(m in c.summary for c in shown.values())
    ]
    return Table(
        columns=("Values", *(TITLES[name] for name in shown)),
        rows=rows,
        formats=("", *[form] * len(shown)),
        caption=f"{caption}; mean ± standard deviation over seeds.",
    )


def _method(result: CellResult) -> str:
    sizes, samples = result.sizes, result.sizes.samples
    parts = [
        f"Each seed deals {sizes.n:,} points to value, {sizes.n_val:,} to validate and "
        f"{sizes.n_test:,} to test anew, from the training split; the acquisition has "
        f"a pool of {sizes.pool:,} and {sizes.rounds} purchases of 50. All values see "
        f"{_seen(result)}, and so does the logistic regression that is tested; values "
        "that train again take it, too, or naive Bayes in the acquisition: "
        f"{samples.permutations} permutations of TMC-Shapley, {samples.passes} passes "
        f"of G-Shapley, {samples.coalitions:,} coalitions and {samples.bags} bags "
        f"({sizes.two.permutations}, {sizes.two.passes}, {sizes.two.coalitions:,} and "
        f"{sizes.two.bags} with two classes). K is 5."
    ]
    if result.target:
        parts.append("Components are made of other rows than those that are valued.")
    if not result.balanced:
        parts.append(
            "The rarest class has too few samples for a summary of each class equally "
            "often, as the study has it."
        )
    if result.others:
        parts.append(
            f"Foreign images are of {listed([*result.others])}; with --paper "
            f"{FOREIGN[1]:.0%} among {FOREIGN[0]:,} points, as in the study's figure "
            "8, else a tenth."
        )
    return " ".join(parts)
