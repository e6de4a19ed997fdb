"""KNN values against their peers: `python -m benchmarks.bench_knn`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

import jaxsel
from jaxsel import _native, neighbors
from jaxsel.neighbors import Sort
from jaxsel.neighbors._select import smallest
from jaxsel.value._linear import sorts_faster

from . import _knn, _knn_kernels, _peers, _weighted
from ._case import Case, Contender, Target, at_most, faster
from ._harness import main
from ._knn import Points

K = 10
# Peers order near ties by float32, which costs them 2e-4 of the largest value at
# 10k x 1k, and more where fewer validation points are averaged. A wrong formula is off
# by far more.
EXACT = {"error": 5e-3}
OURS = {"error": 1e-5}
HYBRID = {"error": 1e-2, "certified": 1e-1}
Call = Callable[[], Any]
Reference = Callable[[Points, int], np.ndarray]

_points = functools.lru_cache(maxsize=1)(_knn.mixture)


def cases(*, quick: bool = False) -> list[Case[Any]]:
    """Return the cases, or tiny ones of the same kind."""
    shrink = 20 if quick else 1
    n, m = 10_000 // shrink, 1_000 // shrink
    large, huge, few = 50_000 // shrink, 1_000_000 // shrink, 100 // shrink
    many = 10_000 // shrink
    return [
        _case(
            "exact",
            (n, m, 64),
            [
                _jaxsel(m),
                *(_sorted_by(sort, m) for sort in ("native", "packed", "pairs")),
                _argsort(m),
                _torch(m),
                _pydvl(m, share=5),
            ],
            [
                faster("jaxsel", "pyDVL", "must", 25),
                faster("jaxsel", "pyDVL", "goal", 60),
            ],
        ),
        _case(
            "hybrid",
            (n, m, 64),
            [_hybrid(m), _called_hybrid(m), _pydvl(m, share=5)],
            [
                faster("hybrid", "pyDVL", "goal", 90),
                at_most(
                    "hybrid", "certified", 1e-2, "certified error, of max v", "must"
                ),
                at_most("hybrid", "error", 1e-3, "actual error, of max v", "must"),
            ],
        ),
        _case(
            "sort-free",
            (n, m, 64),
            [_threshold(m), _banzhaf(m), _pydvl(m, share=5)],
            [
                faster("threshold", "pyDVL", "goal", 150),
                faster("banzhaf", "pyDVL", "goal", 150),
            ],
        ),
        _case(
            "memory",
            (large, m, 64),
            [
                _jaxsel(m),
                _hybrid(m),
                _argsort(m),
                _torch(m, share=10),
                _pydvl(m, share=20),
            ],
            [at_most("jaxsel", "peak_mb", 200, "MB above the inputs", "must")],
            rounds=5,
        ),
        _case(
            "million",
            (huge, few, 64),
            [
                _jaxsel(few),
                _hybrid(few),
                _torch(few, share=5),
                _pydvl(few, share=50),
            ],
            [
                at_most("jaxsel", "peak_mb", 500, "MB above the inputs", "must"),
                at_most("jaxsel", "cpu_s", 10, "CPU seconds", "goal"),
            ],
            rounds=5,
        ),
        _weighted_case(2000 // shrink, 200 // shrink),
        _case(
            "gpu",
            (large, many, 512),
            [
                _jaxsel(many),
                *(_sorted_by(sort, many) for sort in ("packed", "pairs")),
                _hybrid(many),
                _threshold(many),
                _banzhaf(many),
                _argsort(many, share=10),
                _torch(many, share=10),
            ],
            [
                Target(
                    text="jaxsel: pairs a second ≥ 5e9",
                    level="goal",
                    contender="jaxsel",
                    quantity="rate",
                    bound="at least",
                    limit=5e9,
                )
            ],
            platforms=["gpu"],
            rounds=5,
        ),
        *(_smallest(many, large, k) for k in (100, 1000)),
    ]


def _case(
    name: str,
    shape: tuple[int, int, int],
    contenders: Sequence[Contender[Points]],
    targets: Sequence[Target],
    *,
    platforms: Sequence[str] = (),
    rounds: int = 7,
) -> Case[Points]:
    n, m, d = shape
    return Case(
        name=name,
        title=f"{name}: {n:,} × {m:,}, d = {d}, K = {K}",
        inputs=functools.partial(_points, n, m, d, k=K),
        tiny=functools.partial(_knn.mixture, 200, 3, d, k=K),
        work=n * m,
        unit="pair",
        flops=2 * d,
        bytes=4 * d / m,  # the training features, read once
        contenders=contenders,
        targets=targets,
        platforms=platforms,
        rounds=rounds,
    )


def _smallest(m: int, n: int, k: int) -> Case[jax.Array]:
    """Return the k smallest of each of m rows of n, some rows at a time."""

    def mapped(row: Callable[..., Any], **options: Any) -> Any:
        def make(rows: jax.Array) -> Call:
            run = jax.jit(jax.vmap(functools.partial(row, **options)))
            at_once = max(1, 2**26 // n)  # a chunk on an accelerator
            parts = [rows[i : i + at_once] for i in range(0, m, at_once)]
            return lambda: [run(part) for part in parts]

        return make

    def contender(name: str, row: Callable[..., Any], note: str, **more: Any) -> Any:
        return Contender(
            name=name,
            make=mapped(row, k=k),
            check=_few_smallest,
            limits={"wrong": 0},
            note=note,
            **more,
        )

    return Case(
        name=f"smallest {k}",
        title=f"smallest {k}: of each of {m:,} rows of {n:,} distances",
        inputs=functools.partial(_distances, m, n),
        tiny=functools.partial(_distances, 8, 2000),
        work=n * m,
        unit="distance",
        bytes=4,
        contenders=[
            contender("top_k", neighbors.top_k, "what jaxsel takes on this platform"),
            contender("digits", _by_digits, "neighbors._select, which is off"),
            contender("jax.lax.top_k", _lax_top_k, "XLA's", peer=True),
            contender("whole sort", _whole_sort, "stable, of pairs", peer=True),
        ],
        platforms=["gpu"],
        elsewhere=True,
        rounds=5,
    )


def _weighted_case(n: int, m: int) -> Case[Points]:
    few = len([i for i in _weighted.WHICH if i < n])
    return Case(
        name="weighted",
        title=f"weighted: hard labels, {n:,} × {m:,}, d = 64, K = 5, "
        f"{_weighted.BITS} bits",
        inputs=functools.partial(_weighted.draw, n, m, 64),
        tiny=functools.partial(_weighted.draw, 60, 3, 64),
        work=n * m,
        unit="pair",
        contenders=[
            Contender(
                name="weighted",
                make=_weighted.ours,
                check=_weighted.error,
                limits=OURS,
            ),
            Contender(
                name="reach 256",
                make=lambda points: _weighted.ours(points, method="hybrid", reach=256),
                check=_weighted.error,
                limits={"beyond": 0.0},
            ),
            Contender(
                name="published loop",
                make=_weighted.loop,
                check=_weighted.error,
                limits={"error": 0.0},
                share=few / (n * m),
                peer=True,
                note=f"{few} of {n} points, one of {m} validation points",
            ),
        ],
        targets=[faster("weighted", "published loop", "goal", 100)],
        rounds=5,
    )


def _by_digits(row: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    return smallest(row, k)


def _lax_top_k(row: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    top, index = jax.lax.top_k(-row, k)
    return -top, index


def _whole_sort(row: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    order = neighbors.argsort(row, sort="pairs")[:k]
    return row[order], order


@functools.lru_cache(maxsize=1)
def _distances(m: int, n: int) -> jax.Array:
    """Draw squared distances with the density of Gaussian points in 64 dimensions."""
    rows = jax.random.gamma(jax.random.key(0), 32.0, (m, n), "float32")
    return jax.block_until_ready(rows)


def _few_smallest(rows: jax.Array, result: Any) -> dict[str, float]:
    """Compare the first hundred rows with a stable sort."""
    near, index = (
        np.concatenate([*map(np.asarray, part)]) for part in zip(*result, strict=True)
    )
    k = index.shape[1]
    for row, values, indices in zip(np.asarray(rows[:100]), near, index, strict=False):
        order = np.argsort(row, kind="stable")[:k]
        if (order != indices).any() or (row[order] != values).any():
            return {"wrong": 1.0}
    return {"wrong": 0.0}


# Contenders of our own. On a CPU the features are NumPy arrays, as a user has them; on
# an accelerator they are on the device before the clock starts.


def _jaxsel(m: int) -> Contender[Points]:
    def make(points: Points) -> Call:
        arrays = _arrays(points)
        return lambda: jaxsel.knn_shapley(*arrays, k=points.k)

    return _ours("jaxsel", make, _error(_knn.shapley, m), OURS)


def _banzhaf(m: int) -> Contender[Points]:
    def make(points: Points) -> Call:
        arrays = _arrays(points)
        return lambda: jaxsel.knn_banzhaf(*arrays, k=points.k)

    return _ours("banzhaf", make, _error(_knn.banzhaf, m), OURS)


def _threshold(m: int) -> Contender[Points]:
    def make(points: Points) -> Call:
        arrays, radius = _arrays(points), points.radius
        return lambda: jaxsel.threshold_knn_shapley(*arrays, radius=radius)

    return _ours("threshold", make, _error(_knn.threshold, m), EXACT)


def _hybrid(m: int) -> Contender[Points]:
    """The bands of distance themselves, wherever `knn_shapley` would sort instead."""

    def make(points: Points) -> Call:
        return _knn_kernels.banded(points, _arrays(points))

    return _ours("hybrid", make, _certified(m), HYBRID)


def _called_hybrid(m: int) -> Contender[Points]:
    def make(points: Points) -> Call:
        arrays = _arrays(points)
        return lambda: jaxsel.knn_shapley(*arrays, k=points.k, method="hybrid")

    def check(points: Points, result: jaxsel.Values) -> dict[str, float]:
        return {**_certified(m)(points, result), "sorts": float(sorts_faster())}

    note = "what users call; sorts = 1: exact values, as they cost less on this machine"
    called = _ours('method="hybrid"', make, check, HYBRID)
    return dataclasses.replace(called, note=note)


def _certified(m: int) -> Callable[[Points, Any], dict[str, float]]:
    def check(points: Points, result: jaxsel.Values) -> dict[str, float]:
        largest = np.abs(_knn.shapley(points, m)).max()
        bound = np.asarray(result.error_bound).max()
        return {**_error(_knn.shapley, m)(points, result), "certified": bound / largest}

    return check


def _sorted_by(sort: Sort, m: int) -> Contender[Points]:
    def make(points: Points) -> Call:
        if sort == "native" and not _native.available():
            raise ImportError("the compiled operations are not built")
        return _knn_kernels.sorted_by(sort, points, _arrays(points))

    return _ours(f"{sort} sort", make, _error(_knn.shapley, m), OURS)


def _ours(
    name: str,
    make: Callable[[Points], Call],
    check: Callable[[Points, Any], Mapping[str, float]],
    limits: Mapping[str, float],
) -> Contender[Points]:
    return Contender(name=name, make=make, check=check, limits=limits)


@functools.lru_cache(maxsize=1)
def _arrays(points: Points) -> tuple[Any, Any, Any, Any]:
    arrays = (points.x, points.y, points.x_val, points.y_val)
    if jax.default_backend() == "cpu":
        return arrays
    return jax.block_until_ready(jax.device_put(arrays))


# Peers. Where one would take long it gets a share of the validation points: the time
# that it needs for each pair hardly depends on their number.


def _pydvl(m: int, *, share: int = 1) -> Contender[Points]:
    return _peer("pyDVL", _peers.pydvl, m, share)


def _torch(m: int, *, share: int = 1) -> Contender[Points]:
    return _peer("torch loop", _peers.torch_loop, m, share)


def _argsort(m: int, *, share: int = 1) -> Contender[Points]:
    return _peer("JAX argsort", _peers.jax_argsort, m, share)


def _peer(
    name: str, make: Callable[[Points, int], Call], m: int, share: int
) -> Contender[Points]:
    part = max(1, m // share)
    return Contender(
        name=name,
        make=lambda points: make(points, part),
        check=_error(_knn.shapley, part),
        limits=EXACT,
        share=part / m,
        peer=True,
        note="" if part == m else f"{part} of {m} validation points",
    )


def _error(reference: Reference, m: int) -> Callable[[Points, Any], dict[str, float]]:
    def check(points: Points, result: Any) -> dict[str, float]:
        values = getattr(result, "values", result)
        return {"error": _knn.relative_error(values, reference(points, m))}

    return check


if __name__ == "__main__":
    alike = ("memory",)
    raise SystemExit(main("benchmarks.bench_knn", cases, alike=alike))
