"""The command of the experiments with proxies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxsel.report import Report

SEEDS = 10
HELP = "how well do cheap proxies of a secret model choose texts, and at what cost?"
DESCRIPTION = """\
SelectFormer's proxies and cheaper ones choose texts from two pools; how well, and for
how many bytes of a secure run. Needs movie_polarity, tweets and the model minilm
(`jaxsel models prepare`); 42 minutes on two cores."""
FULL = "the paper's ablations too"
SPREAD = True


def make(folder: Path, **options: Any) -> tuple[Report, str]:
    """Run the experiments and return their report, and what stopped early."""
    from .chapter import proxies_chapter
    from .run import run_proxies

    result = run_proxies(folder, **options)
    report = Report(
        title="Proxies of a secret model",
        summary="How well cheap stand-ins of a model choose texts that nobody may "
        "read, and what they cost in secret: SelectFormer's proxies, and others.",
        chapters=[proxies_chapter(result)],
    )
    of = f"of {len(result.seeds)} seeds"
    lines = [
        f"Training stopped early: {pool}, “{point}”: {count} {of}"
        for pool in result.pools
        for point, count in result.stopped_early(pool).items()
    ]
    return report, "\n".join(lines)
