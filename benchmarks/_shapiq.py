"""Errors of the estimators of shapiq, as a line of JSON: called by `errors.py`.

Run by an interpreter that has shapiq, so that nothing of jaxsel is imported.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from typing import Any

import numpy as np

NAMES = (
    "KernelSHAP",
    "UnbiasedKernelSHAP",
    "LeverageSHAP",
    "kADDSHAP",
    "RegressionMSR",
    "ProxySHAP",
    "SVARM",
    "StratifiedSVARM",
    "PermutationSamplingSV",
    "StratifiedSamplingSV",
    "OwenSamplingSV",
)


def main(path: str, n: int, budget: int, seeds: int) -> None:
    """Print the mean squared errors of those estimators that there are."""
    found = importlib.import_module("shapiq.approximator")

    file = np.load(path)
    table, exact = file["table"], file["exact"]
    powers = 1 << np.arange(n)
    none = table[0]

    def game(coalitions: Any) -> np.ndarray:
        return table[np.asarray(coalitions, bool) @ powers] - none

    errors: dict[str, float] = {}
    for name in NAMES:
        make = getattr(found, name, None)
        if make is None:
            continue
        squares: list[float] = []
        for seed in range(seeds):
            try:
                result = _make(make, n, seed).approximate(budget + 2, game)
                values = np.array([result[(i,)] for i in range(n)])
            except Exception as error:
                print(f"{name}: {error!r}"[:200], file=sys.stderr)
                break
            squares.append(float(np.mean((values - exact) ** 2)))
        if len(squares) == seeds:
            errors[f"shapiq {name}"] = float(np.mean(squares))
    print(json.dumps(errors))


def _make(make: Any, n: int, seed: int) -> Any:
    for options in ({"index": "SV", "max_order": 1}, {"index": "SV"}, {}):
        try:
            return make(n=n, random_state=seed, **options)
        except (TypeError, ValueError):
            continue
    return make(n=n, random_state=seed)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], *map(int, sys.argv[2:5]))
