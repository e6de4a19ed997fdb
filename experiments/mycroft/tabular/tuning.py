"""The same search of settings for each classifier, on a deal that no result is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .kinds import KindTable
from .market import dealt
from .select import FIRST, SELECTORS, prepare_offer, rank
from .trainer import GRID, Model, Retrainer, classifiers_here

DEAL = 100
"""The seed of that deal; seeds of results count from 0."""
STEP = 7
"""One in `STEP` owners is asked."""


def search(table: KindTable, sizes: Mapping[str, int]) -> list[Model]:
    """Find each classifier's best settings in `GRID`.

    They are judged as classifiers are compared: by the mean F1 with five samples by
    Mycroft, on the held-out rows of the deal. It took 40 s of processor time on Adult.

    Args:
        table: Any table.
        sizes: Keyword arguments of `deal`.
    """
    market, shares, lots = dealt(DEAL, table, sizes)
    jobs = []
    for p, o in held_pairs(shares, STEP):
        rows, beside = market.offered[o], table.x[market.beside[o]]
        known, hard = table.known(rows), table.known(market.hard[p])
        offer = prepare_offer(known, beside, table.categorical, seed=DEAL)
        jobs.append((p, rows[rank(SELECTORS[0], offer, hard, FIRST, lots[p, o])]))
    retrain = Retrainer(table, market, DEAL)
    score = lambda model: float(np.mean(retrain((p, r, model) for p, r in jobs)))
    return [
        max([(name, settings) for settings in GRID[name]], key=score)
        for name in classifiers_here()
    ]


def searched() -> dict[str, Any]:
    """Return the settings of the search: results after another search differ."""
    grid = {name: GRID[name] for name in classifiers_here()}
    return {"grid": grid, "deal": DEAL, "step": STEP}


def held_pairs(shares: np.ndarray, step: int) -> list[tuple[int, int]]:
    """List trainers with owners that hold their kind, one of `step` owners.

    Args:
        shares: Share of each kind in each owner's positives, `[O, P]`.
        step: 1 for all owners.
    """
    asked = np.arange(len(shares)) % step == 0
    return [(int(p), int(o)) for p, o in np.argwhere((shares.T > 0) & asked)]
