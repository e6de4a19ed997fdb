"""Owners' values by matching, against retraining: `python -m benchmarks.owners`.

Twenty owners of digits, or of posts in ten newsgroups: twelve with some classes each,
five that hand in the rows of the first five with a little noise, and three with random
labels. The buyer has trained logistic regression on rows in which half of the classes
are rare. Its gradients at that model are the vectors, its validation samples' the
targets. Posts are the 64 main directions of MiniLM's features, whose head the
regression is; encoding them takes a minute or two, once.

The truth is the Shapley value of owners in the log loss of validation samples when the
model is trained again with their rows; a purchase of six owners is compared with the
best that a search by retraining reaches. Beside `market.value_datasets` stands one-step
alignment: the inner product of an owner's mean gradient with the target. "Short list"
trains on the sets that eight settings buy, and takes the best: four dampings of the
Hessian and two of the weights, which were set on deals 100 to 107 of digits.
`--write` keeps the table as OWNERS.md beside this file.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

from jaxsel import value
from jaxsel.data import load
from jaxsel.market import value_datasets

from .targeted import encoded

HERE = Path(__file__).parent
HONEST, COPIES, NOISE = 12, 5, 3
N = HONEST + COPIES + NOISE
CLASSES = 10
RARE, COMMON = 3, 30  # rows of a class that the buyer has
SIZES = 15, 50  # rows of an owner
MANY = 40  # rows of an owner with random labels
SOURCES = "digits", "posts"
BUY = 6  # owners
ROWS = 1797  # of a source: all digits, and as many posts
DIRECTIONS, LENGTH = 64, 2.0  # of the posts' features, as of digits without mean
DAMPING = 0.1  # added to the diagonal of the Hessian
SHOWN = 0.1, 0.01
DAMPINGS, PENALTIES = (0.003, 0.01, 0.03, 0.1), (1e-3, 0.1)  # of the short list
TRAININGS = 800  # of the truth's estimate


class Deal(NamedTuple):
    """Rows of owners and of the buyer.

    Attributes:
        x: Rows of all owners, then the buyer's, `[n, d]`.
        y: Their labels.
        owners: Owner of each of the owners' rows.
        x_val: Validation rows: of the target, and of the utility of retraining.
        y_val: Their labels.
        x_test: Rows that judge purchases.
        y_test: Their labels.
    """

    x: np.ndarray
    y: np.ndarray
    owners: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


class Result(NamedTuple):
    """A method's values beside the truth, and the effect of its purchase.

    Attributes:
        correlation: Spearman's correlation of its values with the truth.
        loss: Log loss of validation rows after the purchase, over that of the best.
        test: The same of test rows.
        pairs: Copy pairs of which it buys both.
        seconds: CPU seconds, the first call of a process with its compilation.
    """

    correlation: float
    loss: float
    test: float
    pairs: int
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; write it if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.owners")
    add = parser.add_argument
    add("--seeds", type=int, default=5, help="deals (5)")
    add("--trainings", type=int, default=TRAININGS, help=f"of the truth ({TRAININGS})")
    add("--sources", nargs="+", default=SOURCES, choices=SOURCES, help="of rows")
    add("--write", action="store_true", help="write OWNERS.md")
    args = parser.parse_args(argv)
    runs = {
        name: [measure(seed, args.trainings, name) for seed in range(args.seeds)]
        for name in args.sources
    }
    text = as_text(runs, args.trainings)
    print(text)
    if args.write:
        (HERE / "OWNERS.md").write_text(text)
    return 0


@functools.cache
def source(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of ten classes: of digits, or of encoded posts."""
    if name == "digits":
        digits = load("digits")
        return digits.as_features().astype(np.float64), np.asarray(digits.y)
    posts = encoded("newsgroups", "test")
    kept = posts.y % 2 == 0
    x, y = posts.x[kept].astype(np.float64), posts.y[kept] // 2
    main = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2][:DIRECTIONS]
    x = (x - x.mean(axis=0)) @ main.T
    return LENGTH * x / np.sqrt(np.mean(np.sum(x**2, axis=1))), y


def deal(seed: int, name: str = "digits") -> Deal:
    """Draw the buyer's rows, honest owners, near copies of the first, and noise."""
    (x, y), rng = source(name), np.random.default_rng(seed)
    rows = rng.permutation(len(y))[:ROWS]
    x, y = x[rows], y[rows]
    val, test, pool = np.split(np.arange(len(y)), [250, 500])
    rare = rng.permutation(CLASSES)[: CLASSES // 2]
    counts = np.where(np.isin(np.arange(CLASSES), rare), RARE, COMMON)
    base = np.concatenate([pool[y[pool] == c][: counts[c]] for c in range(CLASSES)])
    pool = np.setdiff1d(pool, base)
    xs, ys = [], []
    for _ in range(HONEST):
        classes = rng.choice(CLASSES, size=rng.integers(2, 5), replace=False)
        able = rng.permutation(pool[np.isin(y[pool], classes)])
        lot = able[: rng.integers(*SIZES)]
        if not len(lot):  # the classes are sold out
            lot = rng.choice(pool, SIZES[0], replace=False)
        pool = np.setdiff1d(pool, lot)
        xs.append(x[lot])
        ys.append(y[lot])
    for copied in range(COPIES):
        xs.append(xs[copied] + 0.02 * rng.normal(size=xs[copied].shape))
        ys.append(ys[copied])
    for _ in range(NOISE):
        xs.append(x[rng.choice(pool, MANY, replace=False)])
        ys.append(rng.integers(CLASSES, size=MANY))
    owners = np.repeat(np.arange(N), [len(part) for part in ys])
    x_all, y_all = np.concatenate([*xs, x[base]]), np.concatenate([*ys, y[base]])
    return Deal(x_all, y_all, owners, x[val], y[val], x[test], y[test])


class Retrained:
    """Score of the model trained on the rows of the buyer and of some owners."""

    def __init__(self, rows: Deal, x_val: np.ndarray, y_val: np.ndarray) -> None:
        """Prepare the utility of sets of owners.

        Args:
            rows: The deal.
            x_val: Rows to score on.
            y_val: Their labels.
        """
        learner = value.LogisticRegression()
        sides = rows.x, rows.y, x_val, y_val
        self.rows = rows
        self.of_points = value.ModelUtility(learner, *sides, metric="neg_log_loss")

    def __call__(self, masks: Any, key: Any = None) -> np.ndarray:
        """Return minus the log loss of each set of owners, `[B]`."""
        del key
        masks = np.asarray(masks, bool)
        # Few shapes, so that few programs are compiled.
        padded = np.zeros((1 << (len(masks) - 1).bit_length(), N), bool)
        padded[: len(masks)] = masks
        points = padded[:, self.rows.owners]
        base = np.ones((len(padded), len(self.rows.y) - points.shape[1]), bool)
        scores = self.of_points(np.concatenate([points, base], axis=1))
        return np.asarray(scores, np.float64)[: len(masks)]


def best_by_retraining(score: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the best set of six owners that adding and swapping owners reaches."""
    bought = np.zeros(N, bool)
    for _ in range(BUY):
        able = np.flatnonzero(~bought)
        more = bought | np.eye(N, dtype=bool)[able]
        bought = more[np.argmax(score(more))]
    best = score(bought[None])[0]
    while True:
        swaps = [
            bought ^ (np.arange(N) == i) ^ (np.arange(N) == j)
            for i in np.flatnonzero(bought)
            for j in np.flatnonzero(~bought)
        ]
        scores = score(np.stack(swaps))
        if scores.max() <= best + 1e-9:
            return bought
        bought, best = swaps[int(np.argmax(scores))], scores.max()


class Gradients(NamedTuple):
    """Gradients of the buyer's loss at its model.

    Attributes:
        owners: Mean gradient of each owner, `[20, p]`.
        targets: Gradients of validation samples, `[m, p]`.
        hessian: Hessian of their mean loss, `[p, p]`.
    """

    owners: np.ndarray
    targets: np.ndarray
    hessian: np.ndarray

    def damped(self, damping: float = DAMPING) -> np.ndarray:
        """Return the Hessian plus a multiple of the identity."""
        return self.hessian + damping * np.eye(len(self.hessian))


def gradients(rows: Deal) -> Gradients:
    """Train the buyer's model on its own rows, and differentiate its loss there."""
    from sklearn.linear_model import LogisticRegression

    base = slice(len(rows.owners), None)
    model = LogisticRegression(max_iter=2000).fit(rows.x[base], rows.y[base])

    def by_row(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        error = model.predict_proba(x) - np.eye(CLASSES)[y]
        ones = np.append(x, np.ones((len(x), 1)), axis=1)
        return np.einsum("nc,nd->ncd", error, ones).reshape(len(x), -1)

    of_rows = by_row(rows.x[: len(rows.owners)], rows.y[: len(rows.owners)])
    owners = np.stack([of_rows[rows.owners == o].mean(axis=0) for o in range(N)])
    p = model.predict_proba(rows.x_val)
    ones = np.append(rows.x_val, np.ones((len(p), 1)), axis=1)
    spread = np.einsum("nc,ce->nce", p, np.eye(CLASSES)) - p[:, :, None] * p[:, None]
    hessian = np.einsum("nce,na,nb->caeb", spread, ones, ones, optimize=True)
    size = CLASSES * ones.shape[1]
    hessian = hessian.reshape(size, size) / len(p)
    return Gradients(owners, by_row(rows.x_val, rows.y_val), hessian)


def measure(seed: int, trainings: int, name: str = "digits") -> dict[str, Result]:
    """Return the result of each method on one deal."""
    rows = deal(seed, name)
    score = Retrained(rows, rows.x_val, rows.y_val)
    test = Retrained(rows, rows.x_test, rows.y_test)
    utility: Any = value.as_utility(score, N)
    key = jax.random.key(seed)
    truth = value.estimate_semivalue(utility, trainings, key=key, batch_size=128)
    best = best_by_retraining(score)
    sides = gradients(rows)
    counts = np.bincount(rows.owners)
    results: dict[str, Result] = {}

    def judge(name: str, values: np.ndarray, bought: np.ndarray, start: float) -> None:
        seconds = time.process_time() - start
        both = np.stack([bought, best])
        loss, held_out = -score(both), -test(both)
        ranks: Any = stats.spearmanr(values, truth.values) if np.ptp(values) else None
        results[name] = Result(
            float("nan") if ranks is None else float(ranks.statistic),
            loss[0] / loss[1] - 1,
            held_out[0] / held_out[1] - 1,
            int(np.sum(bought[:COPIES] & bought[HONEST : HONEST + COPIES])),
            seconds,
        )

    def first(values: np.ndarray) -> np.ndarray:
        return np.isin(np.arange(N), np.argsort(-values, kind="stable")[:BUY])

    def matched(curvature: np.ndarray | None, l2: float = 1e-3) -> Any:
        return value_datasets(
            sides.owners,
            sides.targets,
            counts=counts,
            budget=BUY,
            tol=0.0,
            curvature=curvature,
            l2=l2,
        )

    for name, curvature in (
        *((f"matching, Hessian + {d:g}", sides.damped(d)) for d in SHOWN),
        ("matching", None),
    ):
        start = time.process_time()
        result = matched(curvature)
        judge(name, result.shapley, result.bought, start)
    start = time.process_time()
    listed = np.stack(
        [matched(sides.damped(d), l2).bought for d in DAMPINGS for l2 in PENALTIES]
    )
    kept = listed[np.argmax(score(listed))]
    judge("matching, short list", np.ones(N), kept, start)
    newton = np.linalg.solve(sides.damped(), sides.targets.mean(axis=0))
    for name, step in (
        ("alignment, Hessian", newton),
        ("alignment", sides.targets.mean(axis=0)),
    ):
        start = time.process_time()
        aligned = sides.owners @ step
        judge(name, aligned, first(aligned), start)
    start = time.process_time()
    values = np.asarray(truth.values)
    judge("retrained Shapley values", values, first(values), start)
    judge("all owners", np.ones(N), np.ones(N, bool), start)
    judge("none", np.ones(N), np.zeros(N, bool), start)
    return results


def as_text(runs: dict[str, list[dict[str, Result]]], trainings: int) -> str:
    """Return a table for each source, a line for each method."""
    deals = len(next(iter(runs.values())))
    lines = [
        "# Owners' values by matching, against retraining",
        "",
        f"Made by `python -m benchmarks.owners --write` ({deals} deals, truth by "
        f"{trainings} trainings). {N} owners of digits or posts, {COPIES} of them near "
        f"copies and {NOISE} with random labels. Correlation: Spearman's, of values "
        "with Shapley values by retraining, its mean and its range over deals. Loss: "
        f"log loss after a purchase of {BUY} owners, in excess of that of the best "
        "purchase that a search by retraining reaches, of the validation rows by "
        "which all methods choose, and of test rows. Copies: pairs of which both are "
        "bought, all deals together. CPU seconds: the median over deals, and the most.",
    ]
    for source_, of_source in runs.items():
        lines += ["", f"## {source_.capitalize()}", ""]
        lines += [
            "| method | correlation | loss | on test rows | copies | CPU s |",
            "|---|---|---|---|---|---|",
            *(_line(name, [run[name] for run in of_source]) for name in of_source[0]),
        ]
    return "\n".join([*lines, ""])


def _line(name: str, of: list[Result]) -> str:
    ranks, seconds = [r.correlation for r in of], [r.seconds for r in of]
    known = np.isfinite(ranks).all() and name != "retrained Shapley values"
    cell = f"{np.mean(ranks):.2f} ({min(ranks):.2f} to {max(ranks):.2f})"
    time_ = f"{np.median(seconds):.2g}, {max(seconds):.2g}"
    return (
        f"| {name} | {cell if known else ''} | {_excess([r.loss for r in of])} | "
        f"{_excess([r.test for r in of])} | {sum(r.pairs for r in of)} | "
        f"{time_ if known or 'list' in name else ''} |"
    )


def _excess(shares: Sequence[float]) -> str:
    return f"{np.mean(shares):+.1%} ({min(shares):+.1%} to {max(shares):+.1%})"


if __name__ == "__main__":
    raise SystemExit(main())
