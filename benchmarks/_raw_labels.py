"""Tables in their own units for the search for wrong labels, and its peer's recipe."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import jaxsel
from jaxsel.labels._folds import deal_folds

FLIPPED = 0.1
SEEDS = 5
NAMES = (
    *("breast cancer", "wine", "iris", "digits", "diabetes", "timestamps", "wide"),
    *("affairs", "vote", "party", "doctor visits"),
)
OVERLAPPING = ("diabetes", "timestamps", "affairs", "vote", "party", "doctor visits")
"""Real but for `timestamps`: models agree with half to four fifths of their labels."""


@dataclasses.dataclass(frozen=True, eq=False)
class Raw:
    """A table as it comes.

    Attributes:
        x: `[n, d]` float64, in its own units.
        y: Classes from 0, `[n]`.
    """

    x: np.ndarray
    y: np.ndarray

    def flipped(self, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return labels of which a share moved to any other class, and which did."""
        rng = np.random.default_rng(seed)
        n, classes = len(self.y), int(self.y.max()) + 1
        moved = rng.random(n) < share
        other = (self.y + rng.integers(1, classes, n)) % classes
        return np.where(moved, other, self.y), moved


@functools.cache
def table(name: str) -> Raw:
    """Read or draw one of `NAMES`.

    Raises:
        ImportError: If statsmodels, which ships the surveys, is not installed.
    """
    from sklearn import datasets

    rng = np.random.default_rng(0)
    bundled = {
        "breast cancer": datasets.load_breast_cancer,
        "wine": datasets.load_wine,
        "iris": datasets.load_iris,
        "digits": datasets.load_digits,
    }
    if name in bundled:
        bunch: Any = bundled[name]()
        return Raw(bunch.data.astype(np.float64), bunch.target.astype(np.int64))
    if name == "diabetes":
        bunch = datasets.load_diabetes(scaled=False)
        return Raw(bunch.data, _terciles(bunch.target))
    if name == "timestamps":
        n = 1500
        age, time = rng.uniform(18, 80, n), 1.7e9 + rng.uniform(0, 1e6, n)
        income = np.exp(rng.normal(10, 1, n))
        score = 0.1 * (age - 50) + 2.4 * (np.log(income) - 10) + (time - 1.7005e9) / 1e5
        noise = rng.normal(size=(n, 3)) * [1e-6, 1e4, 1e9]
        y = rng.random(n) < 1 / (1 + np.exp(-score / 2))
        return Raw(np.column_stack([age, income, time, noise]), y.astype(np.int64))
    if name == "wide":
        y = rng.integers(0, 3, 900)
        x = rng.normal(size=(900, 60)) + 0.8 * np.eye(60)[y] + 0.8 * np.eye(60)[y + 3]
        return Raw(x * 10.0 ** rng.integers(-6, 7, 60), y)
    return _survey(name)


def _survey(name: str) -> Raw:
    """Return one of statsmodels' tables; questions asked in one way are columns."""
    from statsmodels import datasets  # pyright: ignore

    known: Any = datasets
    anes96, fair, randhie = known.anes96, known.fair, known.randhie
    if name == "affairs":
        frame = fair.load_pandas().data
        return Raw(
            frame.drop(columns="affairs").to_numpy(float),
            (frame["affairs"] > 0).to_numpy(np.int64),
        )
    if name == "doctor visits":
        frame = randhie.load_pandas().data.iloc[::7]
        return Raw(
            frame.drop(columns="mdvis").to_numpy(float),
            (frame["mdvis"] > 1).to_numpy(np.int64),
        )
    frame = anes96.load_pandas().data
    columns = [c for c in frame if c not in ("vote", "PID", "logpopul")]
    x = frame[columns].to_numpy(float)
    if name == "vote":
        return Raw(x, frame["vote"].to_numpy(np.int64))
    return Raw(x, np.digitize(frame["PID"], [2, 5]).astype(np.int64))


def _terciles(target: np.ndarray) -> np.ndarray:
    return np.digitize(target, np.quantile(target, [1 / 3, 2 / 3])).astype(np.int64)


def cleanlab_scores(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Score labels by cleanlab's recipe for tables, columns standardised.

    Raises:
        ImportError: If cleanlab is not installed.
    """
    from cleanlab.rank import get_label_quality_scores  # pyright: ignore
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops after 100 steps
        probs: Any = cross_val_predict(
            make_pipeline(StandardScaler(), LogisticRegression()),
            x,
            y,
            cv=PredefinedSplit(deal_folds(y)),
            method="predict_proba",
        )
    return get_label_quality_scores(y, probs, method="self_confidence")


def gains(names: Sequence[str]) -> dict[str, float]:
    """Measure the gain in AUC over cleanlab's recipe by table, averaged over seeds."""
    from sklearn.metrics import roc_auc_score

    measured: dict[str, float] = {}
    for name in names:
        raw, differences = table(name), []
        for seed in range(SEEDS):
            y, moved = raw.flipped(FLIPPED, seed)
            ours = jaxsel.find_label_errors(raw.x, y, duplicates=None).scores
            theirs = cleanlab_scores(raw.x, y)
            differences.append(
                roc_auc_score(moved, -ours) - roc_auc_score(moved, -theirs)
            )
        measured[name] = float(np.mean(differences))
    return measured


def gaussians(gap: float, share: float, seed: int, n: int = 2000) -> tuple[Any, ...]:
    """Draw two Gaussians in four dimensions, `gap` apart, and flip a share of labels.

    Returns:
        Features, labels, which were flipped, and the posterior probability of each.
    """
    rng = np.random.default_rng([seed, int(10 * gap), int(100 * share)])
    y = rng.integers(0, 2, n)
    x = rng.normal(size=(n, 4)) + gap * y[:, None] * np.eye(4)[0]
    moved = rng.random(n) < share
    flipped = np.where(moved, 1 - y, y)
    probability = 1 / (1 + np.exp(-gap * (x[:, 0] - gap / 2)))
    clean = np.where(flipped == 1, probability, 1 - probability)
    right = clean * (1 - share)
    return x, flipped, moved, 1 - right / (right + (1 - clean) * share)


def counts_off(seeds: int) -> dict[str, float]:
    """Measure the estimated number less the true one as a share of n, mean over seeds.

    Returns:
        By share of flips; `covered`, the share of intervals that hold the number; and
        `calibration`, the gap of `bin_gap` between the suspects' probabilities and
        their posteriors.
    """
    figures: dict[str, float] = {}
    covered: list[bool] = []
    stated: list[np.ndarray] = []
    true: list[np.ndarray] = []
    for share in (0.0, 0.1):
        off: list[float] = []
        for seed in range(seeds):
            x, y, moved, posterior = gaussians(1.0, share, seed)
            errors = jaxsel.find_label_errors(x, y, duplicates=None)
            off.append((errors.n_errors - moved.sum()) / len(y))
            low, high = errors.interval
            covered.append(bool(low <= moved.sum() <= high))
            stated.append(errors.wrong)
            true.append(posterior[errors.indices])
        figures[f"off, {share:.0%} flipped"] = float(np.mean(off))
    figures["covered"] = float(np.mean(covered))
    figures["calibration"] = bin_gap(np.concatenate(stated), np.concatenate(true))
    return figures


def real_gaps(names: Sequence[str], share: float = 0.05) -> Mapping[str, float]:
    """Measure the gap of `bin_gap` for suspects with known flips, by table."""
    measured: dict[str, float] = {}
    for name in names:
        raw = table(name)
        stated: list[np.ndarray] = []
        true: list[np.ndarray] = []
        for seed in range(SEEDS):
            y, moved = raw.flipped(share, seed)
            errors = jaxsel.find_label_errors(raw.x, y, duplicates=None)
            stated.append(errors.wrong)
            true.append(moved[errors.indices])
        measured[name] = bin_gap(np.concatenate(stated), np.concatenate(true))
    return measured


def bin_gap(stated: np.ndarray, true: np.ndarray, bins: int = 10) -> float:
    """Average the gap between stated and true probabilities over bins."""
    place = np.minimum((bins * stated).astype(int), bins - 1)
    gaps = [abs(stated[place == k].sum() - true[place == k].sum()) for k in range(bins)]
    return float(np.sum(gaps) / max(len(stated), 1))
