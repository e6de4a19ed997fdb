"""First calls, and one worker against two: `python -m benchmarks.bench_jobs`.

A first call runs in a process of its own, which measures it: its time is that of the
call alone, compilation included and imports left out.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import _workers
from ._case import Case, Contender, at_most, faster
from ._fresh import first_call
from ._harness import main
from ._trees import Trees
from ._workers import Spread

Facts = Mapping[str, float]

# CPU seconds of the call alone, which must be met; half of it is the goal.
LIMITS = {
    "tmc_shapley": 5.0,
    "tmc_shapley, 3 classes": 5.0,
    "omp": 4.0,
    "knn_shapley": 2.5,
}
_SIZES = {
    "tmc_shapley": "logistic regression, n = 200, d = 10, 64 permutations",
    "tmc_shapley, 3 classes": "logistic regression, n = 200, d = 10, 64 permutations",
    "omp": "2,000 × 64, k = 50",
    "knn_shapley": "2,000 × 100 validation points, d = 32",
}
# Sums of float32 values, and gradients of an exact fit.
_ERROR = 1e-3
# By default permutations end where the utility is within .01 of that of all points.
_TRUNCATED = 0.02


def cases(*, quick: bool = False) -> list[Case[Any]]:
    """Return the cases, or tiny ones of the same kind."""
    return [
        *(_first(name, limit, quick) for name, limit in LIMITS.items()),
        _spread("processes", quick),
        _spread("ray", quick),
        _trees(quick),
    ]


def _first(name: str, limit: float, quick: bool) -> Case[None]:
    def make(inputs: None) -> Callable[[], Facts]:
        del inputs
        return functools.partial(first_call, name, quick=quick)

    def check(inputs: None, facts: Facts) -> Facts:
        del inputs
        return {name: facts[name] for name in ("error", "all_cpu_s")}

    error = _TRUNCATED if name.startswith("tmc") else _ERROR
    seconds = "CPU seconds of the call"
    return Case(
        name=f"first {name}",
        title=f"first call of {name}: {_SIZES[name]}; a process each round",
        inputs=lambda: None,
        tiny=lambda: None,
        work=1,
        unit="call",
        contenders=[
            Contender(
                name="jaxsel",
                make=make,
                check=check,
                limits={"error": error},
                seconds=lambda facts: (facts["call_cpu_s"], facts["call_wall_s"]),
            )
        ],
        targets=[
            at_most("jaxsel", "cpu_s", limit, seconds, "must"),
            at_most("jaxsel", "cpu_s", limit / 2, seconds, "goal"),
        ],
        platforms=("cpu",),
        rounds=1 if quick else 5,
        probed=False,
        threads=None,
    )


def _spread(kind: str, quick: bool) -> Case[Spread]:
    def inputs() -> Spread:
        if kind == "ray":
            importlib.import_module("ray")
        return _workers.Spread(kind, quick=quick)

    def on(number: int) -> Callable[[Spread], Callable[[], Any]]:
        return lambda spread: functools.partial(spread.run, number)

    def check(spread: Spread, values: Any) -> Facts:
        return {"differ": float((values != spread.expected).sum())}

    return Case(
        name="two workers of Ray" if kind == "ray" else "two processes",
        title=f"{'Ray' if kind == 'ray' else 'processes'}, two workers against one: "
        "TMC-Shapley, logistic regression, n = 200, d = 10, 2,560 permutations; a core "
        "and a thread each",
        inputs=inputs,
        tiny=inputs,
        work=1,
        unit="run",
        contenders=[
            Contender(
                name=name, make=on(n), check=check, limits={"differ": 0}, peer=n == 1
            )
            for name, n in (("two workers", 2), ("one worker", 1))
        ],
        targets=[faster("two workers", "one worker", "must", 1.8)],
        platforms=("cpu",),
        rounds=2 if quick else 5,
        probed=False,
        threads=None,
        clock="wall_s",
    )


def _trees(quick: bool) -> Case[Trees]:
    def check(trees: Trees, values: np.ndarray) -> Facts:
        # What a permutation adds up to is the utility of all points, less that of none.
        return {"largest value": float(np.abs(values).max())}

    pairs = (
        ("jaxsel, two processes", lambda trees: trees.ours(trees.pool)),
        ("jaxsel, one process", lambda trees: trees.ours()),
        ("pyDVL, two processes", lambda trees: trees.pydvl(2)),
        ("pyDVL, one process", lambda trees: trees.pydvl(1)),
    )
    return Case(
        name="trees",
        title="trees: TMC-Shapley, scikit-learn's decision tree of depth 5, n = 200, "
        "d = 10, 16 permutations",
        inputs=lambda: Trees(quick=quick),
        tiny=lambda: Trees(quick=True),
        work=(4 * 20 if quick else 16 * 200),
        unit="marginal",
        contenders=[
            Contender(
                name=name,
                make=make,
                check=check,
                limits={"largest value": 1.0},
                peer=name.startswith("pyDVL"),
            )
            for name, make in pairs
        ],
        targets=[
            faster("jaxsel, two processes", "pyDVL, two processes", "must", 1.0),
            faster("jaxsel, two processes", "pyDVL, two processes", "goal", 1.5),
        ],
        platforms=("cpu",),
        rounds=2 if quick else 5,
        probed=False,
        threads=None,
        clock="wall_s",
    )


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_jobs", cases))
