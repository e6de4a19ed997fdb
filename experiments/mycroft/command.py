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

CELL = """\
Any prepared set of images and classes: `--data food101`, by CNNs from scratch, or with
`--target FOLDER` by linear heads on the features of a ViT. It wants a GPU."""
CELL_OPTIONS = {"target": "a folder of a ViT of Hugging Face; CNNs without it"}
CELL_NEEDS = ()
CELL_LACKS = {"others": "owner and trainer share the samples of --data"}
CELL_PAPER = "the paper's budgets, and all samples that the set has"
SEEDS_CELL = 8
LASTS_CELL = "not timed; what there is to do is counted once data and target are read"


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


def make_cell(folder: Path, **options: Any) -> tuple[Report, str]:
    """Run a cell of the paper and return its report, and a summary."""
    from .cells.chapter import cell_chapter
    from .cells.run import run_cell

    chapter = cell_chapter(run_cell(folder, **options))
    report = Report(
        title=chapter.title,
        summary="Which samples of an owner's a trainer of this data set gains from, "
        "where it lacks some classes, or has seen each before one background only.",
        chapters=[chapter],
    )
    return report, next(block for block in chapter.blocks if isinstance(block, str))
