"""In-run values beside the training alone: `python -m benchmarks.bench_in_run`.

Set-up A: a network 64-32-10 on 1,000 digits, 600 steps of 50, 40 targets. The peer is
the same training without values, as one program or as a loop over a compiled step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxsel import value

from . import _in_run
from ._case import Case, Contender, Target
from ._harness import main
from ._in_run import ADAM, SGD, Setup

Call = Callable[[], Any]

_setup = functools.lru_cache(maxsize=2)(_in_run.setup)


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    sizes = (100, 8, 2) if quick else (1000, 40, 30)
    task = functools.partial(_setup, *sizes)
    return [
        _beside("one program", _in_run.scanned, task, sizes),
        _beside("loop of steps", _in_run.stepped, task, sizes),
        _adam(task, sizes),
        _drop(functools.partial(_setup, *(sizes if quick else (1000, 200, 30)))),
    ]


def _title(sizes: tuple[int, int, int]) -> str:
    n, targets, epochs = sizes
    return f"64-32-10, {n} digits, {targets} targets, {epochs * n // 50} steps of 50"


def _contender(
    name: str, make: Callable[[Setup], Call], order: int
) -> Contender[Setup]:
    def check(task: Setup, result: Any) -> Mapping[str, float]:
        right = _in_run.explicit(task, order)
        error = np.abs(np.asarray(result[2].values).T - right).max()
        return {"error": float(error / np.abs(right).max())}

    # 600 steps of float32 at a high rate drift apart: of the largest value.
    return Contender[Setup](name=name, make=make, check=check, limits={"error": 0.02})


def _alone(make: Callable[[Setup], Call]) -> Contender[Setup]:
    def check(task: Setup, result: Any) -> Mapping[str, float]:
        losses = jax.vmap(_in_run.loss, (None, 0))(result[0], task.targets)
        return {"loss": float(losses.mean())}

    return Contender[Setup](
        name="training alone", make=make, check=check, limits={"loss": 2.4}, peer=True
    )


def _at_most(contender: str, level: Any, times: float) -> Target:
    return Target(
        text=f"{contender}: time of the training alone ≥ 1 / {times:g}",
        level=level,
        contender=contender,
        quantity="ratio",
        bound="at least",
        limit=1 / times,
        against="training alone",
    )


def _beside(
    name: str,
    run: Callable[..., Call],
    inputs: Callable[[], Setup],
    sizes: tuple[int, int, int],
) -> Case[Setup]:
    def values(order: int) -> Callable[[Setup], Call]:
        return lambda task: run(task, _in_run.recorded(task, SGD, order))

    contenders = [
        _alone(lambda task: run(task, _in_run.alone(task, SGD))),
        _contender("first order", values(1), 1),
        _contender("second order", values(2), 2),
    ]
    if run is _in_run.scanned:
        contenders.append(
            Contender[Setup](
                name="first order, by forward mode",
                make=lambda task: run(task, _in_run.forward_mode(task, SGD)),
                check=lambda task, result: {"none": 0.0},
                limits={"none": 0.0},
                note="without momentum",
            )
        )
    return Case(
        name=name,
        title=f"{name}: {_title(sizes)}, SGD .1, momentum .9",
        inputs=inputs,
        tiny=functools.partial(_in_run.setup, 50, 2, 1),
        work=sizes[2] * sizes[0] // 50,
        unit="step",
        contenders=contenders,
        targets=[
            _at_most("first order", "must", 2),
            _at_most("first order", "goal", 1.5),
        ],
        rounds=9,
        probed=run is _in_run.scanned,
    )


def _adam(inputs: Callable[[], Setup], sizes: tuple[int, int, int]) -> Case[Setup]:
    def check(task: Setup, result: Any) -> Mapping[str, float]:
        total = np.asarray(result[2].values).sum(0)
        fall = _in_run.loss
        falls = [
            np.asarray(jax.vmap(fall, (None, 0))(params, task.targets))
            for params in (task.params, result[0])
        ]
        missed = np.abs(total - (falls[0] - falls[1])).mean()
        return {"missed": float(missed / np.abs(falls[0] - falls[1]).mean())}

    return Case(
        name="adam",
        title=f"adam: {_title(sizes)}, Adam 1e-3",
        inputs=inputs,
        tiny=functools.partial(_in_run.setup, 50, 2, 1),
        work=sizes[2] * sizes[0] // 50,
        unit="step",
        contenders=[
            _alone(lambda task: _in_run.scanned(task, _in_run.alone(task, ADAM))),
            Contender[Setup](
                name="first order",
                make=lambda task: _in_run.scanned(task, _in_run.recorded(task, ADAM)),
                check=check,
                limits={"missed": 0.5},
            ),
        ],
        rounds=9,
        probed=False,
    )


def _drop(inputs: Callable[[], Setup]) -> Case[Setup]:
    """Agreement with 100 retrainings without 5 % each: an LDS, and no time."""
    subsets = 100

    def contender(name: str, make: Callable[[Setup], Call]) -> Contender[Setup]:
        return Contender[Setup](
            name=name,
            make=make,
            check=lambda task, result: _in_run.agreement(task, result, subsets),
            limits={"LDS": 1.0},
        )

    def recorded(task: Setup, order: int) -> np.ndarray:
        result = _in_run.scanned(task, _in_run.recorded(task, SGD, order))()
        return np.asarray(result[2].values).T

    def nearest(task: Setup) -> np.ndarray:
        (x, y), (x_val, y_val) = task.examples, task.targets
        return value.knn_shapley(x, y, x_val, y_val, k=5, reduce=None).to_numpy()

    return Case(
        name="drop",
        title="drop: Spearman with 100 retrainings without 5 %, mean over targets",
        inputs=inputs,
        tiny=functools.partial(_in_run.setup, 50, 2, 1),
        work=1,
        unit="run",
        contenders=[
            contender("first order", lambda task: lambda: recorded(task, 1)),
            contender("second order", lambda task: lambda: recorded(task, 2)),
            contender(
                "followed",
                lambda task: lambda: _in_run.followed(task).values.to_numpy(),
            ),
            contender("KNN-Shapley", lambda task: lambda: nearest(task)),
        ],
        rounds=0,
        probed=False,
    )


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_in_run", cases))
