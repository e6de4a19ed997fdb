"""Tables in raw units beside the optimum: `python -m benchmarks.bench_raw`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _raw_learners
from ._case import Case, Contender, at_most
from ._harness import main
from ._raw_learners import Table

_OFF = 0.02  # accuracy


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    names = _raw_learners.NAMES[:2] if quick else _raw_learners.NAMES
    first = _leaving("wine", 119) if quick else _leaving("breast cancer", 380)
    return [first, _losses(names)]


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
                note="the reference's time is in it",
            )
        ],
        targets=[at_most("jaxsel", "worst", 1e-3, "gap to the optimum, nats", "must")],
        rounds=1,
        probed=False,
    )


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_raw", cases))
