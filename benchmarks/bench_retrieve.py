"""Retrieval against its peers: `python -m benchmarks.bench_retrieve`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from jaxsel.retrieve import (
    binning_distance,
    duplicates,
    nearest,
    retrieve_nearest,
    retrieve_targeted,
)
from jaxsel.retrieve._binning import Mode

from . import _duplicates, _retrieval, _submodular
from ._case import Case, Contender, at_most, faster
from ._duplicates import Embeddings
from ._harness import main
from ._retrieval import Pool

# Float32 rounding swaps near ties now and then.
EXACT = {"error": 1e-4, "missed": 2e-3}

_pool = functools.lru_cache(maxsize=1)(_retrieval.clusters)
_table = functools.lru_cache(maxsize=1)(_retrieval.table)


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    shrink = 64 if quick else 1
    return [
        _search("retrieval", 131_072 // shrink, rounds=5),
        _search("million", 1_000_000 // shrink, rounds=3, goals=True),
        _streamed(131_072 // shrink),
        _binning(100_000 // shrink),
        _targeted("flqmi", 20_000 // shrink),
        _targeted("gcmi", 20_000 // shrink),
        _targeted("logdetmi", 2_000 // shrink),
        _near("duplicates", "clusters", 100_000 // shrink),
        _near("duplicates-isotropic", "isotropic", 100_000 // shrink),
    ]


def _search(name: str, n: int, *, rounds: int, goals: bool = False) -> Case[Pool]:
    m, d, k = 100, 768, 20
    return Case(
        name=name,
        title=f"{name}: {m} hard × {n:,} candidates, d = {d}, {k} neighbours each",
        inputs=functools.partial(_pool, n, m, d),
        tiny=functools.partial(_retrieval.clusters, 4000, m, d),
        work=n * m,
        unit="pair",
        flops=2 * d,
        bytes=4 * d / m,  # the candidates, read once
        contenders=[
            Contender(
                name="nearest",
                make=lambda pool: (
                    lambda: nearest(pool.x, pool.hard, pool.k, metric="l2")
                ),
                check=_neighbours,
                limits=EXACT,
            ),
            Contender(
                name="retrieve",
                make=lambda pool: (
                    lambda: retrieve_nearest(
                        pool.x, pool.hard, pool.budget, metric="l2"
                    )
                ),
                check=_chosen,
                limits={"missed": EXACT["missed"]},
                note=f"the {m * k:,} that coverage chooses",
            ),
            Contender(
                name="faiss",
                make=_retrieval.faiss_flat,
                check=_neighbours,
                limits=EXACT,
                peer=True,
                note="IndexFlatL2, one thread; index.add is not timed",
            ),
            Contender(
                name="scikit-learn",
                make=_retrieval.sklearn_brute,
                check=_neighbours,
                limits=EXACT,
                peer=True,
                note='NearestNeighbors(algorithm="brute"), one thread',
            ),
        ],
        targets=[
            faster(contender, peer, "goal", limit)
            for contender in ("nearest", "retrieve")
            for peer, limit in (("faiss", 4), ("scikit-learn", 1.6))
            if goals
        ],
        rounds=rounds,
    )


def _streamed(n: int) -> Case[Pool]:
    m, d = 10, 768

    def ours(name: str, kind: str, note: str, *, peer: bool = False) -> Contender[Pool]:
        return Contender(
            name=name,
            make=lambda pool: _retrieval.from_disk(pool, kind),
            check=_neighbours,
            limits=EXACT,
            peer=peer,
            note=note,
        )

    return Case(
        name="streamed",
        title=f"streamed: {m} hard × {n:,} candidates of {4 * d:,} bytes, in files",
        inputs=functools.partial(_pool, n, m, d),
        tiny=functools.partial(_retrieval.clusters, 4000, m, d),
        work=n,
        unit="candidate",
        contenders=[
            ours("npy", "npy", "open_rows, a folder of four .npy files"),
            ours("parquet", "parquet", "open_rows, row groups of 16,384 lists"),
            ours("zarr", "zarr", "open_rows, format 3, chunks of 4,096 rows"),
            ours("memory-mapped", "memmap", "numpy.load(..., mmap_mode='r')"),
            ours("in memory", "memory", "the array itself", peer=True),
        ],
        rounds=5,
    )


def _binning(n: int) -> Case[Pool]:
    m, columns = 100, 20

    def ours(mode: Mode) -> Contender[Pool]:
        return Contender(
            name=mode,
            make=lambda pool: lambda: binning_distance(pool.x, pool.hard, mode=mode),
            check=lambda pool, result: _differs(result, _retrieval.binning(pool, mode)),
            limits={"wrong": 0},
        )

    return Case(
        name="binning",
        title=f"binning distance: {n:,} rows × {columns} columns × {m} hard",
        inputs=functools.partial(_table, n, m, columns),
        tiny=functools.partial(_retrieval.table, 200, m, columns),
        work=n * m,
        unit="pair",
        contenders=[
            ours("hamming"),
            ours("per_feature"),
            Contender(
                name="streamed",
                make=_retrieval.binning_rows,
                check=lambda pool, result: _differs(
                    result, _retrieval.binning(pool, "hamming")
                ),
                limits={"wrong": 0},
                note="hamming of open_rows, an .npy file, in three passes",
            ),
            Contender(
                name="NumPy loop",
                make=_retrieval.hamming_loop,
                check=lambda pool, result: _differs(
                    result, _retrieval.binning(pool, "hamming")
                ),
                limits={"wrong": 0},
                peer=True,
                note="hamming, a hard sample at a time",
            ),
        ],
    )


def _targeted(objective: _submodular.Objective, n: int) -> Case[Pool]:
    m, d, k = min(100, n // 10), 128, 5

    def check(pool: Pool, result: Any) -> dict[str, float]:
        right = _submodular.expected(pool, objective)
        indices = getattr(result, "indices", result)
        return {"missed": len(right - set(np.asarray(indices).tolist())) / len(right)}

    def pool(n: int) -> Pool:
        return _retrieval.clusters(n, m, d, k=k)

    def ours(pool: Pool) -> Any:
        options = {"objective": objective, "eta": _submodular.ETA}
        return lambda: retrieve_targeted(pool.x, pool.hard, pool.budget, **options)

    def peer(name: str, note: str) -> Contender[Pool]:
        return Contender(
            name=name.replace("plain", "NumPy"),
            make=lambda pool: getattr(_submodular, name)(pool, objective),
            check=check,
            limits={"missed": 0.01},
            peer=True,
            note=note,
        )

    return Case(
        name=f"targeted-{objective}",
        title=f"{objective}: {k * m} of {n:,} candidates for {m} hard samples, d = {d}",
        inputs=functools.partial(pool, n),
        tiny=functools.partial(pool, 1000),
        work=n * m,
        unit="pair",
        contenders=[
            Contender(
                name="retrieve_targeted",
                make=ours,
                check=check,
                limits={"missed": 0.01},
            ),
            peer("plain", "all gains anew for each choice; one thread"),
            peer("submodlib", "kernels are made by NumPy"),
        ],
        rounds=5,
    )


def _near(name: str, kind: _duplicates.Kind, n: int) -> Case[Embeddings]:
    d = 256
    return Case(
        name=name,
        title=f"{name}: pairs of {n:,} × {d} at cosine ≥ {_duplicates.THRESHOLD}",
        inputs=functools.partial(_duplicates.embeddings, kind, n, d),
        tiny=functools.partial(_duplicates.embeddings, kind, 200, 8),
        work=n * (n - 1) // 2,
        unit="pair",
        contenders=[
            Contender(
                name="duplicates",
                make=lambda task: (
                    lambda: duplicates(task.x, threshold=_duplicates.THRESHOLD)
                ),
                check=_duplicates.wrong,
                limits={"wrong": 0},
            ),
            Contender(
                name="NumPy",
                make=_duplicates.by_blocks,
                check=lambda task, result: {"pairs": result},
                limits={},
                share=2 / _duplicates.SHARE - 1 / _duplicates.SHARE**2,
                peer=True,
                note="all products in float32, counted only",
            ),
            Contender(
                name="semhash",
                make=_duplicates.by_semhash,
                check=_duplicates.missed,
                limits={},
                peer=True,
                note="approximate neighbours by usearch; reports 1 − recall of pairs",
            ),
        ],
        targets=[
            at_most("duplicates", "cpu_s", 60, "CPU seconds", "must"),
            at_most("duplicates", "cpu_s", 25, "CPU seconds", "goal"),
            at_most("duplicates", "peak_mb", 1000, "MB above the inputs", "must"),
        ],
        rounds=3,
    )


# Checks.


def _neighbours(pool: Pool, result: Any) -> dict[str, float]:
    near, index = map(np.asarray, result)
    expected, right = _retrieval.neighbours(pool, pool.k)
    missed = [len(set(a) - set(b)) for a, b in zip(right, index, strict=True)]
    return {
        "error": np.abs(near / expected - 1).max(),
        "missed": sum(missed) / right.size,
    }


def _chosen(pool: Pool, result: Any) -> dict[str, float]:
    chosen = set(np.asarray(result.indices)[: len(result)].tolist())
    return {"missed": len(_retrieval.coverage(pool) - chosen) / pool.budget}


def _differs(result: Any, expected: np.ndarray) -> dict[str, float]:
    return {"wrong": float(np.mean(np.asarray(result) != expected))}


if __name__ == "__main__":
    alike = ("million",)
    raise SystemExit(main("benchmarks.bench_retrieve", cases, alike=alike))
