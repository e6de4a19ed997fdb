"""The command of the filtering experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.seeds import one_thread_each
from jaxsel.report import Report

SEEDS = 5
HELP = "what does a threshold of the loss remove, and what do clients learn then?"
DESCRIPTION = """\
Clients drop samples by a threshold of their loss, and learn together: noise removed,
clean samples kept, accuracy by rounds, messages, few writers' benchmark sets, the best
threshold; claims of the paper with their tests. Needs mnist and fashion_mnist; eight
minutes on two cores."""
FULL = "Fashion-MNIST, and CNNs, too"
LASTS = "eight minutes on two cores with five"
LASTS_FULL = "not timed"
SPREAD = True


def make(folder: Path, **options: Any) -> tuple[Report, str]:
    """Run the experiments and return their report, and nothing more to say."""
    from .chapter import filter_chapter
    from .run import run_filtering

    one_thread_each()
    result = run_filtering(folder, **options)
    report = Report(
        title="Filtering by loss in miniature",
        summary="Clients that learn together drop what a benchmark model finds too "
        "hard. How much noise goes, what clean samples go with it, and what is gained? "
        "The experiments of a paper on federated learning, small and on other data.",
        chapters=[filter_chapter(result)],
    )
    return report, ""
