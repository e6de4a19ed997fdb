"""The command of the curve over the bootstrap set's size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxsel.report import Report

SEEDS = 1
HELP = "how do proxies rank by the number of labels that are bought first?"
DESCRIPTION = """\
SelectFormer's proxies and ours on tweets, after bootstrap sets of 38 to 600 labels, for
targets whose head is a linear probe of that set and for others. The paper's methods and
ours get the same search for their settings and pass the same guard. Needs tweets and
the model minilm. Allow 30 minutes on two cores, with --full an hour for each seed, and
with --published longer: a run that was killed resumes."""
FULL = "38 to 1,500 labels"
FLAGS = {"published": "the paper's sub-model and 5.12 million Gaussian samples too"}
LASTS = "30 minutes on two cores"
LASTS_FULL = "an hour for each seed on two cores"
SPREAD = True


def make(folder: Path, *, seeds: Sequence[int], **options: Any) -> tuple[Report, str]:
    """Run the experiment and return its report, and a summary."""
    from .chapter import curve_chapter, summary
    from .run import run_curve

    result = run_curve(folder, seeds=[*seeds], **options)
    report = Report(
        title="Proxies by the number of labels bought first",
        summary="How cheap stand-ins of a model rank as more labels are bought first.",
        chapters=[curve_chapter(result)],
    )
    return report, "\n".join(summary(result))
