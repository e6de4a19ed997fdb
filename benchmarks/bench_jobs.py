"""First calls, and one worker against two: `python -m benchmarks.bench_jobs`.

Figures are medians over five fresh processes, or over five runs on one worker and on
two in turn. What the harness times is no figure: it finds these again in a cache.
"""

from __future__ import annotations

import functools
import importlib
import statistics
from collections.abc import Callable, Mapping, Sequence

from . import _workers
from ._case import Case, Contender, Target, at_most
from ._fresh import first_call
from ._harness import main

Facts = Mapping[str, float]

# Seconds of the call alone, which must be met; half of it is the goal.
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


def cases(*, quick: bool = False) -> list[Case[None]]:
    """Return the cases, or tiny ones of the same kind."""
    return [
        *(_first(name, limit, quick) for name, limit in LIMITS.items()),
        _spread("processes", quick),
        _spread("ray", quick),
    ]


def _first(name: str, limit: float, quick: bool) -> Case[None]:
    rounds = 1 if quick else 5

    def make(inputs: None) -> Callable[[], Sequence[Facts]]:
        del inputs
        return functools.cache(  # what it finds is not found again to be timed
            lambda: [first_call(name, quick=quick) for _ in range(rounds)]
        )

    def check(inputs: None, found: Sequence[Facts]) -> Facts:
        del inputs
        middle = {
            key: statistics.median(facts[key] for facts in found) for key in found[0]
        }
        return middle | {"error": max(facts["error"] for facts in found)}

    return Case(
        name=f"first {name}",
        title=f"first call of {name}: {_SIZES[name]}; medians of {rounds} processes",
        inputs=lambda: None,
        tiny=lambda: None,
        work=rounds,
        unit="process",
        contenders=[
            Contender(name="jaxsel", make=make, check=check, limits={"error": _ERROR})
        ],
        targets=[
            at_most("jaxsel", "call_cpu_s", limit, "CPU seconds of the call", "must"),
            at_most(
                "jaxsel", "call_cpu_s", limit / 2, "CPU seconds of the call", "goal"
            ),
        ],
        platforms=("cpu",),
        rounds=1,
        probed=False,
    )


def _spread(kind: str, quick: bool) -> Case[None]:
    rounds = 2 if quick else 5
    name = "two workers of Ray" if kind == "ray" else "two processes"

    def make(inputs: None) -> Callable[[], Facts]:
        del inputs
        if kind == "ray":
            importlib.import_module("ray")
        return functools.cache(lambda: _workers.compared(kind, quick=quick))

    return Case(
        name=name,
        title=f"{name} against one: TMC-Shapley, logistic regression, n = 200, d = 10, "
        f"2,560 permutations; one thread each, {rounds} rounds in turn",
        inputs=lambda: None,
        tiny=lambda: None,
        work=rounds,
        unit="round",
        contenders=[
            Contender(
                name="jaxsel",
                make=make,
                check=lambda inputs, found: found,
                limits={"differ": 0.0},
            )
        ],
        targets=[
            Target(
                text="jaxsel: times as fast as one worker ≥ 1.8",
                level="must",
                contender="jaxsel",
                quantity="speedup",
                bound="at least",
                limit=1.8,
            )
        ],
        platforms=("cpu",),
        rounds=1,
        probed=False,
    )


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_jobs", cases))
