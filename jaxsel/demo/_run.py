"""The demo: from a clone to a report."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxsel.report import Report

from ._page import purchase_chapter, purchases, story
from ._reviews import DATA, MODEL, run_texts, texts_chapter, texts_ready
from .purchase import OWNERS, Purchase, run_purchase


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
    movie_polarity` were run; in secret as well if `mpc_bridge` and SPU or CrypTen are
    installed, here or with `python`.

    Args:
        folder: Folder to write `report.html` and `report.json` to.
        seeds: Each repeats the purchase; the report shows mean and spread.
        progress: Whether to show progress bars.
        python: Interpreter of another environment, which has SPU: taken for the choice
            in secret if this one lacks it.

    Returns:
        Paths of the page and of the numbers, and a few lines of text that sum it up.

    Raises:
        ValueError: If `python` can't run the choice in secret: with the reason.
    """
    # By name: jaxsel works without the secure phase.
    bridge = importlib.import_module("mpc_bridge._installed")
    secure = bridge.secure_phase(python)
    purchase = run_purchase(seeds, progress=progress)
    chapters, lines, secret = [purchase_chapter(purchase)], _summary(purchase), ""
    if texts_ready():
        texts = run_texts(secure, progress=progress)
        chapters.append(texts_chapter(texts))
        lines.append(
            f"Reviews chosen by a proxy for {texts['megabytes']:,.0f} MB (counted on "
            "CrypTen): rank correlation with the model's own doubts "
            f"{texts['spearman']:.2f}"
        )
        if (run := texts["private"]) is not None:
            lines.append(
                f"The same in secret on {run['engine']}: {run['megabytes']:,.0f} MB, "
                f"{run['rounds']} rounds, {run['seconds']:.0f} s; "
                f"{texts['agreed']:.0%} of the choice is the same"
            )
            secret = (
                f" In secret, {texts['chosen']} film reviews are chosen out of "
                f"{texts['offered']}, though the buyer has read only "
                f"{texts['bootstrap']}, bought at random, and the seller has not seen "
                "the model that chooses."
            )
        lines += secure.notices()
    else:
        lines.append(
            f"For a choice of texts: jaxsel models prepare {MODEL}; jaxsel data "
            f"prepare {DATA}"
        )
    before, _, chosen, _ = (a[:, 0].mean() for a in purchases(purchase).values())
    report = Report(
        title=f"{purchase.budgets[purchase.main]} of {purchase.sizes.sum()} samples on "
        f"offer take a model from {before:.1%} to {chosen:.1%} accuracy",
        summary="Open a line to read more. Every number was measured on this machine, "
        "but for what a secure run would move, where it was counted and not run. "
        "Headings say better or worse where a paired t-test over seeds does, at 5%.",
        chapters=chapters,
        story=story(purchase, secret),
    )
    html, numbers = report.save(folder)
    return html, numbers, "\n".join(lines)


def _summary(result: Purchase) -> list[str]:
    lines = [f"{'Test accuracy, mean of seeds':<30}{'all':>8}{'weak classes':>15}"]
    for name, accuracy in purchases(result).items():
        overall, weak = accuracy.mean(0)
        lines.append(f"  {name:<28}{overall:>8.1%}{weak:>15.1%}")
    caught = np.mean([d.found_at_bad for d in result.detection])
    lines.append(f"Wrong labels found, inspecting as many as there are: {caught:.1%}")
    order = np.argsort(-result.owner_value.mean(0), kind="stable")
    return [*lines, f"Owners, best first: {', '.join([*OWNERS][o] for o in order)}"]
