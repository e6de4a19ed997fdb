"""Squared errors of Shapley values at equal trainings: `python -m benchmarks.errors`.

Games of 14 players whose utilities were all computed, so that errors are known. Each
estimator gets the same number of utilities, of no players and of all not counted.
`--shapiq PYTHON` adds the estimators of shapiq, run by an interpreter that has it, as
it pins its dependencies: `python -m venv shapiq`, and there `pip install
shapiq==1.4.1`. All of its estimators of Shapley values are there but ProxySPEX, which
takes over a second of CPU time where the others take hundredths. `--write` keeps the
table as ERRORS.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsel import value

from . import _retrain

N = 14
A_POINT = 10, 40, 160  # trainings for each player
FEW_A_POINT = 4, 10, 40  # of the kinds
OURS = "jaxsel adjusted_semivalue"
PERMUTATIONS = "jaxsel permutations"
HERE = Path(__file__).parent


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, and return 1 if ours is not twice as exact as permutations."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.errors")
    add = parser.add_argument
    add("--quick", action="store_true", help="8 players and few seeds; not to be kept")
    add("--only", action="append", metavar="GAME", help="only this game")
    add("--seeds", type=int, default=20, help="runs of each estimator (20)")
    add("--kinds", action="store_true", help="what estimate_semivalue chooses by")
    add("--shapiq", metavar="PYTHON", help="an interpreter that has shapiq")
    add("--write", action="store_true", help="write ERRORS.md")
    args = parser.parse_args(argv)
    n, seeds = (8, 4) if args.quick else (N, args.seeds)
    if args.kinds:
        return of_kinds(args.only or GAMES, n, seeds)
    rows: list[tuple[str, int, dict[str, float]]] = []
    for name, make in GAMES.items():
        if args.only and name not in args.only:
            continue
        table = make(n)
        for each in A_POINT[:1] if args.quick else A_POINT:
            errors = ours(table, n, each * n, seeds)
            if args.shapiq:
                errors |= theirs(args.shapiq, table, n, each * n, seeds)
            rows.append((name, each, errors))
            print(name, each, json.dumps(errors), flush=True)
    text = as_text(rows, seeds)
    print(text)
    if args.write:
        (HERE / "ERRORS.md").write_text(text)
    return int(any(2 * e[OURS] > e[PERMUTATIONS] for _, _, e in rows))


def as_text(rows: list[tuple[str, int, dict[str, float]]], seeds: int) -> str:
    """Return the table, in units of the error of permutations, the larger the better.

    Of shapiq the best estimator of each row, with its name.
    """
    lines = [
        "# Errors at equal trainings",
        "",
        f"Made by `python -m benchmarks.errors --write` ({seeds} seeds). The mean "
        "squared error of Shapley values, as a share of the variance of the utility, "
        "and how many times it is below that of permutations.",
        "",
        "| game | trainings a player | permutations | group testing | adjusted | times "
        "below permutations | best of shapiq | times below it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, each, errors in rows:
        mine, base = errors[OURS], errors[PERMUTATIONS]
        others = {k: v for k, v in errors.items() if not k.startswith("jaxsel")}
        best, ratio = "–", "–"
        if others:
            first = min(others, key=lambda k: others[k])
            best = f"{first}: {others[first]:.2e}"
            ratio = f"{others[first] / mine:.2f}"
        lines.append(
            f"| {name} | {each} | {base:.2e} | {errors['jaxsel group testing']:.2e} | "
            f"{mine:.2e} | {base / mine:.1f} | {best} | {ratio} |"
        )
    return "\n".join(lines) + "\n"


def ours(table: np.ndarray, n: int, budget: int, seeds: int) -> dict[str, float]:
    """Return mean squared errors of our estimators."""
    exact, game = shapley(table, n), _game(table, n)
    estimators: dict[str, tuple[Callable[..., Any], int]] = {
        OURS: (value.adjusted_semivalue, budget // 2),
        PERMUTATIONS: (
            partial(value.tmc_shapley, tolerance=0),
            max(1, round(budget / (n - 1))),
        ),
        "jaxsel group testing": (value.group_testing_shapley, budget),
    }
    return {
        name: _error(partial(call, game, stop=value.MaxSamples(most)), exact, seeds)
        for name, (call, most) in estimators.items()
    }


def of_kinds(names: Iterable[str], n: int, seeds: int) -> int:
    """Print how many times the error of plain estimates is that of adjusted ones."""
    for name in names:
        game = _game(GAMES[name](n), n)
        for kind in ("shapley", "banzhaf", "beta"):
            options: dict[str, Any] = {"kind": kind, "alpha": 4.0}
            exact = np.asarray(value.exact_semivalue(game, **options).values)
            for each in FEW_A_POINT:
                estimate = partial(value.estimate_semivalue, game, each * n, **options)
                plain, adjusted = (
                    _error(partial(estimate, method=method), exact, seeds)
                    for method in ("plain", "adjusted")
                )
                print(name, kind, each, f"{plain / adjusted:.2f}", flush=True)
    return 0


def _game(table: np.ndarray, n: int) -> Any:
    index = 1 << np.arange(n)
    return value.as_utility(lambda masks, key: table[np.asarray(masks) @ index], n)


def _error(estimate: Callable[..., Any], exact: np.ndarray, seeds: int) -> float:
    """Return the mean squared error over seeds and players."""
    found = [estimate(key=jax.random.key(seed)).values for seed in range(seeds)]
    return float(np.mean((np.asarray(found, np.float64) - exact) ** 2))


def theirs(
    python: str, table: np.ndarray, n: int, budget: int, seeds: int
) -> dict[str, float]:
    """Return those of shapiq, from another interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "game.npz"
        np.savez(path, table=table, exact=shapley(table, n))
        size = [str(number) for number in (n, budget, seeds)]
        done = subprocess.run(
            [python, str(HERE / "_shapiq.py"), str(path), *size],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


def shapley(table: np.ndarray, n: int) -> np.ndarray:
    """Return the Shapley values of a game by their definition, in float64."""
    index = np.arange(2**n)
    size = np.bitwise_count(index)
    chance = np.array([1.0])
    for s in range(1, n):
        chance = np.append(chance, chance[-1] * s / (n - s))
    values: list[float] = []
    for i in range(n):
        without = index[index >> i & 1 == 0]
        gained = table[without | 1 << i] - table[without]
        values.append(float(gained @ chance[size[without]]) / n)
    return np.array(values)


def _members(n: int) -> np.ndarray:
    return np.arange(2**n)[:, None] >> np.arange(n) & 1


def _scaled(table: np.ndarray) -> np.ndarray:
    table = np.asarray(table, np.float64)
    return table / table.std()


def _airport(n: int) -> np.ndarray:
    cost = np.arange(1, n + 1) ** 1.5
    return _scaled((_members(n) * cost).max(1))


def _voting(n: int) -> np.ndarray:
    votes = np.random.default_rng(0).integers(1, 20, n)
    return _scaled(_members(n) @ votes > votes.sum() / 2)


def _interactions(n: int) -> np.ndarray:
    rng, members = np.random.default_rng(1), _members(n)
    table = np.zeros(2**n)
    for _ in range(5 * n):
        some = rng.choice(n, min(n, 1 + rng.geometric(0.4)), replace=False)
        table += rng.normal() * members[:, some].all(1)
    return _scaled(table)


def _noise(n: int) -> np.ndarray:
    return _scaled(np.random.default_rng(2).normal(size=2**n))


def _points(metric: Any) -> Callable[[int], np.ndarray]:
    """Return a game of points: logistic regression on two Gaussian classes."""

    def table(n: int) -> np.ndarray:
        task = _retrain.gaussians(n, 3)
        return _trained(task, np.arange(n), metric)

    return table


def _digits(n: int) -> np.ndarray:
    """Return a game of owners of ten digits each, of ten classes."""
    return _trained(_retrain.digits(10 * n), np.arange(10 * n) % n, "accuracy")


def _trained(task: Any, owners: np.ndarray, metric: Any) -> np.ndarray:
    learner = value.LogisticRegression()
    data = task.x, task.y, task.x_val, task.y_val
    utility = value.by_owner(value.ModelUtility(learner, *data, metric=metric), owners)
    masks = _members(utility.n).astype(bool)
    parts = [
        utility(part, None) for part in np.array_split(masks, max(1, len(masks) >> 10))
    ]
    return _scaled(np.concatenate(parts))


GAMES: dict[str, Callable[[int], np.ndarray]] = {
    "logistic, likelihood": _points("likelihood"),
    "logistic, accuracy": _points("accuracy"),
    "digits by owner": _digits,
    "airport": _airport,
    "voting": _voting,
    "interactions": _interactions,
    "noise": _noise,
}


if __name__ == "__main__":
    raise SystemExit(main())
