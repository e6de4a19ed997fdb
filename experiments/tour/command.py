"""The command of the tour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxsel.report import Report

SEEDS = 10
HELP = "short experiments on digits: a purchase, requests, values, clients"
DESCRIPTION = """\
The demo's purchase by budget and by owner. Five owners answer a trainer that sees
nothing of their digits, and it ranks them by their answers. Values with and without
training find wrong labels. Clients drop noisy digits by a threshold of their loss, and
learn together. Digits are built in; less than two minutes on two cores."""
FULL = "all seeds for values and clients, not three only"
LASTS = "less than two minutes on two cores with ten"
LASTS_FULL = "not timed"
SPREAD = False


def make(
    folder: Path, *, seeds: range, full: bool = False, progress: bool = False
) -> tuple[Report, str]:
    """Run the experiments and return their report, and a line on each."""
    from jaxsel.demo.purchase import run_purchase

    from .clients import clients_chapter, run_clients
    from .purchase import purchase_chapter
    from .requests import requests_chapter, run_requests
    from .worth import run_worth, worth_chapter

    few = seeds if full else seeds[:3]
    purchase = run_purchase(seeds, progress=progress)
    requests = run_requests(folder, seeds, progress=progress)
    worth = run_worth(len(few), progress=progress)
    clients = run_clients(folder, few, progress=progress)
    report = Report(
        title="A tour of jaxsel on digits",
        summary="Headings say better or worse where a paired t-test over seeds does, "
        "at 5%.",
        chapters=[
            purchase_chapter(purchase),
            requests_chapter(requests),
            worth_chapter(worth),
            clients_chapter(clients),
        ],
    )
    return report, _summary(requests, worth, clients)


def _summary(requests: Any, worth: Any, clients: Any) -> str:
    import numpy as np

    chosen, random = np.nanmean(requests.spearman, axis=0)
    values = [
        f"{name} {worth.curves.summary[name]['auc'].mean():.3f} "
        f"({worth.seconds[name]:.2g} s)"
        for name in ("KNN-Shapley", "KNN-LOO", "TMC-Shapley")
    ]
    none, _, filtered, _ = clients.results["accuracy"][..., -1].mean(0)
    ideal = clients.results["ideal"][:, -1].mean()
    return (
        f"Owners asked for {requests.budget} samples each: rank correlation with full "
        f"information {chosen:.2f}; at random {random:.2f}\n"
        f"AUC of finding wrong labels by values: {', '.join(values)}\n"
        f"Clients of whose data two thirds are noise: accuracy {none:.1%}, filtered by "
        f"loss {filtered:.1%}, without noise {ideal:.1%}"
    )
