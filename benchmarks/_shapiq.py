"""Measure estimators of shapiq on a game: a script that `errors.py` runs.

It runs under an interpreter that has shapiq, and imports nothing of jaxsel. It prints
a line of JSON with the version of shapiq, the squared errors of each estimator, one a
seed, and its median CPU time.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from typing import Any, NamedTuple

import numpy as np


class Setting(NamedTuple):
    """An estimator of shapiq with its options.

    Attributes:
        name: The class in `shapiq.approximator`.
        options: Its keyword arguments, besides `n` and `random_state`.
        search: Whether shapiq's own grid search chooses the boosted trees. It takes
            seconds, so these settings get fewer seeds.
    """

    name: str
    options: dict[str, Any]
    search: bool = False


_VALUES = {"index": "SV", "max_order": 1}
_PAIRS = {"pairing_trick": True}
_ADJUSTED = _VALUES | {"adjustment": True}
_MSR = {"index": "SV"}
_XGBOOST, _LIGHTGBM = {"proxy_model": "xgboost"}, {"proxy_model": "lightgbm"}

# Pairs of a coalition and its complement wherever there is a choice. kADDSHAP of order
# 2 is left out: with such pairs it equals KernelSHAP and PolySHAP of order 2. ShaplEIG
# is left out because it needs PyTorch.
SETTINGS: dict[str, Setting] = {
    "RegressionMSR": Setting("RegressionMSR", _MSR | _XGBOOST),
    "RegressionMSR, 5 folds": Setting(
        "RegressionMSR", _MSR | _XGBOOST | {"k_folds": 5}
    ),
    "RegressionMSR, LightGBM": Setting("RegressionMSR", _MSR | _LIGHTGBM),
    "RegressionMSR, linear": Setting("RegressionMSR", _MSR | {"proxy_model": "linear"}),
    "RegressionMSR, grid search": Setting(
        "RegressionMSR", _MSR | _XGBOOST, search=True
    ),
    "ProxySHAP": Setting("ProxySHAP", _ADJUSTED | _XGBOOST),
    "ProxySHAP, 5 folds": Setting("ProxySHAP", _ADJUSTED | _XGBOOST | {"k_folds": 5}),
    "ProxySHAP, grid search": Setting("ProxySHAP", _ADJUSTED | _XGBOOST, search=True),
    "ProxySHAP, unadjusted": Setting("ProxySHAP", _VALUES | _XGBOOST),
    "ProxySPEX": Setting("ProxySPEX", _VALUES | _LIGHTGBM),
    "OddSHAP": Setting("OddSHAP", {}),
    "LeverageSHAP": Setting("LeverageSHAP", {}),
    "KernelSHAP": Setting("KernelSHAP", _PAIRS),
    "PolySHAP, order 3": Setting("PolySHAP", _PAIRS | {"max_order": 3}),
    "UnbiasedKernelSHAP": Setting("UnbiasedKernelSHAP", _PAIRS),
    "SVARM": Setting("SVARM", _PAIRS),
    "PermutationSamplingSV": Setting("PermutationSamplingSV", {}),
    "StratifiedSamplingSV": Setting("StratifiedSamplingSV", {}),
    "OwenSamplingSV": Setting("OwenSamplingSV", {}),
}


def main(path: str, n: int, budget: int, seeds: int, searched: int) -> None:
    """Print the squared errors and the CPU time of every estimator.

    Raises:
        RuntimeError: If an estimator asks for more utilities than `budget`, those of no
            players and of all not counted.
    """
    shapiq = importlib.import_module("shapiq")
    estimators = importlib.import_module("shapiq.approximator")
    file = np.load(path)
    table, exact = file["table"], file["exact"]
    powers = 1 << np.arange(n)
    asked: list[np.ndarray] = []

    def game(coalitions: Any) -> np.ndarray:
        rows = np.atleast_2d(np.asarray(coalitions, bool)) @ powers
        asked.append(rows)
        return table[rows] - table[0]

    runs: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        squares: list[float] = []
        seconds: list[float] = []
        for seed in range(min(seeds, searched) if setting.search else seeds):
            asked.clear()
            start = time.process_time()
            estimator = _make(estimators, setting, n, seed)
            result = estimator.approximate(budget + 2, game)
            seconds.append(time.process_time() - start)
            distinct = len(np.unique(np.concatenate(asked)))
            if distinct > budget + 2:
                raise RuntimeError(f"{name} took {distinct} utilities of {budget + 2}")
            values = np.array([result[(i,)] for i in range(n)])
            squares.append(float(np.mean((values - exact) ** 2)))
        if squares:
            median = float(np.median(seconds))
            runs[f"shapiq {name}"] = {"squares": squares, "seconds": median}
    print(json.dumps({"version": shapiq.__version__, "runs": runs}))


def _make(estimators: Any, setting: Setting, n: int, seed: int) -> Any:
    """Return an estimator, its boosted proxy silent and on one thread."""
    options = dict(setting.options)
    if options.get("proxy_model") in ("xgboost", "lightgbm"):
        models = importlib.import_module("shapiq.approximator.proxy._models")
        proxy = models._select_base_proxy_via_string(options["proxy_model"], seed)
        silent = {"xgboost": {"verbosity": 0}, "lightgbm": {"verbose": -1}}
        proxy.set_params(n_jobs=1, **silent[options["proxy_model"]])
        options["proxy_model"] = (
            models._wrap_in_default_hpo(proxy) if setting.search else proxy
        )
    return getattr(estimators, setting.name)(n=n, random_state=seed, **options)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], *map(int, sys.argv[2:6]))
