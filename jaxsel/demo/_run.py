"""The demo: from a clone to a report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxsel.report import Report

from ._clients import Clients, clients_chapter, run_clients
from ._market import OWNERS
from ._purchase import Purchase, run_purchase
from ._purchase_chapter import purchase_chapter
from ._requests import Requests, requests_chapter, run_requests
from ._reviews import DATA, MODEL, run_texts, texts_chapter, texts_ready
from ._secret import secure_phase
from ._story import story
from ._worth import Worth, run_worth, worth_chapter


def run_demo(
    folder: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = tuple(range(10)),
    progress: bool = True,
    python: str | None = None,
) -> tuple[Path, Path, str]:
    """Run the demo on real data and write its report.

    Takes about two minutes on two cores, and two more for the chapter on
    texts, which is there if `jaxsel models prepare minilm` and `jaxsel data prepare
    movie_polarity` were run; its choice is made in secret as well if `mpc_bridge` and
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
    requests = run_requests(seeds, progress=progress)
    worth = run_worth(min(3, len(seeds)), progress=progress)
    clients = run_clients(seeds[:3], progress=progress)
    chapters = [
        purchase_chapter(purchase),
        requests_chapter(requests),
        worth_chapter(worth),
        clients_chapter(clients),
    ]
    lines = [
        _summary(purchase, requests),
        _worth_summary(worth),
        _clients_summary(clients),
    ]
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
        story=story(purchase, requests, texts),
    )
    html, numbers = report.save(folder)
    return html, numbers, "\n".join(lines)


def _summary(result: Purchase, requests: Requests) -> str:
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
    chosen, random = np.nanmean(requests.spearman, axis=0)
    lines.append(
        f"Owners asked for {requests.budget} samples each: rank correlation with full "
        f"information {chosen:.2f}; at random {random:.2f}"
    )
    return "\n".join(lines)


def _worth_summary(worth: Worth) -> str:
    summary = worth.curves.summary
    parts = [
        f"{name} {summary[name]['auc'].mean():.3f} ({worth.seconds[name]:.2g} s)"
        for name in ("KNN-Shapley", "KNN-LOO", "TMC-Shapley")
    ]
    return f"AUC of finding wrong labels by values: {', '.join(parts)}"


def _clients_summary(clients: Clients) -> str:
    results = clients.found
    none, _, filtered, _ = results["accuracy"][..., -1].mean(0)
    return (
        f"Clients of whose data two thirds are noise: accuracy {none:.1%}, filtered by "
        f"loss {filtered:.1%}, without noise {results['ideal'][:, -1].mean():.1%}"
    )
