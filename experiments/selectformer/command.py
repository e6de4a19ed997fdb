"""The command of the experiments on SelectFormer's claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxsel.report import Report

SEEDS = 1
HELP = (
    "do cheap proxies of a secret model choose well, and does that train a better one?"
)
DESCRIPTION = """\
SelectFormer's claims on imbalanced pools: how well proxies rank beside the target that
they stand in for, what a model learns from their choice, for how many bytes of a secure
run; and which score of a linear target buys best on five pools, over twenty seeds. The
paper's methods and ours get the same search for their settings and pass the same guard.
Needs movie_polarity, tweets, reuters_r8, newsgroups, fashion_mnist, mnist and the model
minilm. Proxies choose from two pools, with --full from all five. Allow 15 minutes on
two cores, with --full some hours: a run that was killed resumes."""
FULL = (
    "twenty seeds or more, five pools, the paper's ablations, widths and sub-model on "
    "two of them, fine-tuned final models"
)
LASTS = "a seed of proxies takes seven minutes on two cores, twenty of scores three"
LASTS_FULL = "three hours on two cores, and 10 GB of memory"
SPREAD = True

CELL = """\
Any prepared set of TFDS and any BERT, DistilBERT, RoBERTa or ViT, by the paper's own
recipe: `--data glue/sst2 --target FOLDER`. The folder holds config.json,
model.safetensors and, for texts, tokenizer.json. It wants a GPU."""
CELL_OPTIONS = {"target": "a folder of Hugging Face"}
CELL_NEEDS = ("target",)
CELL_LACKS = {"others": "the pool is of --data alone"}
CELL_PAPER = "the whole grid of the paper's tables"
SEEDS_CELL = 5
LASTS_CELL = "not timed; what there is to do is counted once data and target are read"

_PAIRED = 20  # seeds at least, where accuracies are compared
_OF_VARIANTS = 5  # seeds at most: they double the proxies of a seed


def make(
    folder: Path, *, seeds: Sequence[int], full: bool = False, **options: Any
) -> tuple[Report, str]:
    """Run the experiments and return their report, and a summary."""
    from .proxies.chapter import proxies_chapter
    from .proxies.finals import run_finals
    from .proxies.run import run_proxies
    from .proxies.searched import run_searched
    from .scores.chapter import accuracy_chapter, verdicts
    from .scores.run import run_accuracy
    from .sources import SOURCES

    paired = seeds if len(seeds) >= _PAIRED else range(_PAIRED)
    several = paired if full else seeds
    pools = [*SOURCES] if full else None
    proxies = run_proxies(folder, seeds=[*several], pools=pools, **options)
    scores = run_accuracy(folder, seeds=[*paired], full=full, **options)
    searched = run_searched(folder, proxies, **options)
    finals, variants = {}, None
    if full:
        finals = run_finals(folder, proxies, **options)
        few = [*several][:_OF_VARIANTS]
        variants = run_proxies(folder, seeds=few, variants=True, **options)
    chapter = proxies_chapter(proxies, searched, finals, variants)
    report = Report(
        title="SelectFormer's claims on real data",
        summary="How well cheap stand-ins of a model choose samples that nobody may "
        "read, what a model learns from the choice, and what it costs in secret.",
        chapters=[chapter, accuracy_chapter(scores)],
    )
    texts = [block for block in chapter.blocks[3:6] if isinstance(block, str)]
    return report, "\n".join([*texts, *verdicts(scores)])


def make_cell(folder: Path, **options: Any) -> tuple[Report, str]:
    """Run a cell of the paper and return its report, and the first text of it."""
    from .cells.chapter import cell_chapter
    from .cells.run import run_cell

    result = run_cell(folder, **options)
    chapter = cell_chapter(result)
    report = Report(
        title=f"SelectFormer on {result.data}, {result.target}",
        summary="What the paper's proxies buy from this data set, and what the target "
        "learns of it, beside a random choice and the target's own.",
        chapters=[chapter],
    )
    return report, next(block for block in chapter.blocks if isinstance(block, str))
