"""Costs of a secure choice: counts for each way and engine, and real runs."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments._kit.seeds import stacked
from experiments._kit.store import remembered

from .choice import RUNS, choose, installed
from .measured import claimed
from .paper import LENGTHS, ROWS, SHARE
from .purchase import MOST, prepared, purchase
from .ways import ENGINES, Counted, counted, manifests, selections

KEEP = round(SHARE * ROWS)


_log = logging.getLogger("experiments")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """Real runs on one engine, for each of S seeds, all roles on this machine.

    Attributes:
        source: Of the features.
        megabytes: Payload that the model owner sent, and that the data owner sent,
            `[S, 2]`.
        choice_megabytes: The choice's part of the model owner's traffic, both ways,
            `[S]`.
        rounds: Messages that the model owner waited for, `[S]`.
        passes: Of the choice, `[S]`.
        wall: Seconds, with processes, certificates, keys and compiling, `[S]`.
        working: Seconds of these in steps, `[S]`.
        choosing: Seconds of these in the choice, `[S]`.
        same: Share of the rows that the clear choice has too, `[S]`.
    """

    source: str
    megabytes: np.ndarray
    choice_megabytes: np.ndarray
    rounds: np.ndarray
    passes: np.ndarray
    wall: np.ndarray
    working: np.ndarray
    choosing: np.ndarray
    same: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Purchases:
    """Purchases from a real pool on one engine, for each of S seeds.

    Attributes:
        n: Samples offered, `[S]`.
        refused: Samples beyond the bounds, that could not be offered, `[S]`.
        same: Share of the rows that the clear choice has too, `[S]`.
        accuracy: After the secure choice, the clear one, and a random one, `[S, 3]`.
        tested: Test samples, `[S]`.
    """

    n: np.ndarray
    refused: np.ndarray
    same: np.ndarray
    accuracy: np.ndarray
    tested: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureCosts:
    """Counts and real runs.

    Attributes:
        seeds: Of the real runs, `[S]`.
        rows: That these chose from.
        keep: How many they chose.
        claims: Counts beside the paper's figures, by tokens of a text.
        selections: Counts by tokens of a text, target, way and engine.
        runs: Real runs by engine; without engines that are not installed.
        purchases: By engine and data set; without data sets that are not prepared.
    """

    seeds: np.ndarray
    rows: int
    keep: int
    claims: Mapping[int, Mapping[str, float]]
    selections: Mapping[int, Mapping[str, Mapping[str, Mapping[str, Counted]]]]
    runs: Mapping[str, Choices]
    purchases: Mapping[str, Mapping[str, Purchases]]


def run_secure(
    folder: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = (0,),
    full: bool = False,
    progress: bool = False,
) -> SecureCosts:
    """Count the cost of selections, and make the choice of a linear probe in secret.

    Args:
        folder: Where each real run's figures are kept, and read if they are there.
        seeds: Each repeats the runs, with features, a probe and pivots of its own.
        full: Encode as many texts as there are rows.
        progress: Show bars.

    Raises:
        ValueError: If there is no seed.
        RuntimeError: If a run fails.
    """
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    runs: dict[str, Choices] = {}
    purchases: dict[str, dict[str, Purchases]] = {}
    sources = prepared() if any(map(installed, RUNS)) else {}
    for engine in filter(installed, RUNS):
        choices = []
        for seed in seeds:
            settings = {
                "engine": engine,
                "rows": ROWS,
                "keep": KEEP,
                "full": full,
                "seed": int(seed),
                "fields": [field.name for field in dataclasses.fields(Choices)],
            }
            path = Path(folder) / f"{engine}-{'full-' if full else ''}{seed}.npz"
            options = {"full": full, "seed": int(seed), "progress": progress}
            choices.append(
                remembered(
                    path,
                    settings,
                    lambda engine=engine, options=options: choose(
                        engine, ROWS, KEEP, **options
                    ),
                )
            )
            _log.info(
                "%s: %d of %d choices are there", engine, len(choices), len(seeds)
            )
        origins = dict.fromkeys(run.pop("source") for run in choices)
        runs[engine] = Choices(source="; ".join(origins), **stacked(choices))
        purchases[engine] = {
            name: Purchases(
                **stacked(
                    [
                        remembered(
                            Path(folder) / f"{engine}-{name}-{seed}.npz",
                            {"engine": engine, "seed": int(seed), "most": MOST},
                            lambda engine=engine, source=source, seed=int(seed): (
                                purchase(engine, source(), seed)
                            ),
                        )
                        for seed in seeds
                    ]
                )
            )
            for name, source in sources.items()
        }
    return SecureCosts(
        seeds=np.asarray(seeds),
        rows=ROWS,
        keep=KEEP,
        claims={length: claimed(length) for length in LENGTHS},
        selections={length: count_all(length) for length in LENGTHS},
        runs=runs,
        purchases=purchases,
    )


def count_all(length: int) -> dict[str, dict[str, dict[str, Counted]]]:
    """Return counts by target, way and engine, for texts of `length` tokens."""
    return {
        target: {
            name: {engine: counted(manifests(way, sizes), engine) for engine in ENGINES}
            for name, way in known.items()
        }
        for target, (sizes, known) in selections(length).items()
    }
