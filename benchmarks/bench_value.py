"""Values without labels or models: `python -m benchmarks.bench_value`."""

from __future__ import annotations

import functools

import numpy as np

import jaxsel

from . import _value
from ._case import Case, Contender, at_most
from ._harness import main


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    shrink = 50 if quick else 1
    return [_max_shapley(10_000 // shrink, 50)]


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


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_value", cases))
