"""The command of the costs of a secure choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxsel.report import Report

SEEDS = 1
HELP = "what does a secure choice cost, counted and run, beside the paper's figures?"
DESCRIPTION = """\
SelectFormer's figures on cost beside counts for each engine: the target itself, peers'
approximations, the paper's proxies and ours. Then a linear probe chooses 8,400 of
42,000 rows in secret, all roles on this machine, on SPU's two engines where they are
installed. Then it buys from each imbalanced pool that is prepared, in secret and in
the clear, and trains a model on both. Takes features of MiniLM where it and texts are
prepared; two and a half minutes on two cores once 2,000 texts are encoded, and half a
minute for each purchase."""
FULL = "features of 42,000 real texts, where texts are prepared"
LASTS = (
    "two and a half minutes on two cores once texts are encoded, and half a minute for "
    "each purchase"
)
LASTS_FULL = "not timed"
SPREAD = False  # its runs are timed, one after the other


def make(folder: Path, **options: Any) -> tuple[Report, str]:
    """Run the experiments and return their report, and a line on each real run."""
    from .chapter import secure_chapter, summed_up
    from .run import run_secure

    result = run_secure(folder, **options)
    report = Report(
        title="The cost of choosing in secret",
        summary="What a choice of samples that nobody may read costs: counted for the "
        "proxies of SelectFormer, of its peers and ours, beside the paper's figures, "
        "and measured for a linear probe.",
        chapters=[secure_chapter(result)],
    )
    return report, summed_up(result)
