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

# Of pairs of coalitions and their complements where it can, which is never worse here.
ESTIMATORS: dict[str, dict[str, Any]] = {
    "KernelSHAP": {"pairing_trick": True},
    "UnbiasedKernelSHAP": {"pairing_trick": True},
    "kADDSHAP": {"max_order": 2, "pairing_trick": True},
    "SVARM": {"pairing_trick": True},
    "PermutationSamplingSV": {},
    "StratifiedSamplingSV": {},
    "OwenSamplingSV": {},
    "RegressionMSR": {},
}


def main(path: str, n: int, budget: int, seeds: int) -> None:
    """Print the mean squared errors of those estimators that there are."""
    found = importlib.import_module("shapiq.approximator")

    file = np.load(path)
    table, exact = file["table"], file["exact"]
    powers = 1 << np.arange(n)
    none = table[0]

    def game(coalitions: Any) -> np.ndarray:
        return table[np.atleast_2d(np.asarray(coalitions, bool)) @ powers] - none

    errors: dict[str, float] = {}
    for name, options in ESTIMATORS.items():
        make: Any = getattr(found, name, getattr(found.regression, name, None))
        squares: list[float] = []
        if make is None:  # of another version
            continue
        for seed in range(seeds):
            try:
                estimator = make(n=n, random_state=seed, **options)
                result = estimator.approximate(budget + 2, game)
                values = np.array([result[(i,)] for i in range(n)])
            except Exception as error:
                print(f"{name}: {error!r}"[:200], file=sys.stderr)
                break
            squares.append(float(np.mean((values - exact) ** 2)))
        if squares and len(squares) == seeds:
            errors[f"shapiq {name}"] = float(np.mean(squares))
    print(json.dumps(errors))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], *map(int, sys.argv[2:5]))
