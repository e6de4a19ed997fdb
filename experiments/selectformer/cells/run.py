"""A cell of the paper, one seed after the other: each keeps a device busy."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments._kit.reading import Cell, read_cell
from experiments._kit.seeds import stacked

from .grid import Cut, Way, called, cuts, ways
from .trial import RATES, TUNING, deal, trial

_log = logging.getLogger("experiments")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellResult:
    """Results of a cell, for each of S seeds, W ways and K proxies.

    Attributes:
        data: Name of the set.
        target: The paper's name for the target, or the name of its folder.
        kind: "text" or "image".
        seeds: `[S]`.
        compared: The ways, by name.
        made: The proxies.
        n: Samples offered, `[S]`.
        tested: Samples tested on.
        accuracy: Of the target, fine-tuned on each purchase, `[S, W]`; NaN where a
            proxy was refused.
        rho: Rank correlation of the last phase with the target's entropies, `[S, W]`.
        rate: Learning rate at which a proxy was accepted, `[S, K]`; NaN for none.
        refused: Rates at which it was refused before, `[S, K]`.
        emulated: Rank correlation of emulated with exact entropies, `[S, K]`.
    """

    data: str
    target: str
    kind: str
    seeds: np.ndarray
    compared: Mapping[str, Way]
    made: Sequence[Cut]
    n: np.ndarray
    tested: int
    accuracy: np.ndarray
    rho: np.ndarray
    rate: np.ndarray
    refused: np.ndarray
    emulated: np.ndarray

    def of(self, name: str) -> np.ndarray:
        """Return the accuracies of a way, `[S]`."""
        return self.accuracy[:, [*self.compared].index(name)]


def run_cell(
    folder: str | os.PathLike[str],
    *,
    data: str,
    target: str,
    paper: bool = False,
    seeds: Sequence[int] = tuple(range(5)),
    progress: bool = False,
) -> CellResult:
    """Choose from a cell of the paper by its proxies, and train on the purchases.

    Proxies are made as section 4.2 says: the bottom layers are fine-tuned on the
    bootstrap set, emulators learn from 5.12 million points of a Gaussian ex vivo, then
    the whole proxy in vivo. Its rate is the highest of five at which its emulated
    entropies rank as the exact ones do, as `jaxsel.proxy.select` asks; where there is
    none, the proxy counts as refused, not as worse.

    Args:
        folder: Where results are kept; those that are there are read.
        data: A prepared set of TFDS.
        target: Folder of a BERT, DistilBERT, RoBERTa or ViT.
        paper: Whether to run the whole grid of the paper's tables.
        seeds: Each deals the pool, and draws all else, anew.
        progress: Show bars.

    Raises:
        FileNotFoundError: If the set is not prepared, or the folder lacks a file.
        ValueError: If there are no seeds, or the set can't serve.

    References:
        Ouyang et al., SelectFormer, sections 4.2, 4.3 and 5, Tables 1 to 8.
    """
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    cell = read_cell(data, target, progress=progress)
    compared = ways(cell.target.config, paper=paper)
    _log.info("%s", _announced(cell, compared, seeds))
    results = []
    for seed in seeds:
        results.append(trial(cell, compared, int(seed), Path(folder)))
        _log.info("seed %d is done, %d of %d", seed, len(results), len(seeds))
    name = called(cell.target.config) or Path(target).resolve().name
    return CellResult(
        data=data,
        target=name,
        kind=cell.target.config.kind,
        seeds=np.asarray(seeds),
        compared=compared,
        made=cuts(compared.values()),
        tested=len(cell.y) - cell.train,
        **stacked(results),
    )


def _announced(cell: Cell, compared: Mapping[str, Way], seeds: Sequence[int]) -> str:
    """Say how much there is to do; how long it takes depends on the device."""
    n = len(deal(cell, int(seeds[0])).rows)
    bought = sum(round(way.budget * n) for way in compared.values())
    proxies = len(cuts(compared.values()))
    return (
        f"{n:,} samples are offered, {len(cell.y) - cell.train:,} tested on. Each "
        f"seed, of {len(seeds)}, makes {proxies} proxies, at up to {len(RATES)} rates, "
        f"and fine-tunes the target {2 + len(compared)} times: "
        f"{TUNING.epochs * bought:,.0f} samples forward and backward for purchases"
    )
