"""Values that retrain models against their peers: `python -m benchmarks.bench_retrain`.

A marginal is one coalition's training and test. Peers do a share of the work: pyDVL one
permutation, scikit-learn some of the points.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxsel import value
from jaxsel.models import MLP

from . import _retrain
from ._case import Case, Contender, Target, faster
from ._harness import main
from ._retrain import Task

Call = Callable[[], Any]

_gaussians = functools.lru_cache(maxsize=1)(_retrain.gaussians)
_digits = functools.lru_cache(maxsize=1)(_retrain.digits)
_images = functools.lru_cache(maxsize=1)(_retrain.images)


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    shrink = 10 if quick else 1
    small, large, passes = 200 // shrink, 1000 // shrink, 2560 // shrink
    two, ten = _gaussians, _digits
    slow = 40 if quick else large  # a permutation takes pyDVL minutes
    return [
        _tmc("tmc small", functools.partial(two, small, 10), (small, 10, 2), 640),
        _tmc("tmc large", functools.partial(ten, slow), (slow, 64, 10), 32),
        _steps("g-shapley", functools.partial(two, small, 10), small, passes),
        _loo("loo", functools.partial(two, large, 10), (large, 10, 2)),
        _loo("loo digits", functools.partial(ten, large), (large, 64, 10)),
        _network("mlp cpu", large // 4, 8 if not quick else 2, ("cpu",)),
        _network("mlp", large, 256 // shrink, ("gpu", "tpu")),
    ]


def _instead(classes: int) -> str:
    """Return a note on the data in place of the digits if scikit-learn is missing."""
    if classes < 10 or _retrain.has_digits():
        return ""
    return " (Gaussian, as there is no scikit-learn)"


def _utility(task: Task) -> value.ModelUtility:
    return value.ModelUtility(
        value.LogisticRegression(), task.x, task.y, task.x_val, task.y_val
    )


def _prefixes(task: Task, result: Any) -> dict[str, float]:
    """Compare 30 prefixes with scikit-learn, and the sum of values with the whole."""
    utility = _utility(task)
    accuracies = np.asarray(utility(_retrain.prefix_masks(task)))
    right = _retrain.prefix_accuracies(task)
    ends = utility(np.stack([np.zeros(utility.n, bool), np.ones(utility.n, bool)]))
    return {
        "wrong prefixes": float(np.mean(np.abs(accuracies - right) > 1e-6)),
        "sum": abs(float(result.values.sum()) - float(ends[1] - ends[0])),
    }


def _tmc(
    name: str, inputs: Callable[[], Task], shape: tuple[int, int, int], count: int
) -> Case[Task]:
    n, d, classes = shape

    def ours(task: Task) -> Call:
        utility = _utility(task)
        stop = value.MaxSamples(count)
        key = jax.random.key(0)
        return lambda: value.tmc_shapley(utility, key=key, stop=stop, tolerance=0)

    def spread(task: Task, result: Any) -> Mapping[str, float]:
        return {"largest value": float(np.abs(result).max())}

    small = classes == 2
    return Case(
        name=name,
        title=f"{name}: logistic regression, n = {n}, d = {d}, {classes} classes"
        f"{_instead(classes)}; {count} permutations",
        inputs=inputs,
        tiny=functools.partial(_retrain.gaussians, 20, 3),
        work=n * count,
        unit="marginal",
        contenders=[
            Contender(
                name="jaxsel",
                make=ours,
                check=_prefixes,
                # A prediction in 6,000 may lie within rounding of the border.
                limits={"wrong prefixes": 0.04, "sum": 1e-4},
            ),
            Contender(
                name="pyDVL",
                make=_retrain.pydvl_tmc,
                check=spread,
                limits={"largest value": 1.0},
                share=1 / count,
                peer=True,
                note="with scikit-learn, one permutation",
            ),
        ],
        targets=[
            *([faster("jaxsel", "pyDVL", "must", 450)] if small else []),
            faster("jaxsel", "pyDVL", "goal", 500 if small else 50),
        ],
        rounds=15 if small else 3,  # seconds each, on a host with phases
    )


def _steps(name: str, inputs: Callable[[], Task], n: int, count: int) -> Case[Task]:
    def ours(task: Task) -> Call:
        arrays = task.x, task.y, task.x_val, task.y_val
        stop, key = value.MaxSamples(count), jax.random.key(0)
        learner = value.LogisticRegression()
        return lambda: value.g_shapley(
            learner, *arrays, key=key, stop=stop, learning_rate=0.1
        )

    def check(task: Task, result: Any) -> Mapping[str, float]:
        # Values sum to what a pass gains: of the accuracy, at most 1/2 here.
        total = float(result.values.sum())
        return {"gain": total, "no gain": float(total <= 0.1)}

    return Case(
        name=name,
        title=f"{name}: n = {n}, d = 10; {count:,} permutations",
        inputs=inputs,
        tiny=functools.partial(_retrain.gaussians, 20, 3),
        work=n * count,
        unit="step",
        contenders=[
            Contender(
                name="jaxsel",
                make=ours,
                check=check,
                limits={"gain": 0.5, "no gain": 0.0},
            )
        ],
        targets=[
            Target(
                text="jaxsel: steps a second ≥ 4e6",
                level="goal",
                contender="jaxsel",
                quantity="rate",
                bound="at least",
                limit=4e6,
            )
        ],
        rounds=5,
    )


def _loo(
    name: str, inputs: Callable[[], Task], shape: tuple[int, int, int]
) -> Case[Task]:
    n, d, classes = shape
    count = max(1, n // 20)

    def ours(task: Task) -> Call:
        utility = _utility(task)
        return lambda: value.loo(utility)

    def check(task: Task, result: Any) -> Mapping[str, float]:
        right = _retrain.losses_of_leaving(task, count)
        # scikit-learn stops early: a prediction near the border may differ.
        values = np.asarray(result.values)[:count]
        return {"error": float(np.abs(values - right).max())}

    return Case(
        name=name,
        title=f"{name}: logistic regression, n = {n}, d = {d}, {classes} classes"
        f"{_instead(classes)}",
        inputs=inputs,
        tiny=functools.partial(_retrain.gaussians, 20, 3),
        work=n,
        unit="fit",
        contenders=[
            Contender(name="jaxsel", make=ours, check=check, limits={"error": 0.0051}),
            Contender(
                name="scikit-learn",
                make=functools.partial(_retrain.sklearn_loo, count=count),
                check=lambda task, result: {"largest": float(np.abs(result).max())},
                limits={"largest": 0.1},
                share=count / n,
                peer=True,
                note=f"{count} of the fits",
            ),
        ],
        targets=[faster("jaxsel", "scikit-learn", "goal", 100)],
        rounds=5,
    )


def _network(name: str, n: int, count: int, platforms: tuple[str, ...]) -> Case[Task]:
    def utility(task: Task) -> value.ModelUtility:
        import optax

        learner = value.FlaxLearner(_mlp, optax.adam(1e-3), steps=100, batch_size=32)
        return value.ModelUtility(learner, task.x, task.y, task.x_val, task.y_val)

    def masks(task: Task) -> np.ndarray:
        return np.random.default_rng(1).random((count, len(task.y))) < 0.5

    def together(task: Task) -> Call:
        evaluate, subsets, key = utility(task), masks(task), jax.random.key(0)
        return lambda: evaluate(subsets, key)

    def apart(task: Task) -> Call:
        evaluate, subsets, key = utility(task), masks(task), jax.random.key(0)
        return lambda: np.concatenate([evaluate(mask[None], key) for mask in subsets])

    def check(task: Task, result: Any) -> Mapping[str, float]:
        return {"worst": 1 - float(np.min(result))}

    return Case(
        name=name,
        title=f"{name}: 784-64-10, {count} coalitions of {n} points, 100 steps of 32",
        inputs=functools.partial(_images, n),
        tiny=functools.partial(_retrain.images, 40),
        work=count,
        unit="fit",
        contenders=[
            Contender(
                name="vmapped", make=together, check=check, limits={"worst": 0.8}
            ),
            Contender(
                name="a loop",
                make=apart,
                check=check,
                limits={"worst": 0.8},
                peer=True,
                note="one coalition after the other",
            ),
        ],
        platforms=platforms,
        rounds=5,
    )


def _mlp(rngs: Any) -> MLP:
    return MLP(784, 64, 10, rngs=rngs)


if __name__ == "__main__":
    alike = ("loo",)
    raise SystemExit(main("benchmarks.bench_retrain", cases, alike=alike))
