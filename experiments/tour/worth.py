"""Values of samples: wrong labels found by each, and the time it takes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments._kit.scenes.samples import digits
from experiments._kit.scenes.valuations import (
    KNN,
    Samples,
    figure_of,
    knn_methods,
    retrained_methods,
)
from experiments._kit.words import finding, spread
from jaxsel import value
from jaxsel.report import Chapter, Table
from jaxsel.tasks import Curves, noisy_labels

_TRAINED = ("TMC-Shapley", "LOO", "Data-OOB")
_N, _VALIDATION, _SHARE = 300, 200, 0.1
_SAMPLES = Samples(permutations=256)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Worth:
    """Detection curves of the values, and the time each method took.

    Attributes:
        curves: Share of the wrong labels found, by method.
        seconds: Time of the last call of each method, which is compiled already if
            there were others.
    """

    curves: Curves
    seconds: dict[str, float]


def run_worth(seeds: int = 3, *, progress: bool = False) -> Worth:
    """Find wrong labels among digits, by values with and without training models."""
    data = digits()
    seconds: dict[str, float] = {}

    def timed(name: str, method: Callable[..., Any]) -> Callable[..., np.ndarray]:
        def call(x: Any, y: Any, x_val: Any, y_val: Any, key: jax.Array) -> np.ndarray:
            start = time.perf_counter()
            result = method(x, y, x_val, y_val, key)
            values = np.asarray(getattr(result, "values", result))
            seconds[name] = time.perf_counter() - start
            return values

        return call

    methods = knn_methods() | retrained_methods(
        value.NearestCentroid(), _SAMPLES, only=_TRAINED
    )
    curves = noisy_labels(
        data.x,
        data.y,
        {name: timed(name, method) for name, method in methods.items()},
        n=_N,
        n_val=_VALIDATION,
        rate=_SHARE,
        seeds=seeds,
        key=jax.random.key(0),
        progress=progress,
    )
    return Worth(curves=curves, seconds=seconds)


def worth_chapter(result: Worth) -> Chapter:
    """Return the chapter that compares the values."""
    curves = result.curves
    rows = [
        (
            name,
            spread(summary["auc"]),
            spread(summary["found_at_bad"]),
            result.seconds.get(name),
        )
        for name, summary in curves.summary.items()
    ]
    shown = (KNN[0], KNN[2], *_TRAINED, "Random")
    blocks = (
        f"A tenth of {_N} digits have a wrong label. Values from nearest neighbours "
        "have a closed form; the others train a nearest-centroid classifier thousands "
        "of times (`jaxsel.value`). Inspecting the lowest values first, who finds the "
        "wrong labels, and what does that cost? `make repro-values` compares more "
        "values on more tasks.",
        Table(
            columns=("Values", "AUC", "Found inspecting a tenth", "Seconds"),
            rows=rows,
            formats=("", ".3f", ".0%", ".3f"),
            caption="Wrong labels found, mean ± standard deviation over "
            f"{curves.seeds} seeds; seconds of one call.",
        ),
        figure_of(curves, shown, "Wrong labels among digits"),
    )
    data = {"summary": curves.summary, "seconds": result.seconds}
    auc = {name: summary["auc"] for name, summary in curves.summary.items()}
    best = max(_TRAINED, key=lambda name: auc[name].mean())
    title = finding(
        f"Values of {KNN[0]}",
        auc[KNN[0]],
        f"those of {best} (the best that train models)",
        auc[best],
        "AUC of finding wrong labels",
        ".3f",
    )
    return Chapter(title=title, blocks=blocks, data=data)
