"""How often 95 % intervals hold the exact value: `python -m benchmarks.intervals`.

Games whose values are known by enumeration, most of them hard for standard errors:
utilities that follow coalition sizes, rare pivots, ties, dummies, noise, and trainings
on small tables. An interval is a value plus or minus 1.96 standard errors; coverage is
the share of intervals, over seeds and players, that hold the exact value. `--write`
keeps the table as INTERVALS.md beside this file.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxsel import value

N = 12
ROUNDING = 1e-6  # of the largest value, or of the utility's range if that is more
HERE = Path(__file__).parent
LOWEST, HIGHEST = 0.90, 0.99  # coverage that is asked of the mean over games


class Row(NamedTuple):
    """Coverage of an estimator's intervals, and the size of its errors, by game.

    Attributes:
        coverage: Share of intervals that hold the exact value.
        error: Root of the mean squared error, as a share of the utility's range.
        claimed: The same of the standard errors.
    """

    coverage: dict[str, float]
    error: dict[str, float]
    claimed: dict[str, float]

    @property
    def mean(self) -> float:
        """Mean coverage over games."""
        return float(np.mean([*self.coverage.values()]))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if the mean of an estimator is out of its bounds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intervals")
    add = parser.add_argument
    add("--only", action="append", metavar="NAME", help="only this estimator")
    add("--seeds", type=int, default=50, help="runs of each estimator (50)")
    add("--write", action="store_true", help="write INTERVALS.md")
    args = parser.parse_args(argv)
    table = {
        name: measure(estimator, args.seeds)
        for name, estimator in ESTIMATORS.items()
        if not args.only or name in args.only
    }
    passes = not args.only or any(name in args.only for name in PASSES)
    if passes:
        table |= {name: of_passes(make, args.seeds) for name, make in PASSES.items()}
    text = as_text(table, args.seeds)
    print(text)
    if args.write:
        (HERE / "INTERVALS.md").write_text(text)
    return int(not all(LOWEST <= row.mean <= HIGHEST for row in table.values()))


def as_text(table: Mapping[str, Row], seeds: int) -> str:
    """Return the tables, a line for each estimator."""
    lines = [
        "# Coverage of 95 % intervals",
        "",
        f"Made by `python -m benchmarks.intervals --write` ({seeds} seeds). The share "
        "of intervals, value ± 1.96 standard errors, that hold the exact value. In "
        "brackets the root mean square of standard errors, in units of that of errors: "
        "above 1 they are too large. A cell of 1.00 (exact) is of errors below 1e-6 of "
        "the utility's range: only rounding is left to cover.",
        "",
    ]
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, row in table.items():
        kinds.setdefault(tuple(row.coverage), []).append(name)
    for games, names in kinds.items():
        lines.append(f"| estimator and samples | mean | {' | '.join(games)} |")
        lines.append("|---" * (len(games) + 2) + "|")
        for name in names:
            row = table[name]
            cells = [
                f"{row.coverage[game]:.2f} "
                + (
                    "(exact)"
                    if row.error[game] < ROUNDING
                    else f"({row.claimed[game] / row.error[game]:.2g})"
                )
                for game in games
            ]
            lines.append(f"| {name} | {row.mean:.3f} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


class Estimator(NamedTuple):
    """An estimator, its number of samples, and the semivalue that it estimates."""

    call: Callable[..., Any]
    samples: int
    kind: Any = "shapley"
    options: Mapping[str, Any] = {}  # of the exact value as well

    def __call__(self, utility: Any, key: jax.Array) -> Any:
        stop = value.MaxSamples(self.samples)
        return self.call(utility, key=key, stop=stop, **self.options)


_permutations = functools.partial(value.tmc_shapley, tolerance=0)
_adjusted = {
    kind: functools.partial(value.adjusted_semivalue, kind=kind)
    for kind in ("shapley", "banzhaf", "beta")
}
_SMALL = {"alpha": 16.0, "beta": 1.0}
_MILD = {"alpha": 4.0, "beta": 1.0}

ESTIMATORS: dict[str, Estimator] = {
    "tmc_shapley, 64": Estimator(_permutations, 64),
    "tmc_shapley, 256": Estimator(_permutations, 256),
    "beta_shapley(4, 1), 64": Estimator(value.beta_shapley, 64, "beta", _MILD),
    "beta_shapley(16, 1), 256": Estimator(value.beta_shapley, 256, "beta", _SMALL),
    "banzhaf, 100": Estimator(value.banzhaf, 100, "banzhaf"),
    "banzhaf, 512": Estimator(value.banzhaf, 512, "banzhaf"),
    "group_testing_shapley, 1000": Estimator(value.group_testing_shapley, 1000),
    "adjusted shapley, 60": Estimator(_adjusted["shapley"], 60),
    "adjusted shapley, 240": Estimator(_adjusted["shapley"], 240),
    "adjusted banzhaf, 60": Estimator(_adjusted["banzhaf"], 60, "banzhaf"),
    "adjusted banzhaf, 240": Estimator(_adjusted["banzhaf"], 240, "banzhaf"),
    "adjusted beta(4, 1), 120": Estimator(_adjusted["beta"], 120, "beta", _MILD),
    "adjusted beta(16, 1), 120": Estimator(_adjusted["beta"], 120, "beta", _SMALL),
}


def measure(
    estimator: Estimator, seeds: int, games: Sequence[str] | None = None
) -> Row:
    """Return the coverage of an estimator in some games, all of them if None."""
    runs: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, float]] = {}
    for name in games or GAMES:
        table = GAMES[name]()
        utility = _utility(table)
        exact = value.exact_semivalue(
            utility, kind=estimator.kind, **estimator.options
        ).values
        results = [estimator(utility, jax.random.key(100 + s)) for s in range(seeds)]
        runs[name] = *_numbers(results), np.asarray(exact, np.float64), np.ptp(table)
    return _row(runs)


def _numbers(results: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.stack([np.asarray(v.values, np.float64) for v in results]),
        np.stack([np.asarray(v.stderr, np.float64) for v in results]),
    )


def _row(runs: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray, float]]) -> Row:
    row = Row({}, {}, {})
    for name, (values, claimed, exact, reach) in runs.items():
        error = np.abs(values - exact)
        slack = ROUNDING * max(reach * 1e-3, float(np.abs(exact).max()))
        row.coverage[name] = float(np.mean(error <= 1.96 * claimed + slack))
        row.error[name] = float(np.sqrt(np.mean(error**2))) / reach
        row.claimed[name] = float(np.sqrt(np.mean(claimed**2))) / reach
    return row


def _utility(table: np.ndarray) -> Any:
    index = 1 << np.arange(N)
    return value.as_utility(lambda masks, key: table[np.asarray(masks) @ index], N)


def of_passes(make: Callable[..., Any], seeds: int) -> Row:
    """Return the coverage of an estimator of six points, on several tables.

    Its exact values are the mean over all bags, or all permutations, of six points.
    """
    runs: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, float]] = {}
    for name, data in _tables(6).items():
        estimate, exact = make(*data)
        results = [estimate(jax.random.key(100 + s)) for s in range(seeds)]
        runs[name] = *_numbers(results), exact, 1.0
    return _row(runs)


def _of_bags(x: Any, y: Any, x_val: Any, y_val: Any) -> Any:
    """Return `data_oob`, and its exact values by enumeration of all bags."""
    n, learner = len(x), value.NearestCentroid()
    draws = [
        np.bincount(bag, minlength=n)
        for bag in itertools.combinations_with_replacement(range(n), n)
    ]
    counts = np.array(draws, np.float32)
    often = [math.factorial(n) / math.prod(map(math.factorial, c)) for c in draws]
    data = value.Examples(x=jax.numpy.asarray(x), y=jax.numpy.asarray(y), n_classes=2)
    data = learner.prepare(data)
    del x_val, y_val
    params = learner.fit(data, jax.numpy.asarray(counts), jax.random.key(0), None)
    hits = np.asarray(learner.predict(params, data.x)).argmax(-1) == y
    weight = np.array(often)[:, None] * (counts == 0)
    exact = (weight * hits).sum(0) / weight.sum(0)
    stop = value.MaxSamples(200)
    return lambda key: value.data_oob(learner, x, y, key=key, stop=stop), exact


def _of_steps(x: Any, y: Any, x_val: Any, y_val: Any) -> Any:
    """Return `g_shapley`, and its exact values by enumeration of all permutations."""
    n, learner, rate = len(x), value.LogisticRegression(), 0.3
    scaled = (x - x.mean(0)) / x.std(0), (x_val - x.mean(0)) / x.std(0)
    data = value.Examples(
        x=jax.numpy.asarray(scaled[0], np.float32), y=jax.numpy.asarray(y), n_classes=2
    )
    ranks = np.array([*itertools.permutations(range(n))], np.int32)
    result = value._g_shapley.linear_passes(
        learner,
        "accuracy",
        data,
        jax.numpy.asarray(scaled[1], np.float32),
        jax.numpy.asarray(y_val),
        jax.numpy.asarray(ranks),
        jax.random.key(0),
        rate,
    )
    gained = np.diff(np.asarray(result, np.float64), axis=1)
    exact = np.take_along_axis(gained, ranks, axis=1).mean(0)
    options: dict[str, Any] = {
        "learning_rate": rate,
        "stop": value.MaxSamples(100),
    }
    return lambda key: value.g_shapley(
        learner, x, y, x_val, y_val, key=key, **options
    ), exact


PASSES: dict[str, Callable[..., Any]] = {
    "data_oob, 200": _of_bags,
    "g_shapley, 100": _of_steps,
}


def _tables(n: int) -> dict[str, tuple[np.ndarray, ...]]:
    """Draw n training points and 40 of validation, by name."""
    tables: dict[str, tuple[np.ndarray, ...]] = {}
    for name, apart in (("apart", 4.0), ("overlapping", 0.7), ("one flipped", 3.0)):
        rng = np.random.default_rng([n, len(name)])
        y, y_val = np.arange(n) % 2, np.arange(40) % 2
        x, x_val = (
            (rng.normal(size=(len(c), 2)) + apart * c[:, None]).astype(np.float32)
            for c in (y, y_val)
        )
        if name == "one flipped":
            y = np.append(y[:-1], 1 - y[-1])
        tables[name] = x, y.astype(np.int32), x_val, y_val.astype(np.int32)
    return tables


def _members() -> np.ndarray:
    return (np.arange(2**N)[:, None] >> np.arange(N) & 1).astype(np.float64)


def _sizes() -> np.ndarray:
    return _members().sum(1)


def _voting() -> np.ndarray:
    votes = np.random.default_rng(1).integers(1, 20, N)
    return (_members() @ votes > votes.sum() / 2) * 1.0


def _pairs() -> np.ndarray:
    """Return a game of four pairs that are worth something as long as both differ."""
    m = _members()
    odd = sum((m[:, 2 * i] != m[:, 2 * i + 1]) * (0.3 + 0.2 * i) for i in range(4))
    return np.asarray(odd + 0.5 * m[:, 8] * m[:, 9] + m[:, 10:].max(1))


@functools.cache
def _trained(metric: str) -> np.ndarray:
    """Return a game of 12 rows of breast cancer, scaled, by logistic regression."""
    from sklearn.datasets import load_breast_cancer

    bunch: Any = load_breast_cancer()
    x, y = np.asarray(bunch.data), np.asarray(bunch.target)
    rows = np.random.default_rng(3).permutation(len(y))
    x = ((x - x.mean(0)) / x.std(0))[rows, :6].astype(np.float32)
    y = y[rows]
    utility = value.ModelUtility(
        value.LogisticRegression(),
        *(x[:N], y[:N], x[100:300], y[100:300]),
        metric=metric,
    )
    parts = np.array_split(_members().astype(bool), 4)
    return np.concatenate([np.asarray(utility(p, None), np.float64) for p in parts])


GAMES: dict[str, Callable[[], Any]] = {
    "majority": lambda: (_sizes() > N / 2) * 1.0,
    "saturating": lambda: 1 - np.exp(-_sizes() / 3),
    "log size": lambda: np.log1p(_sizes()),
    "additive": lambda: _members() @ np.linspace(-1, 2, N),
    "unanimity": lambda: _members()[:, :4].all(1) * 1.0,
    "rare pivots": lambda: (_members() @ [10, 10, 10, *[1] * 9] > 30) * 1.0,
    "voting": _voting,
    "dummies": lambda: (_members()[:, :6].sum(1) >= 3) + 0.5 * _members()[:, 0],
    "pairs": _pairs,
    "noise": lambda: np.random.default_rng(2).normal(size=2**N),
    "accuracy": lambda: _trained("accuracy"),
    "likelihood": lambda: _trained("likelihood"),
}


if __name__ == "__main__":
    raise SystemExit(main())
