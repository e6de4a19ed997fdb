"""Tables in raw units beside the optimum: `python -m benchmarks.bench_raw`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import _raw_labels, _raw_learners
from ._case import Case, Contender, Target, at_most
from ._harness import main
from ._raw_learners import Table

_OFF = 0.02  # accuracy


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    names = _raw_learners.NAMES[:2] if quick else _raw_learners.NAMES
    first = _leaving("wine", 119) if quick else _leaving("breast cancer", 380)
    tables = ("wine",) if quick else _raw_labels.NAMES
    overlapping = ("diabetes",) if quick else _raw_labels.OVERLAPPING
    return [
        first,
        _losses(names),
        _found(tables),
        _counted(2 if quick else 24),
        _said(overlapping),
    ]


def _leaving(name: str, n: int) -> Case[Table]:
    def check(data: Table, result: Any) -> Mapping[str, float]:
        right = [
            _raw_learners.optimum(data, mask)[0]
            for mask in _raw_learners.leave_one_out(data)
        ]
        off = np.abs(np.asarray(result) - right)
        return {"off": float(np.sum(off > _OFF)), "worst": float(off.max())}

    return Case(
        name="raw loo",
        title=f"raw loo: {name} in its own units, without each sample",
        inputs=functools.partial(_raw_learners.table, name),
        tiny=functools.partial(_raw_learners.table, "wine"),
        work=n,
        unit="fit",
        contenders=[
            Contender(
                name="jaxsel",
                make=_raw_learners.leaving,
                check=check,
                limits={"off": np.inf},
            )
        ],
        targets=[at_most("jaxsel", "off", 0, "accuracies off by > .02", "must")],
        rounds=5,
    )


def _losses(names: tuple[str, ...]) -> Case[tuple[str, ...]]:
    def check(data: tuple[str, ...], result: Any) -> Mapping[str, float]:
        return dict(zip(data, map(float, result), strict=True)) | {
            "worst": float(np.max(result))
        }

    return Case(
        name="raw losses",
        title=f"raw losses: log loss on {len(names)} tables, 9 subsets each",
        inputs=lambda: names,
        tiny=lambda: names[:1],
        work=len(names),
        unit="table",
        contenders=[
            Contender(
                name="jaxsel",
                make=lambda data: (
                    lambda: [_raw_learners.gaps(name).max() for name in data]
                ),
                check=check,
                limits={"worst": np.inf},
            )
        ],
        targets=[at_most("jaxsel", "worst", 1e-3, "gap to the optimum, nats", "must")],
        rounds=0,  # most of a call is the reference's
        probed=False,
    )


def _figures(
    name: str,
    title: str,
    measure: Callable[[], Mapping[str, float]],
    targets: list[Target],
    work: int,
) -> Case[None]:
    """Return a case without a time: its call returns its figures."""
    return Case(
        name=name,
        title=title,
        inputs=lambda: None,
        tiny=lambda: None,
        work=work,
        unit="search",
        contenders=[
            Contender(
                name="jaxsel",
                make=lambda _: measure,
                check=lambda _, figures: figures,
                limits={},
            )
        ],
        targets=targets,
        rounds=0,  # most of a call is that of peers and references
        probed=False,
    )


def _found(names: tuple[str, ...]) -> Case[None]:
    def measure() -> Mapping[str, float]:
        gains = _raw_labels.gains(names)
        values = list(gains.values())
        return gains | {"mean": float(np.mean(values)), "least": min(values)}

    return _figures(
        "raw labels",
        f"raw labels: AUC less that of cleanlab's recipe with scaling, {len(names)} "
        f"tables, {_raw_labels.SEEDS} seeds, 10 % flipped",
        measure,
        [
            _at_least("mean", 0, "mean gain in AUC"),
            _at_least("least", -0.005, "least gain of a table"),
        ],
        len(names) * _raw_labels.SEEDS,
    )


def _counted(seeds: int) -> Case[None]:
    def measure() -> Mapping[str, float]:
        figures = _raw_labels.counts_off(seeds)
        off = max(abs(value) for name, value in figures.items() if "off" in name)
        return figures | {"worst": off}

    return _figures(
        "raw counts",
        f"raw counts: wrong labels of two Gaussians 1 apart, n = 2000, {seeds} seeds",
        measure,
        [
            at_most("jaxsel", "worst", 0.03, "number off, share of n", "must"),
            at_most("jaxsel", "calibration", 0.05, "said and true share apart", "must"),
            _at_least("covered", 0.9, "share of intervals that hold the number"),
        ],
        2 * seeds,
    )


def _said(names: tuple[str, ...]) -> Case[None]:
    def measure() -> Mapping[str, float]:
        gaps = dict(_raw_labels.real_gaps(names))
        return gaps | {"mean": float(np.mean(list(gaps.values())))}

    return _figures(
        "raw shares",
        f"raw shares: of suspects said p wrong, the share that is, {len(names)} tables "
        "whose classes overlap, 5 % flipped",
        measure,
        [at_most("jaxsel", "mean", 0.12, "said and true share apart, mean", "goal")],
        len(names) * _raw_labels.SEEDS,
    )


def _at_least(quantity: str, limit: float, what: str) -> Target:
    return Target(
        text=f"jaxsel: {what} ≥ {limit:g}",
        level="must",
        contender="jaxsel",
        quantity=quantity,
        bound="at least",
        limit=limit,
    )


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_raw", cases))
