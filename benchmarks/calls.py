"""Twenty calls of the guides, first and second time, and how ten of them grow.

    python -m benchmarks.calls --write

A call runs twice in a process of its own, without JAX's persistent cache: the first
compiles. Then ten calls run on more and more rows; of three runs after a first, the
median counts. Times are CPU seconds. `--write` keeps the tables as CALLS.md, and the
picture as CALLS.svg.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ._fresh import in_new_process
from ._machine import describe
from ._threads import limit

HERE = Path(__file__).parent
D, CLASSES, VALIDATION, BUDGET = 64, 10, 100, 50
SIZES = 1000, 2000, 4000, 8000, 16_000
ROUNDS = 3


class Table(NamedTuple):
    """Overlapping classes, rows to validate, and losses.

    Attributes:
        x: `[n, 64]` float32.
        y: `[n]`.
        x_val: `[100, 64]`.
        y_val: `[100]`.
        losses: `[n]`.
    """

    x: np.ndarray
    y: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    losses: np.ndarray

    @classmethod
    def of(cls, n: int) -> Table:
        rng = np.random.default_rng(0)
        y = rng.integers(0, CLASSES, n + VALIDATION)
        x = rng.normal(size=(CLASSES, D))[y] + rng.normal(size=(len(y), D))
        x = x.astype(np.float32)
        losses = rng.exponential(size=n).astype(np.float32)
        return cls(x[:n], y[:n], x[n:], y[n:], losses)


def _model(table: Table) -> Any:
    from jaxsel import value

    return value.ModelUtility(value.LogisticRegression(), *table[:4])


def _key() -> Any:
    import jax

    return jax.random.key(0)


def calls() -> dict[str, tuple[int, Callable[[Table], Any]]]:
    """Return rows in the first table, and a call, by name."""
    import jaxsel
    from jaxsel import retrieve, value

    few = value.MaxSamples(64)
    return {
        "knn_shapley": (2000, lambda t: jaxsel.knn_shapley(*t[:4])),
        "knn_loo": (2000, lambda t: jaxsel.knn_loo(*t[:4])),
        "threshold_knn_shapley": (
            2000,
            lambda t: jaxsel.threshold_knn_shapley(*t[:4], radius=10.0),
        ),
        "mmd_values": (2000, lambda t: jaxsel.mmd_values(t.x, t.x_val)),
        "max_shapley": (2000, lambda t: jaxsel.max_shapley(np.abs(t.x_val @ t.x.T))),
        "influence": (2000, lambda t: jaxsel.influence(*t[:4])),
        "loo": (500, lambda t: jaxsel.loo(_model(t), key=_key())),
        "tmc_shapley": (
            100,
            lambda t: jaxsel.tmc_shapley(_model(t), key=_key(), stop=few),
        ),
        "data_oob": (
            500,
            lambda t: jaxsel.data_oob(
                value.LogisticRegression(), t.x, t.y, key=_key(), stop=few
            ),
        ),
        "find_label_errors": (2000, lambda t: jaxsel.find_label_errors(t.x, t.y)),
        "omp": (2000, lambda t: jaxsel.omp(t.x, t.x[::8].sum(0), BUDGET)),
        "grad_match": (
            2000,
            lambda t: jaxsel.grad_match(
                t.x, t.x_val, BUDGET, labels=t.y, hard_labels=t.y_val
            ),
        ),
        "func_feat": (
            2000,
            lambda t: jaxsel.func_feat(t.x, t.x_val, t.x, t.x_val, BUDGET),
        ),
        "herding": (2000, lambda t: jaxsel.herding(t.x, t.x.mean(0), BUDGET)),
        "facility_location": (2000, lambda t: jaxsel.facility_location(t.x, BUDGET)),
        "retrieve_nearest": (
            2000,
            lambda t: jaxsel.retrieve_nearest(t.x, t.x_val, BUDGET),
        ),
        "retrieve_targeted": (
            2000,
            lambda t: jaxsel.retrieve_targeted(t.x, t.x_val, BUDGET),
        ),
        "retrieve_binned": (
            2000,
            lambda t: jaxsel.retrieve_binned(t.x, t.x_val, BUDGET),
        ),
        "duplicates": (2000, lambda t: retrieve.duplicates(t.x, threshold=0.95)),
        "loss_threshold": (
            2000,
            lambda t: jaxsel.loss_threshold(t.losses[:200], t.losses),
        ),
    }


GROWN = (
    "knn_shapley",
    "knn_loo",
    "mmd_values",
    "influence",
    "find_label_errors",
    "omp",
    "func_feat",
    "retrieve_nearest",
    "duplicates",
    "loss_threshold",
)
"""Calls that run on more and more rows."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; with `--call`, one line of JSON of that call's figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls")
    add = parser.add_argument
    add("--call", metavar="NAME", help="run this call alone, in this process")
    add("--rounds", type=int, default=ROUNDS, help=f"processes a call ({ROUNDS})")
    add("--write", action="store_true", help="write CALLS.md and CALLS.svg")
    args = parser.parse_args(argv)
    if args.call:
        print(json.dumps(_twice(args.call)))
        return 0
    names = list(calls())
    runs = {name: [_fresh(name) for _ in range(args.rounds)] for name in names}
    limit()
    grown = {name: [_later(name, n) for n in SIZES] for name in GROWN}
    text = as_text(runs, grown)
    print(text)
    if args.write:
        (HERE / "CALLS.md").write_text(text)
        _draw(grown, HERE / "CALLS.svg")
    return 0


def _fresh(name: str) -> tuple[float, float]:
    """Run a call in a new process, and return CPU seconds of both times."""
    first, second = in_new_process("benchmarks.calls", "--call", name)
    return first, second


def _twice(name: str) -> list[float]:
    rows, call = calls()[name]
    table = Table.of(rows)
    return [_cpu(call, table) for _ in range(2)]


def _later(name: str, n: int) -> float:
    """Return the median CPU seconds of calls that compile nothing."""
    _, call = calls()[name]
    table = Table.of(n)
    call(table)
    return statistics.median(_cpu(call, table) for _ in range(3))


def _cpu(call: Callable[[Table], Any], table: Table) -> float:
    import jax

    start = time.process_time()
    jax.block_until_ready(call(table))
    return time.process_time() - start


def slope(seconds: Sequence[float]) -> float:
    """Return the power of n by which the last four sizes' seconds grow."""
    n, t = np.log(SIZES[-4:]), np.log(seconds[-4:])
    return float(np.polyfit(n, t, 1)[0])


def as_text(
    runs: dict[str, list[tuple[float, float]]], grown: dict[str, list[float]]
) -> str:
    """Write the page."""
    rows = {name: size for name, (size, _) in calls().items()}
    first = [
        f"| `{name}` | {rows[name]:,} | {medians[0]:.2f} | {medians[1]:.4f} |"
        for name, of_name in runs.items()
        for medians in [
            [statistics.median(part) for part in zip(*of_name, strict=True)]
        ]
    ]
    later = [
        f"| `{name}` | "
        + " | ".join(f"{s:.4f}" for s in seconds)
        + f" | {slope(seconds):.2f} |"
        for name, seconds in grown.items()
    ]
    device = describe()["device"]
    return "\n".join(
        [
            "# First calls, second calls, and growth",
            "",
            f"Made by `python -m benchmarks.calls --write` on {device['kind']}; its "
            "docstring has",
            f"the set-up. CPU seconds. Rows have {D} numbers and {CLASSES} classes; "
            f"{VALIDATION} rows validate, or",
            f"are hard samples; {BUDGET} are chosen.",
            "",
            "| call | rows | first call | second call |",
            "| --- | --: | --: | --: |",
            *first,
            "",
            "Second calls on more rows, on one thread, and the power of the number of "
            "rows by which",
            "the last four grow:",
            "",
            "| call | " + " | ".join(f"{n:,}" for n in SIZES) + " | power |",
            "| --- | " + "--: | " * (len(SIZES) + 1),
            *later,
            "",
            "![CPU seconds of ten calls against rows, on logarithmic axes](CALLS.svg)",
            "",
        ]
    )


def _draw(grown: dict[str, list[float]], path: Path) -> None:
    from jaxsel.report import new_figure, style

    with style():
        figure = new_figure(7.0, 4.5)
        ax = figure.subplots()
        for i, (name, seconds) in enumerate(grown.items()):
            mark = "o-" if i < 5 else "s--"
            label = f"{name}: n^{slope(seconds):.1f}"
            ax.plot(SIZES, seconds, mark, color=f"C{i % 5}", label=label)
        ax.set(xscale="log", yscale="log", xlabel="rows", ylabel="CPU seconds")
        ax.legend(ncols=2, fontsize="small")
        figure.savefig(path)


if __name__ == "__main__":
    raise SystemExit(main())
