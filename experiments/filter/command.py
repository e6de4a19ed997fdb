"""The command of the filtering experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments._kit.seeds import one_thread_each
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

CELL = """\
Any prepared set of images and classes as the task: `--data cifar10`, with other sets as
open-set noise. Clients average plainly, as the paper's do. It wants a GPU."""
CELL_OPTIONS = {
    "others": "prepared sets that open-set noise comes from (default: fashion_mnist "
    "and mnist, but for --data)"
}
CELL_NEEDS = ()
CELL_LACKS = {
    "target": "clients train a model from scratch, as in the paper. Give --data, and "
    "--others for open-set noise"
}
CELL_PAPER = "a CNN, and all samples that the set has, by the paper's 100 clients"
SEEDS_CELL = 5
LASTS_CELL = "not timed; what there is to do is counted once data are read"


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


def make_cell(folder: Path, **options: Any) -> tuple[Report, str]:
    """Run a cell of the paper and return its report, and a summary."""
    from .cells.chapter import cell_chapter
    from .cells.run import run_cell

    result = run_cell(folder, **options)
    chapter = cell_chapter(result)
    report = Report(
        title=f"Filtering by loss on {result.data}",
        summary="What a threshold of the loss removes from clients' samples of this "
        "data set, and what they learn from the rest.",
        chapters=[chapter],
    )
    return report, next(block for block in chapter.blocks if isinstance(block, str))
