"""Matching and its oracles against their peers: `python -m benchmarks.bench_match`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxsel.gradients import dense, factored, jvp, streamed
from jaxsel.match import Match, omp

from . import _match_models, _match_peers, _matching
from ._case import Case, Contender, at_most, faster
from ._harness import main
from ._match_models import Model
from ._matching import Pool

L2 = 0.5
EXACT = {"behind": 1e-5, "kkt": 1e-5, "missed": 0.05}
# Past the rank candidates differ by less than float32 tells apart.
SMALL = EXACT | {"behind": 1e-6, "missed": 0.25}
# Other rules for the signs end elsewhere, but not far from it.
PEER = {"behind": 0.01, "kkt": 1e-4}
Call = Callable[[], Any]

_last_layer = functools.lru_cache(maxsize=1)(_matching.last_layer)
_rows = functools.lru_cache(maxsize=1)(_matching.rows)
_mlp = functools.lru_cache(maxsize=1)(_match_models.mlp)
_cnn = functools.lru_cache(maxsize=1)(_match_models.cnn)


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    shrink, narrow, few = (20, 8, 16) if quick else (1, 1, 1)
    n, width, k = 10_000 // shrink, 512 // narrow, 128 // few
    large, wide, many = 50_000 // shrink, 2048 // narrow, 512 // few
    examples = 4096 // (32 if quick else 1)
    return [
        _factored("factored", (n, 10, width), k),
        _food((large, 101, wide), k),
        _small("small", (n, 128 // narrow), k),
        _small("past the rank", (n, 128 // narrow), many),
        _many((n, 1280 // narrow), many),
        _million((1_000_000 // shrink, 10, width), k // 2),
        _jvp("jvp MLP", _mlp, examples, chunk=16, goals=True),
        # The same number of multiply-adds both ways: no goal.
        _jvp("jvp CNN", _cnn, examples, chunk=8),
    ]


def _factored(name: str, shape: tuple[int, int, int], k: int) -> Case[Pool]:
    n, classes, width = shape
    return Case(
        name=name,
        title=f"{name}: {n:,} × {classes * (width + 1):,}, k = {k}",
        inputs=functools.partial(_last_layer, *shape, k=k),
        tiny=functools.partial(_matching.last_layer, 300, classes, width, k=8),
        work=n * k,
        unit="product",
        flops=2 * (classes + width),
        bytes=4 * (classes + width),
        contenders=[
            _ours("jaxsel", _from_factors),
            _ours("unconstrained", _from_factors, l2=0.0, positive=False),
            _ours("written out", _written_out, note="the same on the matrix"),
            _sklearn(),
            _torch(),
            _peer(
                "NumPy + nnls", functools.partial(_match_peers.numpy_nnls, l2=L2), EXACT
            ),
        ],
        targets=[
            faster("jaxsel", "scikit-learn", "must", 6),
            faster("jaxsel", "scikit-learn", "goal", 10),
        ],
        rounds=5,
    )


def _food(shape: tuple[int, int, int], k: int) -> Case[Pool]:
    n, classes, width = shape
    held = n * (classes + width) * 4e-6
    return Case(
        name="food",
        title=f"food: {n:,} × {classes * (width + 1):,}, k = {k}; "
        f"{n * classes * (width + 1) * 4e-9:.3g} GB written out",
        inputs=functools.partial(_last_layer, *shape, k=k),
        tiny=functools.partial(_matching.last_layer, 300, classes, width, k=8),
        work=n * k,
        unit="product",
        flops=2 * (classes + width),
        bytes=4 * (classes + width),
        contenders=[_ours("jaxsel", _from_factors)],
        targets=[
            at_most("jaxsel", "cpu_s", 4, "CPU seconds", "must"),
            at_most("jaxsel", "cpu_s", 2, "CPU seconds", "goal"),
            at_most(
                "jaxsel",
                "peak_mb",
                1000 - round(held),
                f"MB above the inputs' {held:.0f}",
                "must",
            ),
        ],
        rounds=5,
    )


def _small(name: str, shape: tuple[int, int], k: int) -> Case[Pool]:
    n, d = shape
    return Case(
        name=name,
        title=f"{name}: {n:,} × {d}, k = {k}",
        inputs=functools.partial(_rows, n, d, k=k),
        tiny=functools.partial(_matching.rows, 300, d, k=8),
        work=n * k,
        unit="product",
        flops=2 * d,  # all candidates stay in the cache
        contenders=[
            _ours("unconstrained", _written_out, l2=0.0, positive=False),
            _ours(
                "unconstrained, tol",
                _written_out,
                l2=0.0,
                positive=False,
                tol=math.sqrt(_matching.FLOOR),
                note="the same, stops where float32 does",
            ),
            _ours("jaxsel", _written_out, limits=SMALL),
            _sklearn(),
            _sklearn(
                "scikit-learn, tol",
                floor=True,
                note="stops where float32 does",
            ),
        ],
        targets=[
            faster("unconstrained, tol", "scikit-learn, tol", "goal", 1),
            faster("unconstrained", "scikit-learn", "goal", 1),
        ],
    )


def _many(shape: tuple[int, int], k: int) -> Case[Pool]:
    n, d = shape
    return Case(
        name="many",
        title=f"many: {n:,} × {d:,}, k = {k}",
        inputs=functools.partial(_rows, n, d, k=k),
        tiny=functools.partial(_matching.rows, 300, d, k=8),
        work=n * k,
        unit="product",
        flops=2 * d,
        bytes=4 * d,
        contenders=[_ours("jaxsel", _written_out), _torch()],
        targets=[
            at_most("jaxsel", "cpu_s", 1, "CPU seconds", "goal"),
            at_most("jaxsel", "kkt", 1e-6, "violation of KKT", "goal"),
        ],
        rounds=5,
    )


def _million(shape: tuple[int, int, int], k: int) -> Case[Pool]:
    n, classes, width = shape
    draw = functools.partial(_last_layer, files=True)
    return Case(
        name="million",
        title=f"million: {n:,} × {classes * (width + 1):,} from files of "
        f"{n * (classes + width) * 4e-9:.3g} GB, k = {k}",
        inputs=functools.partial(draw, *shape, k=k),
        tiny=functools.partial(
            _matching.last_layer, 300, classes, width, k=8, files=True
        ),
        work=n * k,
        unit="product",
        flops=2 * (classes + width),
        bytes=4 * (classes + width),
        contenders=[_ours("jaxsel", _from_files)],
        targets=[at_most("jaxsel", "cpu_s", 30, "CPU seconds", "goal")],
        rounds=3,
    )


def _jvp(
    name: str,
    make: Callable[[int], Model],
    n: int,
    *,
    chunk: int,
    goals: bool = False,
) -> Case[Model]:
    def ours(model: Model) -> Call:
        oracle = jvp(model.loss, model.params, model.examples)
        return lambda: oracle.corr(model.v)

    def peer(model: Model) -> Call:
        return _match_peers.grad_products(
            model.loss, model.params, model.examples, model.v, chunk=chunk
        )

    def check(model: Model, result: Any) -> dict[str, float]:
        right = _match_models.correlations(model)
        return {"error": np.abs(np.asarray(result) - right).max() / np.abs(right).max()}

    limits = {"error": 1e-4}
    return Case(
        name=name,
        title=f"{name}: correlations of {n:,} gradients",
        inputs=functools.partial(make, n),
        tiny=functools.partial(make, 16),
        work=n,
        unit="gradient",
        contenders=[
            Contender(name="jvp", make=ours, check=check, limits=limits),
            Contender(
                name="vmap(grad)",
                make=peer,
                check=check,
                limits=limits,
                peer=True,
                note=f"{chunk} gradients at once",
            ),
        ],
        targets=[
            faster("jvp", "vmap(grad)", "must", 10),
            faster("jvp", "vmap(grad)", "goal", 15),
        ]
        if goals
        else [],
    )


# Contenders of our own: from JAX arrays, as a model returns them, to the choice.


def _from_factors(pool: Pool) -> Callable[..., Match]:
    oracle = factored(pool.errors, pool.features)  # pyright: ignore[reportArgumentType]
    jax.block_until_ready(oracle)
    return lambda **options: omp(oracle, (pool.target,), pool.k, **options)


def _from_files(pool: Pool) -> Callable[..., Match]:
    oracle = streamed(lambda rows: factored(*pool.load(rows)), len(pool.features))
    return lambda **options: omp(oracle, (pool.target,), pool.k, **options)


def _written_out(pool: Pool) -> Callable[..., Match]:
    oracle, target = dense(_matching.written_out(pool)), pool.target.reshape(-1)
    jax.block_until_ready(oracle)
    return lambda **options: omp(oracle, target, pool.k, **options)


def _ours(
    name: str,
    make: Callable[[Pool], Callable[..., Match]],
    *,
    l2: float = L2,
    positive: bool = True,
    tol: float = 0.0,
    note: str = "",
    limits: Mapping[str, float] = EXACT,
) -> Contender[Pool]:
    def check(pool: Pool, match: Match) -> dict[str, float]:
        size = int(match.n_valid)
        choice = match.indices[:size], match.weights[:size]
        return _matching.figures(pool, *choice, l2=l2, positive=positive)

    return Contender(
        name=name,
        make=lambda pool: functools.partial(
            make(pool), l2=l2, positive=positive, tol=tol
        ),
        check=check,
        limits=limits,
        note=note or ("" if positive else "l2 = 0, weights of both signs"),
    )


# Peers.


def _sklearn(
    name: str = "scikit-learn", *, floor: bool = False, note: str = ""
) -> Contender[Pool]:
    return _peer(
        name,
        functools.partial(_match_peers.sklearn_omp, floor=floor),
        EXACT,
        l2=0.0,
        positive=False,
        note=note or "orthogonal_mp: l2 = 0, weights of both signs",
    )


def _torch() -> Contender[Pool]:
    return _peer("torch loop", functools.partial(_match_peers.torch_loop, l2=L2), PEER)


def _peer(
    name: str,
    make: Callable[[Pool], Call],
    limits: Mapping[str, float],
    *,
    l2: float = L2,
    positive: bool = True,
    note: str = "",
) -> Contender[Pool]:
    def check(pool: Pool, result: Any) -> dict[str, float]:
        return _matching.figures(pool, *result, l2=l2, positive=positive)

    return Contender(
        name=name, make=make, check=check, limits=limits, peer=True, note=note
    )


if __name__ == "__main__":
    alike = ("food", "past the rank")
    raise SystemExit(main("benchmarks.bench_match", cases, alike=alike))
