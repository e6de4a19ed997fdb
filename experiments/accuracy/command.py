"""The command of the experiments with accuracy after a purchase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxsel.report import Report

SEEDS = 20
HELP = "does what a selector buys train a better model than a random purchase?"
DESCRIPTION = """\
Buys from five imbalanced pools by the rule of SelectFormer, in several ways, trains a
model on each purchase and tests it. The target is linear on features of a public
encoder: fine-tuning a transformer for every purchase would take days. Needs
movie_polarity, tweets, reuters_r8, newsgroups, fashion_mnist and the model minilm; four
minutes on two cores, once the texts are encoded."""
FULL = "pools with up to 5,000 samples of the kept class"
SPREAD = True


def make(folder: Path, **options: Any) -> tuple[Report, str]:
    """Run the experiments and return their report, and a summary."""
    from .chapter import accuracy_chapter, verdicts
    from .run import run_accuracy

    result = run_accuracy(folder, **options)
    report = Report(
        title="Accuracy after a purchase",
        summary="Which way of choosing what to buy trains a better model than a random "
        "purchase of as many samples?",
        chapters=[accuracy_chapter(result)],
    )
    return report, "\n".join(verdicts(result))
