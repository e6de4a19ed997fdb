"""Label errors where cleanlab gets our search for the penalty, too.

`python -m benchmarks.searched digits tweets --seeds 3` prints the area under the ROC
curve, and the average precision, of three rankings of a data set with a tenth of its
labels flipped: jaxsel's default; cleanlab's on scikit-learn's logistic regression as
it comes, which is what `bench_labels` compares with; and cleanlab's on jaxsel's
logistic regression, with the penalty of the greatest held-out likelihood, on the same
folds. What is left between the first and the last comes from the models that jaxsel
pools.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import jaxsel
from jaxsel.labels._folds import deal_folds
from jaxsel.labels._logistic import tuned_logistic

from . import _labels

TABLES = ("adult",)
"""Data sets of columns in different units, which are standardised first."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the means of each data set over seeds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.searched")
    parser.add_argument("data", nargs="+", help="prepared data sets, such as digits")
    parser.add_argument("--seeds", type=int, default=3, help="draws of flips (3)")
    args = parser.parse_args(argv)
    for name in args.data:
        task = _labels.load(name)
        scale = name in TABLES
        runs = [rankings(task, seed, scale=scale) for seed in range(args.seeds)]
        for ranking in runs[0]:
            area, precision = np.mean([run[ranking] for run in runs], axis=0)
            print(f"{name}, {ranking}: {area:.4f}, {precision:.3f}", flush=True)
    return 0


def rankings(
    task: _labels.Labelled, seed: int, *, scale: bool = False
) -> dict[str, tuple[float, float]]:
    """Judge three rankings of labels by the flips of a seed.

    Args:
        task: Features and right labels.
        seed: Draws the flips.
        scale: Whether to standardise columns for the searched regression.

    Returns:
        For each ranking the area under the ROC curve and the average precision.
    """
    y, wrong = task.flipped(seed)
    scores = {
        "jaxsel": jaxsel.find_label_errors(task.x, y).scores,
        "cleanlab, default penalty": _labels.cleanlab_search(task.x, y)[0],
        "cleanlab, searched penalty": searched_scores(task, y, scale=scale),
    }
    return {name: _labels.detection(values, wrong) for name, values in scores.items()}


def searched_scores(
    task: _labels.Labelled, y: np.ndarray, *, scale: bool = False
) -> np.ndarray:
    """Rank labels by cleanlab on probabilities with jaxsel's choice of the penalty."""
    from cleanlab.rank import get_label_quality_scores  # pyright: ignore

    x = np.asarray(task.x, np.float64)
    if scale:
        spread = x.std(axis=0)
        x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
    fold = np.asarray(deal_folds(y, folds=_labels.FOLDS))
    probs = np.exp(tuned_logistic(x, y, task.n_classes, fold).log_probs)
    probs = np.asarray(probs / probs.sum(axis=1, keepdims=True), np.float64)
    return get_label_quality_scores(y, probs, method="self_confidence")


if __name__ == "__main__":
    raise SystemExit(main())
