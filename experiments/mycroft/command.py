"""The command of Mycroft's experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxsel.report import Report

SEEDS = 8
HELP = "which samples of an owner are worth having, and which owners?"
DESCRIPTION = """\
Mycroft in miniature: starved classes, a planted spurious correlation, noise and missing
labels, ranking of owners, the same on a table, and decision paths; with verdicts on the
paper's claims, and its figures beside ours. Needs mnist, fashion_mnist and adult
(`jaxsel data prepare`). Eight seeds took 17 minutes on two cores that had other work to
do, nine minutes of CPU time."""
FULL = "whole images, and all selectors on the table"
LASTS = "17 minutes on two cores that were busy, with eight"
LASTS_FULL = "59 minutes with five, before two experiments were added"
SPREAD = True


def make(folder: Path, **options: Any) -> tuple[Report, str]:
    """Run the experiments and return their report, and nothing more to say."""
    from .chapter import mycroft_chapters
    from .run import run_mycroft

    result = run_mycroft(folder, **options)
    report = Report(
        title="Mycroft in miniature",
        summary="Which samples of an owner's are worth having, and which owners? The "
        "experiments of the Mycroft paper, small and on other data, with the paper's "
        "figures beside what was measured on this machine.",
        chapters=mycroft_chapters(result),
    )
    return report, ""
