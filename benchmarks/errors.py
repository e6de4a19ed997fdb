"""Squared errors of Shapley values at equal trainings: `python -m benchmarks.errors`.

Games of 14 players with all utilities computed, so that errors are known. Each
estimator gets the same number of utilities, of no players and of all not counted; for
permutations the nearest whole number of permutations.

`--shapiq PYTHON` adds the estimators of shapiq, run by an interpreter that has it:
`python3.12 -m venv shapiq`, and there `pip install shapiq==1.8.0 xgboost lightgbm`.
`--write` keeps every game in `errors.json` once it is measured, and at the end renders
ERRORS.md from there; `--resume` skips games that are there. Both sides run on one
thread. With shapiq it takes about half an hour of CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsel import value

from ._error_tables import OURS, PERMUTATIONS, TESTING, Record, as_text
from ._games import GAMES, shapley

N = 14
A_POINT = 10, 40, 160  # trainings for each player
FEW_A_POINT = 4, 10, 40  # of the kinds
HERE = Path(__file__).parent
RECORD = HERE / "errors.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, and return 1 if ours is not twice as exact as permutations."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.errors")
    add = parser.add_argument
    add("--quick", action="store_true", help="8 players and few seeds; not to be kept")
    add("--only", action="append", metavar="GAME", help="only this game")
    add("--seeds", type=int, default=20, help="runs of each estimator (20)")
    add("--searched", type=int, default=4, help="runs that search a grid (4)")
    add("--kinds", action="store_true", help="what estimate_semivalue chooses by")
    add("--shapiq", metavar="PYTHON", help="an interpreter that has shapiq")
    add("--write", action="store_true", help="keep errors.json, write ERRORS.md")
    add("--resume", action="store_true", help="skip what errors.json has")
    args = parser.parse_args(argv)
    n, seeds = (8, 4) if args.quick else (N, args.seeds)
    if args.kinds:
        return of_kinds(args.only or GAMES, n, seeds)
    if args.quick and (args.write or args.resume):
        parser.error("--quick is not to be kept: leave out --write and --resume")
    record = Record(seeds, args.searched)
    if args.resume and RECORD.exists():
        record = Record.load(RECORD)
        if (record.seeds, record.searched) != (seeds, args.searched):
            parser.error(
                f"--seeds and --searched must be {record.seeds} and {record.searched}, "
                f"as kept in errors.json, got {seeds} and {args.searched}"
            )
    for name, make in GAMES.items():
        if args.only and name not in args.only:
            continue
        sizes = A_POINT[:1] if args.quick else A_POINT
        missing = [size for size in sizes if (name, size) not in record.rows]
        table = make(n) if missing else None
        for size in missing:
            runs = ours(table, n, size * n, seeds)
            if args.shapiq:
                numbers = n, size * n, seeds, args.searched
                record.shapiq, others = theirs(args.shapiq, table, *numbers)
                runs |= others
            record.add(name, size, runs)
            print(name, size, json.dumps(record.rows[name, size]), flush=True)
            if args.write:
                record.save(RECORD)
    text = as_text(record)
    print(text)
    if args.write:
        (HERE / "ERRORS.md").write_text(text)
    rows = record.rows.values()
    return int(any(2 * row[OURS].error > row[PERMUTATIONS].error for row in rows))


def ours(table: Any, n: int, budget: int, seeds: int) -> dict[str, Any]:
    """Measure our estimators of Shapley values on a game.

    Args:
        table: Utilities, `[2**n]`; bit i of the index says whether player i is in.
        n: Number of players.
        budget: Utilities for each run.
        seeds: Number of runs.

    Returns:
        For each estimator `squares`, the mean squared error of every run, and
        `seconds`, the median CPU time of a run.
    """
    exact, game = shapley(table, n), _game(table, n)
    estimators: dict[str, tuple[Callable[..., Any], int]] = {
        OURS: (value.adjusted_semivalue, pairs(budget)),
        PERMUTATIONS: (
            partial(value.tmc_shapley, tolerance=0),
            max(1, round(budget / (n - 1))),
        ),
        TESTING: (value.group_testing_shapley, budget),
    }
    runs: dict[str, Any] = {}
    for name, (call, most) in estimators.items():
        squares: list[float] = []
        seconds: list[float] = []
        for seed in range(seeds):
            start = time.process_time()
            values = call(game, stop=value.MaxSamples(most), key=jax.random.key(seed))
            squares.append(_square(values, exact))
            seconds.append(time.process_time() - start)
        runs[name] = {"squares": squares, "seconds": float(np.median(seconds))}
    return runs


def of_kinds(names: Iterable[str], n: int, seeds: int) -> int:
    """Print the ratio of the errors of plain estimates to adjusted ones."""
    for name in names:
        game = _game(GAMES[name](n), n)
        for kind in ("shapley", "banzhaf", "beta"):
            options: dict[str, Any] = {"kind": kind, "alpha": 4.0}
            exact = np.asarray(value.exact_semivalue(game, **options).values)
            for times in FEW_A_POINT:
                estimate = partial(value.estimate_semivalue, game, times * n, **options)
                plain, adjusted = (
                    _error(partial(estimate, method=method), exact, seeds)
                    for method in ("plain", "adjusted")
                )
                print(name, kind, times, f"{plain / adjusted:.2f}", flush=True)
    return 0


def pairs(budget: int) -> int:
    """Return the samples of `adjusted_semivalue` that take `budget` utilities."""
    return budget // 2


def _game(table: np.ndarray, n: int) -> Any:
    index = 1 << np.arange(n)
    return value.as_utility(lambda masks, key: table[np.asarray(masks) @ index], n)


def _square(values: Any, exact: np.ndarray) -> float:
    return float(np.mean((np.asarray(values.values, np.float64) - exact) ** 2))


def _error(estimate: Callable[..., Any], exact: np.ndarray, seeds: int) -> float:
    """Return the mean squared error over seeds and players."""
    keys = map(jax.random.key, range(seeds))
    return float(np.mean([_square(estimate(key=key), exact) for key in keys]))


def theirs(
    python: str, table: Any, n: int, budget: int, seeds: int, searched: int
) -> tuple[str, dict[str, Any]]:
    """Measure the estimators of shapiq, run by another interpreter on one thread.

    Returns:
        The version of shapiq, and runs as from `ours`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "game.npz"
        np.savez(path, table=table, exact=shapley(table, n))
        size = [str(number) for number in (n, budget, seeds, searched)]
        done = subprocess.run(
            [python, str(HERE / "_shapiq.py"), str(path), *size],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["version"], answer["runs"]


if __name__ == "__main__":
    raise SystemExit(main())
