"""Our methods, compared with the study's own best.

KNN-Banzhaf, Banzhaf and Data-OOB are not in the study. They are compared here, apart
from its claims, and corrected among themselves.
"""

from __future__ import annotations

from experiments._kit.judge import FAILS, HOLDS, Claim, Finding, above, gap, settle
from experiments._kit.scenes.valuations import MAX
from jaxsel.report import Table

from .cases import TITLES
from .measured import application_scale, figures_of
from .methods import OURS
from .run import Study

MEASURES = {
    "noisy": "auc",
    "pattern": "auc",
    "instance": "auc",
    "summary": "mean_accuracy",
    "mnist": "gain",
    "digits": "gain",
}
"""Measure that compares methods, by kind of application."""


def our_claims(result: Study) -> list[Claim]:
    """Test each of our methods against KNN-Shapley, all at 5 % together.

    For foreign samples it is the maximum of KNN-Shapley values, as in the study.
    """
    findings = []
    for name, curves in result.applications.items():
        kind = name.split("-")[0]
        if kind not in MEASURES:
            continue
        figures = figures_of(curves, MEASURES[kind])
        base = MAX if kind == "instance" else "KNN-Shapley"
        for method in OURS:
            ours, theirs = figures[method], figures[base]
            findings.append(
                Finding(
                    "ours",
                    f"{method} is above {base}",
                    TITLES[name],
                    application_scale(name, result),
                    gap(method, ours, base, theirs),
                    above(ours - theirs),
                )
            )
    return settle(findings)


def our_table(result: Study) -> Table:
    """Tabulate the lead of each of our methods over KNN-Shapley, by data set."""
    claims = our_claims(result)
    words = {HOLDS: "above", FAILS: "below"}
    rows = []
    for i in range(0, len(claims), len(OURS)):
        of_data = claims[i : i + len(OURS)]
        cells = (
            f"{c.measured.split(': ')[1]}, {words.get(c.verdict, c.verdict)}"
            for c in of_data
        )
        rows.append((of_data[0].where, *cells))
    test = claims[0].test if claims else ""
    error = ", ± one standard error" if len(result.seeds) > 1 else ""
    return Table(
        columns=("Data", *OURS),
        rows=rows,
        caption="Methods that the study lacks, less KNN-Shapley (less its maximum for "
        f"foreign samples){error}, and by which side of it each is: "
        f"paired {test}. AUC for wrong labels and watermarks, mean accuracy for "
        "summarisation, gain for adaptation.",
    )
