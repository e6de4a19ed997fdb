"""Loss thresholds against a loop over them: `python -m benchmarks.bench_filter`."""

from __future__ import annotations

import functools
from typing import Literal

import jax
import numpy as np

from jaxsel.filter import (
    LossThreshold,
    count_losses,
    federated_threshold,
    filter_server,
    loss_threshold,
)
from jaxsel.filter._band import Band
from jaxsel.filter._server import FilterServer

from . import _filter, _private
from ._case import Case, Contender, Target, faster
from ._filter import Losses, LossFile
from ._harness import main
from ._private import Owners

EXACT = {"error": 1e-6, "worse": 1e-6}
_CLIENTS, _REPLICATES = 100, 200

_draw = functools.lru_cache(maxsize=1)(_filter.draw)


def cases(*, quick: bool = False) -> list[Case]:
    """Return the cases, or tiny ones of the same kind."""
    shrink = 100 if quick else 1
    return [
        _search("loop", 100_000 // shrink, loop=True),
        _search("million", 1_000_000 // shrink),
        _band(100_000 // shrink),
        _stream(100_000_000 // shrink**2),
        _clients(100_000 // shrink),
        _values(10_000 // shrink, 1000 // shrink),
    ]


def _search(name: str, n: int, *, loop: bool = False) -> Case[Losses]:
    m = 1000
    contenders: list[Contender[Losses]] = [
        Contender(
            name="loss_threshold",
            make=lambda data: lambda: loss_threshold(data.benchmark, data.losses),
            check=_exact,
            limits=EXACT,
        )
    ]
    share = 0.1
    if loop:
        contenders.append(
            Contender(
                name="loop",
                make=lambda data: _filter.histograms(data, share),
                check=_off,
                limits={"off": np.inf},
                share=share,
                peer=True,
                note="100 bins, every hundredth loss; a tenth of these is timed",
            )
        )
    return Case(
        name=name,
        title=f"{name}: {n:,} losses, {m:,} of the benchmark",
        inputs=functools.partial(_draw, n, m),
        tiny=functools.partial(_filter.draw, 500, 20),
        work=n,
        unit="loss",
        bytes=4,
        contenders=contenders,
        targets=[faster("loss_threshold", "loop", "goal", 500)]
        if loop
        else [_at_most("loss_threshold", "cpu_s", 0.5, "half a second")],
        rounds=5,
    )


def _band(n: int) -> Case[Losses]:
    return Case(
        name="band",
        title=f"band: {_REPLICATES} bootstrap replicates, {n:,} losses, 1,000 of the "
        "benchmark",
        inputs=functools.partial(_draw, n, 1000),
        tiny=functools.partial(_filter.draw, 500, 1000),
        work=_REPLICATES,
        unit="replicate",
        contenders=[
            Contender(
                name="band",
                make=lambda data: functools.partial(
                    loss_threshold(data.benchmark, data.losses).band,
                    jax.random.key(0),
                    _REPLICATES,
                ),
                check=_around,
                limits={"outside": 0},
            )
        ],
        targets=[_at_most("band", "cpu_s", 2, "two seconds")],
        rounds=5,
    )


def _stream(n: int) -> Case[LossFile]:
    return Case(
        name="stream",
        title=f"stream: {n:,} losses in a file, 1,000 of the benchmark",
        inputs=functools.partial(_filter.write, n, 1000),
        tiny=functools.partial(_filter.write, 5000, 20),
        work=n,
        unit="loss",
        bytes=4,
        contenders=[
            Contender(
                name="loss_threshold",
                make=lambda data: lambda: loss_threshold(data.benchmark, data.chunks),
                check=_streamed,
                limits={"error": 1e-6},
            )
        ],
        targets=[_at_most("loss_threshold", "peak_mb", 2000, "2 GB of memory")],
        rounds=3,
    )


def _clients(n: int) -> Case[Losses]:
    return Case(
        name="clients",
        title=f"clients: {n:,} losses of {_CLIENTS} clients, 1,000 of the benchmark",
        inputs=functools.partial(_draw, n, 1000),
        tiny=functools.partial(_filter.draw, 500, 20),
        work=n,
        unit="loss",
        contenders=[
            Contender(
                name="federated_threshold",
                make=lambda data: functools.partial(
                    federated_threshold, data.benchmark, _shared(data)
                ),
                check=_messages,
                limits={"wrong": 0},
            )
        ],
        targets=[
            _at_most("federated_threshold", "bytes", 10_000, "10 KB a client and round")
        ],
        rounds=3,
    )


def _values(n: int, m: int) -> Case[Owners]:
    owners = 10
    noisy = [
        Contender(
            name=f"epsilon = {epsilon:g}",
            make=functools.partial(_private.values, epsilon=epsilon),
            check=lambda data, found: {"auc": _private.auc(data, found)},
            limits={},
        )
        for epsilon in _private.EPSILONS
    ]
    return Case(
        name="private",
        title=f"private: values across {owners} owners of {n:,} points, {m:,} "
        "validation points",
        inputs=functools.partial(_private.draw, owners, n, m),
        tiny=functools.partial(_private.draw, 4, 50, 5),
        work=owners * n * m,
        unit="pair",
        contenders=[
            Contender(
                name="exact",
                make=functools.partial(_private.values, epsilon=None),
                check=_private.against_pooled,
                limits={"error": 1e-5},
            ),
            *noisy,
        ],
        targets=[
            _at_most("exact", "cpu_s", 10, "ten seconds, all owners together"),
            _at_most("exact", "bytes", 16_384, "16 KB that a client sends"),
            _at_most("epsilon = 1", "cpu_s", 10, "ten seconds, all owners together"),
        ],
        rounds=3,
    )


def _at_most(contender: str, quantity: str, limit: float, words: str) -> Target:
    return Target(
        text=f"{contender}: at most {words}",
        level="goal",
        contender=contender,
        quantity=quantity,
        bound="at most",
        limit=limit,
    )


# Checks.


def _exact(data: Losses, threshold: LossThreshold) -> dict[str, float]:
    """Compare with SciPy, there and at other thresholds."""
    kept = data.losses[data.losses <= threshold.value]
    others = np.quantile(data.losses, np.linspace(0.005, 1, 200))
    near = threshold.value + np.array([-0.01, -0.001, 0.001, 0.01])
    best = min(
        _filter.distance(data.benchmark, data.losses[data.losses <= t])
        for t in (*others, *near)
    )
    return {
        "error": abs(threshold.distance - _filter.distance(data.benchmark, kept)),
        "worse": threshold.distance - best,
    }


def _off(data: Losses, value: float) -> dict[str, float]:
    """How far the loop's threshold is from the exact one: nobody's limit."""
    return {"off": abs(value - loss_threshold(data.benchmark, data.losses).value)}


def _around(data: Losses, band: Band) -> dict[str, float]:
    value = loss_threshold(data.benchmark, data.losses).value
    return {"outside": float(not band.low <= value <= band.high)}


def _streamed(data: LossFile, threshold: LossThreshold) -> dict[str, float]:
    """Check distance and number of kept losses by counts, chunk by chunk."""
    ordered, edges, kept = np.sort(data.benchmark), np.unique(data.benchmark), 0
    sides: tuple[Literal["left"], Literal["right"]] = "left", "right"
    counts = np.zeros((2, len(edges)), np.int64)
    for part in data.chunks():
        part = np.sort(part[part <= threshold.value])
        counts += [np.searchsorted(part, edges, side) for side in sides]
        kept += len(part)
    ours = np.array([np.searchsorted(ordered, edges, side) for side in sides])
    # The largest gap is at one of the benchmark's losses, or just before it.
    gap = np.abs(ours / len(ordered) - counts / kept).max()
    return {"error": abs(gap - threshold.distance) + abs(kept - threshold.n_kept)}


def _shared(data: Losses) -> dict[str, np.ndarray]:
    parts = np.array_split(data.losses, _CLIENTS)
    return {str(i): part for i, part in enumerate(parts)}


def _messages(data: Losses, server: FilterServer) -> dict[str, float]:
    central = loss_threshold(data.benchmark, data.losses)
    wrong = np.sum(server.verdict.keeps(data.losses) != central.keeps(data.losses))
    owners, most = _shared(data), 0
    again = filter_server(data.benchmark, [*owners])
    while (question := again.question) is not None:
        sent = [count_losses(question, owners[c], client=c) for c in again.clients]
        most = max(most, *(message.nbytes for message in sent))
        again = again.receive(sent)
    return {"wrong": float(wrong), "bytes": float(most), "rounds": server.round}


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_filter", cases))
