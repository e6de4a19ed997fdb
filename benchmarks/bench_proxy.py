"""Emulators: training against a torch loop, and how well attention is imitated.

`python -m benchmarks.bench_proxy`. The second case needs `jaxsel data prepare
movie_polarity` and `jaxsel models prepare minilm`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from jaxsel.proxy.families import Attention
from jaxsel.proxy.families._attention_2quad import TwoQuadAttention
from jaxsel.proxy.families._attention_mlp import MLPAttention
from jaxsel.proxy.families._attention_polynomial import PolynomialAttention
from jaxsel.proxy.families._attention_powers import PowerAttention

from . import _emulators
from ._case import Case, Contender, Target, faster
from ._emulators import Job, Rows
from ._harness import main

_rows = functools.lru_cache(maxsize=1)(_emulators.minilm_rows)

# What the secure run does for one row of L scores of one head, beside the products with
# keys and values; a mean over a secret mask is one product of the keys more.
_COST = {
    "linear": "0 rounds, 0 elements",
    "quadratic": "1 round, L squares",
    "cubic": "2 rounds, 2 L products",
    "hinge": "9 rounds, L ReLUs",
}


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    return [_training(20_480 if quick else 5_120_000, quick), _attention(quick)]


def _training(points: int, quick: bool) -> Case[Job]:
    share = 0.2 if quick else 0.02
    job = _emulators.job(points)
    return Case(
        name="emulators",
        title=f"emulators: {job.mlps} MLPs, {points:,} synthesised samples each, "
        "compilation included",
        inputs=functools.partial(_emulators.job, points),
        tiny=functools.partial(_emulators.job, 2048),
        work=job.mlps * points,
        unit="sample",
        contenders=[
            Contender(
                name="train_mlps",
                make=_emulators.ours,
                check=_emulators.unexplained,
                limits={"softmax": 1.0 if quick else 0.35},
            ),
            Contender(
                name="torch loop",
                make=lambda job: _emulators.torch_loop(job, share),
                check=_emulators.unexplained,
                limits={"softmax": 1.5},
                share=share,
                peer=True,
                note=f"one MLP after the other, one thread, {share:.0%} of the steps",
            ),
        ],
        targets=[
            faster("train_mlps", "torch loop", "must", 4),
            faster("train_mlps", "torch loop", "goal", 8),
        ],
        rounds=2,
    )


def _attention(quick: bool) -> Case[Rows]:
    tiny = functools.partial(_emulators.random_rows, 40, 8)
    points = 4096 if quick else 1_024_000
    families: list[tuple[str, Attention, str]] = [
        ("2quad", TwoQuadAttention(), "MPCFormer; a division"),
        ("polynomial", PolynomialAttention(4), "degree 4; a division"),
    ]
    for width in (2, 16):
        family = MLPAttention(width)
        families.append((f"mlp {width}", family, f"9 rounds, {width} ReLUs; real rows"))
    plain = {"": {}, " + centre": {"centre": True}, " + bias": {"bias": True}}
    both = {" + both": {"centre": True, "bias": True}}
    for form, cost in _COST.items():
        shown = both if form in ("cubic", "hinge") else plain | both
        for suffix, terms in shown.items():
            family = PowerAttention(form, **terms)  # pyright: ignore[reportArgumentType]
            families.append((form + suffix, family, cost))
    contenders = [_fitted(*family, points=points) for family in families]
    return Case(
        name="attention",
        title="attention: R² against uniform attention, held out, MiniLM layers 0-2, "
        "L = 32, 300 reviews to fit and 300 to test",
        inputs=tiny if quick else _rows,
        tiny=tiny,
        work=_emulators.LAYERS * (40 * 4 * 8 if quick else 300 * 12 * 32),
        unit="row",
        contenders=contenders,
        targets=[] if quick else _targets(),
        rounds=2,
    )


def _fitted(name: str, family: Attention, cost: str, *, points: int) -> Contender[Rows]:
    make = functools.partial(_emulators.fit, family)
    if isinstance(family, MLPAttention):
        make = functools.partial(_emulators.fit_mlp, family, points)
    return Contender(
        name=name,
        make=make,
        check=functools.partial(_emulators.held_out_r2, family),
        limits={},
        note=cost,
    )


def _targets() -> Sequence[Target]:
    goals = {"linear + bias": 0.75, "quadratic + both": 0.75, "hinge + both": 0.8}
    return [
        Target(
            text=f"{name}: mean R² ≥ {limit}",
            level="goal",
            contender=name,
            quantity="mean",
            bound="at least",
            limit=limit,
        )
        for name, limit in goals.items()
    ]


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_proxy", cases))
