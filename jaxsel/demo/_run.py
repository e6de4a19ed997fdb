"""The demo: from a clone to a report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxsel.report import Report

from ._market import OWNERS
from ._purchase import Purchase, run_purchase
from ._purchase_chapter import purchase_chapter
from ._reviews import DATA, MODEL, run_texts, texts_chapter, texts_ready
from ._secret import secure_phase
from ._story import story


def run_demo(
    folder: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = tuple(range(10)),
    progress: bool = True,
    python: str | None = None,
) -> tuple[Path, Path, str]:
    """Run the demo on real data and write its report.

    Takes about half a minute on two cores, and two minutes more for the choice of
    texts, which is made if `jaxsel models prepare minilm` and `jaxsel data prepare
    movie_polarity` were run; in secret as well if `mpc_bridge` and
    SPU or CrypTen are installed.

    Args:
        folder: Folder to write `report.html` and `report.json` to.
        seeds: Each repeats every experiment; the report shows mean and spread.
        progress: Whether to show progress bars.
        python: Interpreter of another environment, which has SPU: taken for the choice
            in secret if this one lacks it.

    Returns:
        Paths of the page and of the numbers, and a few lines of text that sum it up.

    Raises:
        ValueError: If `python` can't run the choice in secret: with the reason.
    """
    secure = secure_phase(python)
    purchase = run_purchase(seeds, progress=progress)
    chapters = [purchase_chapter(purchase)]
    lines = [_summary(purchase)]
    texts = None
    if texts_ready():
        texts = run_texts(secure=secure, progress=progress)
        chapters.append(texts_chapter(texts))
        lines.append(
            f"Reviews chosen by a proxy for {texts.megabytes:,.0f} MB (counted on "
            "CrypTen): rank correlation with the model's own doubts "
            f"{texts.spearman:.2f}"
        )
        if texts.private is not None:
            run = texts.private
            lines.append(
                f"The same in secret on {run.engine}: {run.megabytes:,.0f} MB, "
                f"{run.rounds} rounds, {run.seconds:.0f} s; {texts.agreed:.0%} of the "
                "choice is the same"
            )
        lines += secure.notices()
    else:
        lines.append(
            f"For a chapter on texts: jaxsel models prepare {MODEL}; jaxsel data "
            f"prepare {DATA}"
        )
    main, offered = purchase.main, int(purchase.sizes.sum())
    report = Report(
        title=f"{purchase.budgets[main]} of {offered} samples on offer take a model "
        f"from {purchase.before[:, 0].mean():.1%} to "
        f"{purchase.chosen[:, main, 0].mean():.1%} accuracy",
        summary="Open a line to read more. Every number was measured on this machine, "
        "but for what a secure run would move, where it was counted and not run. "
        "Headings say better or worse where a paired t-test over seeds does, at 5%.",
        chapters=chapters,
        story=story(purchase, texts),
    )
    html, numbers = report.save(folder)
    return html, numbers, "\n".join(lines)


def _summary(result: Purchase) -> str:
    budget, offered = int(result.budgets[result.main]), int(result.sizes.sum())
    rows = {
        "before": result.before,
        f"{budget} samples at random": result.random[:, result.main],
        f"{budget} samples by jaxsel": result.chosen[:, result.main],
        f"all {offered} samples": result.everything,
    }
    lines = [f"{'Test accuracy, mean of seeds':<30}{'all':>8}{'weak classes':>15}"]
    for name, accuracy in rows.items():
        overall, weak = accuracy.mean(0)
        lines.append(f"  {name:<28}{overall:>8.1%}{weak:>15.1%}")
    caught = np.mean([d.found_at_bad for d in result.detection])
    order = np.argsort(-result.owner_value.mean(0), kind="stable")
    lines.append(f"Wrong labels found, inspecting as many as there are: {caught:.1%}")
    lines.append(f"Owners, best first: {', '.join(OWNERS[o] for o in order)}")
    return "\n".join(lines)
