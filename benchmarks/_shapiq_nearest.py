"""Compute KNN values with the explainers of shapiq: a script that `nearest.py` runs.

It runs under an interpreter that has shapiq, and imports nothing of jaxsel. An
explainer takes one validation point; the value of a training point is the mean over
all of them. It prints a line of JSON, and keeps the values in a file.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROUNDS = 3


def main(path: str, out: str) -> None:
    """Print the CPU time of each value, the least of three rounds, and keep the values.

    Args:
        path: A file with `x`, `y`, `x_val`, `y_val`, `k`, `radius`, `wide`, `bits`, and
            `few`, the training points of the weighted value, which is quadratic in it.
        out: File to write the values to.
    """
    shapiq = importlib.import_module("shapiq")
    explainers = importlib.import_module("shapiq.explainer.nn")
    neighbors: Any = importlib.import_module("sklearn.neighbors")
    file = np.load(path)
    x, y, x_val, y_val = (file[name] for name in ("x", "y", "x_val", "y_val"))
    k, few, bits = int(file["k"]), int(file["few"]), int(file["bits"])

    def explained(make: Callable[[int], Any]) -> list[Any]:
        by_class = {int(c): make(int(c)) for c in np.unique(y_val)}
        return [by_class[int(c)].explain(q) for q, c in zip(x_val, y_val, strict=True)]

    equal = neighbors.KNeighborsClassifier(k, algorithm="brute").fit(x, y)
    near, wide = (
        neighbors.RadiusNeighborsClassifier(float(file[name])).fit(x, y)
        for name in ("radius", "wide")
    )
    far = neighbors.KNeighborsClassifier(k, weights="distance").fit(x[:few], y[:few])
    calls: dict[str, Callable[[int], Any]] = {
        "knn": lambda c: explainers.KNNExplainer(equal, class_index=c),
        "threshold": lambda c: explainers.ThresholdNNExplainer(near, class_index=c),
        "wide": lambda c: explainers.ThresholdNNExplainer(wide, class_index=c),
        "weighted": lambda c: explainers.WeightedKNNExplainer(
            far, class_index=c, n_bits=bits
        ),
    }
    values: dict[str, np.ndarray] = {}
    seconds: dict[str, float] = {}
    for name, make in calls.items():
        rounds: list[float] = []
        for _ in range(ROUNDS if name != "weighted" else 1):
            start = time.process_time()
            rows = explained(make)
            rounds.append(time.process_time() - start)
            # What follows only reads the results, and is not timed.
            n = few if name == "weighted" else len(x)
            values[name] = np.mean([[r[(i,)] for i in range(n)] for r in rows], axis=0)
        seconds[name] = min(rounds)
    np.savez(out, **values)  # pyright: ignore[reportArgumentType]
    print(json.dumps({"version": shapiq.__version__, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:3])
