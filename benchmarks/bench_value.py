"""Values without labels or models: `python -m benchmarks.bench_value`."""

from __future__ import annotations

import functools

import numpy as np

import jaxsel

from . import _value
from ._case import Case, Contender, at_most
from ._harness import main
from ._value import Embedded, Labelled


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    shrink = 50 if quick else 1
    return [
        _max_shapley(10_000 // shrink, 50),
        _mmd(100_000 // shrink, 1000, 384),
        _wrong_labels(),
    ]


def _max_shapley(queries: int, documents: int) -> Case[np.ndarray]:
    return Case(
        name="max_shapley",
        title=f"max_shapley: {queries:,} queries × {documents} documents",
        inputs=functools.partial(_value.scores, queries, documents),
        tiny=functools.partial(_value.scores, 20, 5),
        work=queries * documents,
        unit="score",
        contenders=[
            Contender(
                name="jaxsel",
                make=lambda table: lambda: jaxsel.max_shapley(table),
                check=_value.shapley_error,
                limits={"error": 1e-6},
            ),
            Contender(
                name="loop",
                make=_value.loop,
                check=_value.shapley_error,
                limits={"error": 1e-12},
                peer=True,
                note="a query at a time, the sort by NumPy",
            ),
        ],
        targets=[
            at_most("jaxsel", "cpu_s", 0.2, "CPU seconds", "must"),
            at_most("jaxsel", "cpu_s", 0.1, "CPU seconds", "goal"),
        ],
        rounds=5,
    )


def _mmd(n: int, m: int, d: int) -> Case[Embedded]:
    return Case(
        name="mmd_values",
        title=f"mmd_values: {n:,} × {d} embeddings against {m:,}",
        inputs=functools.partial(_value.embedded, n, m, d),
        tiny=functools.partial(_value.embedded, 200, 20, 5),
        work=n,
        unit="sample",
        flops=2 * d * (m + 1024),
        contenders=[
            Contender(
                name="gaussian",
                make=lambda task: (
                    lambda: jaxsel.mmd_values(
                        task.x, task.target, bandwidth=task.bandwidth
                    )
                ),
                check=_value.influence_error,
                limits={"error": 0.2},
                note="1,024 samples stand for the data; standard errors, too",
            ),
            Contender(
                name="NumPy",
                make=_value.blockwise,
                check=_value.influence_error,
                limits={"error": 0.2},
                peer=True,
                note="the same by blocks of 500 rows, without standard errors",
            ),
        ],
        targets=[at_most("gaussian", "cpu_s", 5, "CPU seconds", "must")],
        rounds=3,
    )


def _wrong_labels() -> Case[list[Labelled]]:
    return Case(
        name="wrong_labels",
        title=f"a tenth of 1,000 digits with wrong labels, {_value.SEEDS} draws",
        inputs=_value.tenth_wrong,
        tiny=lambda: [_value.digits(0)],
        work=1000 * _value.SEEDS,
        unit="sample",
        contenders=[
            Contender(
                name="mmd_values",
                make=lambda tasks: lambda: [_labelled(task) for task in tasks],
                check=_value.areas,
                limits={"behind": 0.01},
                note="with labels",
            ),
            Contender(
                name="knn_shapley",
                make=lambda tasks: (
                    lambda: [
                        jaxsel.knn_shapley(*task[:4], k=5).values for task in tasks
                    ]
                ),
                check=_value.areas,
                limits={"behind": 0},
                peer=True,
            ),
        ],
        targets=[
            at_most("mmd_values", "behind", 0.01, "AUC behind knn_shapley's", "must")
        ],
        rounds=3,
        probed=False,
    )


def _labelled(task: Labelled) -> np.ndarray:
    values = jaxsel.mmd_values(task.x, task.x_val, y=task.y, y_val=task.y_val)
    return np.asarray(values.values)


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_value", cases))
