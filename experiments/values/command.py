"""The command of the study of values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments._kit.seeds import one_thread_each
from jaxsel.report import Report

SEEDS = 10
HELP = "is a closed form as good as values that train models again and again?"
DESCRIPTION = """\
KNN-Shapley beside values that train models again, on wrong labels, watermarks,
summarisation, acquisition and adaptation; which of the study's claims hold. Needs
mnist, fashion_mnist and adult. Takes newsgroups, movie_polarity with minilm, and the
encoders of images efficientnet_lite0 and vit_s, where they are prepared. Took about
twelve minutes on two cores before pretrained features were added, which are encoded
once in three minutes, and networks, which take 16 CPU minutes."""
FULL = "1000 points rather than 300"
LASTS = "about twenty minutes on two cores with ten"
LASTS_FULL = "38 minutes before three experiments were added"
SPREAD = True

CELL = """\
Any prepared set of images, on pixels or as a ViT in a folder sees them: `--data cifar10
--target FOLDER`; or of texts, as a BERT, DistilBERT or RoBERTa does. It wants a GPU."""
CELL_OPTIONS = {
    "target": "a folder of Hugging Face, whose features are valued; pixels without it",
    "others": "prepared sets of images to plant among those of --data",
}
CELL_NEEDS = ()
CELL_LACKS = {}
CELL_PAPER = "the study's numbers of points"
SEEDS_CELL = 10
LASTS_CELL = "not timed; what there is to do is counted once data and target are read"


def make(folder: Path, **options: Any) -> tuple[Report, str]:
    """Run the experiments and return their report, and how many claims hold."""
    from .chapter import study_chapter, study_tally
    from .run import run_study

    one_thread_each()
    result = run_study(folder, **options)
    report = Report(
        title="Values of data in miniature",
        summary="Is a closed form for nearest neighbours as good as values that train "
        "models again and again? The experiments of a study of KNN-Shapley, small and "
        "on other data, with a verdict on each of its claims.",
        chapters=[study_chapter(result)],
    )
    return report, f"Of the study's claims {study_tally(result)}"


def make_cell(folder: Path, **options: Any) -> tuple[Report, str]:
    """Run a cell of the study and return its report, and a summary."""
    from .cells.chapter import cell_chapter
    from .cells.run import run_cell

    chapter = cell_chapter(run_cell(folder, **options))
    report = Report(
        title=chapter.title,
        summary="What values of data find and train on this data set: wrong labels, "
        "watermarks, a summary, an acquisition; which of the study's claims hold.",
        chapters=[chapter],
    )
    return report, next(block for block in chapter.blocks if isinstance(block, str))
