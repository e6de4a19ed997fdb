"""Gains of an owner that copies its data: `python -m benchmarks.replication`.

Six owners of digits. Each in turn hands in its points k times; the others do not.
The table has its value then, as a multiple of its value with one copy: the ratio of the
means over owners and draws of the data. `--write` keeps it as REPLICATION.md.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jaxsel
from jaxsel import value

from . import _retrain

OWNERS, POINTS, COPIES, K = 6, 16, (1, 2, 5, 10), 5
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Value = Callable[[Data, np.ndarray], Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replication")
    add = parser.add_argument
    add("--quick", action="store_true", help="one draw, two owners, two copies")
    add("--draws", type=int, default=2, help="of the data (2)")
    add("--write", action="store_true", help="write REPLICATION.md")
    args = parser.parse_args(argv)
    copies = COPIES[:2] if args.quick else COPIES
    totals: dict[tuple[str, int], list[float]] = defaultdict(list)
    for draw in range(1 if args.quick else args.draws):
        data, owners = _drawn(draw)
        for cheat in range(2 if args.quick else OWNERS):
            for count in copies:
                arrays, whose = _copied(data, owners, cheat, count)
                for name, of in VALUES.items():
                    result = of(arrays, whose)
                    rank = result.index.index(cheat)
                    totals[name, count].append(float(result.values[rank]))
            print(f"draw {draw}, owner {cheat} done", flush=True)
    text = _as_text(totals, copies)
    print(text)
    if args.write:
        (Path(__file__).parent / "REPLICATION.md").write_text(text)
    return 0


def _as_text(totals: dict[tuple[str, int], list[float]], copies: Sequence[int]) -> str:
    lines = [
        "# Gains by copies",
        "",
        f"Made by `python -m benchmarks.replication --write`: {OWNERS} owners of "
        f"{POINTS} digits each, K = {K}. What an owner is worth that hands in its data "
        "so many times, as a multiple of its value with one copy.",
        "",
        "| value | " + " | ".join(f"{count} copies" for count in copies[1:]) + " |",
        "|---|" + "---|" * (len(copies) - 1),
    ]
    for name in VALUES:
        base = np.mean(totals[name, 1])
        ratios = [np.mean(totals[name, count]) / base for count in copies[1:]]
        lines.append(f"| {name} | " + " | ".join(f"{r:.2f}" for r in ratios) + " |")
    return "\n".join(lines) + "\n"


def _drawn(seed: int) -> tuple[Data, np.ndarray]:
    task = _retrain.digits(1200)
    n = OWNERS * POINTS
    rows = np.random.default_rng(seed).permutation(len(task.y))[:n]
    return (task.x[rows], task.y[rows], task.x_val, task.y_val), np.arange(n) % OWNERS


def _copied(
    data: Data, owners: np.ndarray, cheat: int, count: int
) -> tuple[Data, np.ndarray]:
    x, y, x_val, y_val = data
    times = np.where(owners == cheat, count, 1)
    # Copies are in random places: where distances are equal, the order decides.
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(len(y)), times))
    return (x[rows], y[rows], x_val, y_val), owners[rows]


def _sum(function: Callable[..., Any], **options: Any) -> Value:
    return lambda data, owners: function(*data, owners=owners, **options)


def _knn_game(function: Callable[..., Any], **options: Any) -> Value:
    return lambda data, owners: function(
        value.knn_utility(*data, k=K), owners=owners, **options
    )


def _trained_game(function: Callable[..., Any], **options: Any) -> Value:
    def of(data: Data, owners: np.ndarray) -> Any:
        learner = value.LogisticRegression()
        utility = value.ModelUtility(learner, *data, metric="accuracy")
        return function(utility, owners=owners, **options)

    return of


VALUES: dict[str, Value] = {
    "`knn_shapley`, sum of points": _sum(jaxsel.knn_shapley, k=K, ties="average"),
    "`knn_beta_shapley` (16, 1), sum": _sum(
        jaxsel.knn_beta_shapley, k=K, ties="average"
    ),
    "`knn_banzhaf`, sum": _sum(jaxsel.knn_banzhaf, k=K, ties="average"),
    "`knn_loo`, sum": _sum(jaxsel.knn_loo, k=K, ties="average"),
    "KNN, Shapley of owners": _knn_game(value.exact_shapley),
    "KNN, Beta (16, 1) of owners": _knn_game(value.exact_semivalue, kind="beta"),
    "KNN, Banzhaf of owners": _knn_game(value.exact_semivalue, kind="banzhaf"),
    "KNN, leaving out an owner": _knn_game(value.loo),
    "logistic, Shapley of owners": _trained_game(value.exact_shapley),
    "logistic, Beta (16, 1) of owners": _trained_game(
        value.exact_semivalue, kind="beta"
    ),
    "logistic, Banzhaf of owners": _trained_game(value.exact_semivalue, kind="banzhaf"),
    "logistic, leaving out an owner": _trained_game(value.loo),
}


if __name__ == "__main__":
    raise SystemExit(main())
