"""Attributions of networks, and the trainings that judge them.

`python -m benchmarks.bench_attribute`: "halves" and "metagradient", set-up A of
`benchmarks.attribute`, run everywhere. "cnn" and "ekfac" are of sizes of an
accelerator: `--only cnn` on a CPU takes some minutes, "ekfac" takes hours there, and
`python -m benchmarks.factors` measures smaller sizes of it. How well attributions
predict is what `benchmarks.attribute` and `benchmarks.networks` measure.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxsel import attribute, tasks

from . import _trainings, factors
from ._case import Case, Contender, Target, at_most, faster
from ._harness import main
from ._networks import SETUPS
from ._setups import DROPPED, TARGETS, Data, digits

SUBSETS, LAYERS, FEW = 1000, 6, 3


class Encoded(NamedTuple):
    """Weights of an encoder, and token vectors with labels to train on and to predict.

    Attributes:
        weights: As of `factors.draw`.
        samples: Training samples and labels, targets and labels.
    """

    weights: dict[str, Any]
    samples: tuple[np.ndarray, ...]


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    sizes = (1, 32, 60) if quick else (LAYERS, 50_000, 1000)
    small = 100 if quick else None
    return [
        _halves(10 if quick else 100, small),
        _metagradient(small),
        _cnn(20 if quick else SUBSETS, 60 if quick else None),
        _ekfac(*sizes),
    ]


def _set_up(n: int | None) -> Data:
    return Data(*(part[:n] for part in digits()))


def _halves(count: int, n: int | None) -> Case[Data]:
    few = count // 10

    def check(data: Data, result: Any) -> Mapping[str, float]:
        plans = _trainings.plans_of_halves(data, few)
        right = _trainings.loop_of_runs(data, plans)()
        return {"error": float(np.abs(np.asarray(result)[:few] - right).max())}

    def peer(name: str, run: Any, runs: Any) -> Contender:
        def make(data: Data) -> Any:
            return run(data, runs(data, few))

        # Hundreds of steps with rectifiers drift apart where sums round otherwise.
        limits = {"error": 0.1}
        return Contender[Data](
            name=name,
            make=make,
            check=check,
            limits=limits,
            share=few / count,
            peer=True,
            note=f"{few} of the trainings",
        )

    return Case(
        name="halves",
        title=f"halves: {count} trainings of a network 64-32-10 on halves of the "
        "digits, 30 epochs in batches of 50, on one core",
        inputs=functools.partial(_set_up, n),
        tiny=functools.partial(_set_up, 60),
        work=count,
        unit="training",
        contenders=[
            Contender[Data](
                name="retrain_subsets",
                make=lambda data: _trainings.one_program(data, count),
                check=check,
                limits={"error": 0.1},
            ),
            peer("loop of steps", _trainings.loop_of_steps, _trainings.draws_of_halves),
            peer("torch loop", _trainings.loop_in_torch, _trainings.plans_of_halves),
        ],
        targets=[
            faster("retrain_subsets", "torch loop", "must", 20),
            faster("retrain_subsets", "loop of steps", "must", 4),
        ],
        rounds=15,
    )


def _metagradient(n: int | None) -> Case[Data]:
    """Compare derivatives for all targets with as many calls of a compiled training."""
    recipe, few = _trainings.RECIPE, TARGETS // 10

    def make(data: Data) -> Any:
        key = jax.random.key(0)
        return lambda: attribute.metagradient(recipe, *data, key=key, reduce=None)

    def check(data: Data, result: Any) -> Mapping[str, float]:
        key = jax.random.key(0)
        runs = tasks.retrain_subsets(
            *(recipe, *data),
            key=key,
            subsets=50,
            share=1 - DROPPED,
            seeds=1,
            same_seed=True,
        )
        return {"1 - LDS": 1 - float(tasks.lds(result, runs, key=key).mean)}

    def trainings(data: Data) -> Any:
        return _trainings.loop_of_runs(data, _trainings.whole_plans(data, few))

    def loss(data: Data, result: Any) -> Mapping[str, float]:
        return {"loss": -float(np.mean(result))}

    return Case(
        name="metagradient",
        title=f"metagradient: derivatives for {TARGETS} targets, a network 64-32-10 on "
        "1,000 digits, 30 epochs in batches of 50, beside a training each",
        inputs=functools.partial(_set_up, n),
        tiny=functools.partial(_set_up, 60),
        work=TARGETS,
        unit="training",
        contenders=[
            Contender[Data](
                name="metagradient", make=make, check=check, limits={"1 - LDS": 0.8}
            ),
            Contender[Data](
                name="trainings",
                make=trainings,
                check=loss,
                limits={"loss": 1.0},
                share=few / TARGETS,
                peer=True,
                note=f"{few} calls of a compiled training",
            ),
        ],
        targets=[
            # At most 1.2 trainings for each target.
            faster("metagradient", "trainings", "must", 1 / 1.2),
            faster("metagradient", "trainings", "goal", 1),
        ],
        rounds=5,
    )


def _digits(n: int | None) -> Data:
    data = SETUPS["cnn"].load()
    if n is None:
        return data
    return Data(data.x[:n], data.y[:n], data.x_val[:5], data.y_val[:5])


def _cnn(subsets: int, n: int | None) -> Case[Data]:
    recipe = SETUPS["cnn"].recipe

    def make(data: Data) -> Any:
        key = jax.random.key(0)

        def call() -> tuple[Any, tasks.SubsetRuns]:
            values = attribute.metagradient(recipe, *data, key=key, reduce=None)
            runs = tasks.retrain_subsets(
                *(recipe, *data),
                key=key,
                subsets=subsets,
                share=0.95,
                seeds=1,
                same_seed=True,
            )
            return values, runs

        return call

    def check(data: Data, result: Any) -> Mapping[str, float]:
        score = tasks.lds(*result, key=jax.random.key(0))
        return {"1 - LDS": 1 - float(score.mean)}

    return Case(
        name="cnn",
        title=f"cnn: metagradients of all targets, and {subsets:,} trainings without "
        "5 % of the digits, a CNN of one layer",
        inputs=functools.partial(_digits, n),
        tiny=functools.partial(_digits, 60),
        work=subsets,
        unit="training",
        contenders=[
            Contender[Data](
                name="both", make=make, check=check, limits={"1 - LDS": 0.9}
            )
        ],
        targets=[at_most("both", "cpu_s", 60, "seconds", "must")],
        platforms=["gpu", "tpu"],
        elsewhere=True,
        rounds=3,
        probed=False,
    )


def _draw(layers: int, n: int, t: int) -> Encoded:
    return Encoded(factors.draw(layers), factors.draw_samples(n, t))


def _ekfac(layers: int, n: int, t: int) -> Case[Encoded]:
    def agreement(task: Encoded, result: Any) -> Mapping[str, float]:
        x, y, x_val, y_val = task.samples
        few = factors.ours(task.weights, (x, y, x_val[:FEW], y_val[:FEW]))()
        ranks = [rows.argsort(1).argsort(1) for rows in (few, np.asarray(result)[:FEW])]
        alike = [np.corrcoef(*rows)[0, 1] for rows in zip(*ranks, strict=True)]
        return {"1 - agreement": 1 - float(np.mean(alike))}

    def contender(name: str, run: Any, limit: float, *, peer: bool) -> Contender:
        return Contender[Encoded](
            name=name,
            make=lambda task: run(task.weights, task.samples),
            check=agreement,
            limits={"1 - agreement": limit},
            peer=peer,
        )

    targets: list[Target] = [
        faster("EK-FAC", "kronfluence", "must", 1.5),
        faster("EK-FAC", "kronfluence", "goal", 3),
    ]
    return Case(
        name="ekfac",
        title=f"ekfac: factors and scores, {layers} layers of MiniLM's shape, "
        f"{n:,} samples, {t:,} targets",
        inputs=functools.partial(_draw, layers, n, t),
        tiny=functools.partial(_draw, 1, 8, 60),
        work=n * t,
        unit="pair",
        contenders=[
            contender("EK-FAC", factors.ours, 0.01, peer=False),
            # It draws labels from the network, and so other factors.
            contender("kronfluence", factors.theirs, 0.2, peer=True),
        ],
        targets=targets,
        platforms=["gpu", "tpu"],
        elsewhere=True,
        rounds=1,
        probed=False,
    )


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_attribute", cases))
