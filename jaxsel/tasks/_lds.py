"""The linear datamodelling score: do sums of attributions follow retrained models?"""

from __future__ import annotations

import dataclasses
import itertools

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import as_array, check_count, check_finite, check_numeric
from jaxsel._results.types import Values

from ._subsets import SubsetRuns


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Lds:
    """Agreement of attributions with retraining on subsets.

    Attributes:
        mean: Mean over targets of Spearman's correlation.
        stderr_targets: Standard error of the mean over targets, with the subsets fixed;
            NaN for one target.
        stderr_subsets: The same over subsets, with the targets fixed: the standard
            deviation of the mean over bootstrap samples of the subsets.
        by_target: Spearman's correlation for each target, `[t]`.
        ceiling: The most that attributions can be expected to reach, since the measured
            outputs depend on the seed of each run as well: the root of the reliability
            of their means. None with one run a subset or with `same_seed`, where runs
            are what the attributions predict.
        agreement: Mean over targets of Spearman's correlation between two runs a
            subset, over all pairs of runs; None where `ceiling` is.
    """

    mean: float
    stderr_targets: float
    stderr_subsets: float
    by_target: np.ndarray
    ceiling: float | None
    agreement: float | None

    def __repr__(self) -> str:
        ceiling = "" if self.ceiling is None else f", ceiling={self.ceiling:.3f}"
        return (
            f"Lds(mean={self.mean:.3f}, stderr_targets={self.stderr_targets:.3f}, "
            f"stderr_subsets={self.stderr_subsets:.3f}, "
            f"{len(self.by_target)} targets{ceiling})"
        )


def lds(
    values: Values | npt.ArrayLike,
    runs: SubsetRuns,
    *,
    key: jax.Array,
    resamples: int = 200,
) -> Lds:
    """Compute the linear datamodelling score of attributions or values.

    For each target, Spearman's correlation over subsets between the sum of the scores
    of a subset's samples and the measured output, the mean of its runs; then the mean
    over targets. A target whose sums, or whose outputs, are all equal counts as 0.

    Args:
        values: Scores of the training samples for each target, `[t, n]`, higher for
            samples that help, such as `knn_shapley(..., reduce=None)`; or one value a
            sample, `[n]`, which is compared with the mean output over targets.
        runs: The truth, from `retrain_subsets`.
        key: Key of the bootstrap.
        resamples: Bootstrap samples of the subsets.

    Returns:
        The score with both standard errors, and the ceiling.

    Costs `m n t` multiplications, and `resamples · t · m` for the standard error, in
    float64 on the host.

    Raises:
        TypeError: If `runs` is of another kind, or scores are not numeric.
        ValueError: If shapes do not fit, a score is not finite, or there are fewer than
            three subsets.

    References:
        S. M. Park et al., TRAK: attributing model behavior at scale, ICML 2023,
        definition 2.3; C. Spearman, Correlation calculated from faulty data, British
        Journal of Psychology 3 (1910) (reliability of a mean).

    Examples:
        >>> import jax
        >>> import numpy as np
        >>> from jaxsel import tasks
        >>> masks = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]], bool)
        >>> outputs = np.array([[[0.5]], [[0.7]], [[0.9]]])  # row 0 helps most
        >>> runs = tasks.SubsetRuns(masks=masks, outputs=outputs)
        >>> tasks.lds([[3.0, 2.0, 1.0]], runs, key=jax.random.key(0)).mean
        1.0
    """
    if not isinstance(runs, SubsetRuns):
        raise TypeError(f"runs must be tasks.SubsetRuns, got {runs!r}")
    check_count("resamples", resamples, minimum=2)
    m, n = runs.masks.shape
    if m < 3:
        raise ValueError(f"runs must have three subsets or more, got {m}")
    scores, outputs = scores_of(values), np.asarray(runs.outputs, np.float64)
    if scores.ndim == 1:
        scores, outputs = scores[None], outputs.mean(2, keepdims=True)
    if scores.shape != (outputs.shape[2], n):
        raise ValueError(
            "values must have shape [t, n] or [n] with t and n of the runs, "
            f"{outputs.shape[2]} and {n}, got {scores.shape}"
        )
    sums = runs.masks.astype(np.float64) @ scores.T
    truth = outputs.mean(1)
    draws = np.asarray(jax.random.randint(key, (resamples, m), 0, m))
    counts = np.stack([np.bincount(draw, minlength=m) for draw in draws])
    # The first row is of each subset once: the score itself.
    counts = np.concatenate([np.ones((1, m), counts.dtype), counts]).astype(np.float64)
    pairs = zip(sums.T, truth.T, strict=True)
    by_target = np.stack([spearman(a, b, counts) for a, b in pairs])
    means = by_target.mean(0)
    agreement = None if runs.same_seed else _agreement(outputs)
    t = len(by_target)
    return Lds(
        mean=float(means[0]),
        stderr_targets=float(by_target[:, 0].std(ddof=1) / t**0.5) if t > 1 else np.nan,
        stderr_subsets=float(means[1:].std(ddof=1)),
        by_target=by_target[:, 0],
        ceiling=None if agreement is None else ceiling(agreement, outputs.shape[1]),
        agreement=agreement,
    )


def spearman(a: np.ndarray, b: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation in each of r samples, `[r]`; 0 if one is constant.

    Args:
        a: `[m]`.
        b: `[m]`.
        counts: How often each sample has each of the m pairs, `[r, m]`.
    """
    rank_a, rank_b = (_ranks(v, counts) for v in (a, b))
    total = counts.sum(1, keepdims=True)
    rank_a, rank_b = (
        rank - (counts * rank).sum(1, keepdims=True) / total
        for rank in (rank_a, rank_b)
    )
    both = (counts * rank_a * rank_b).sum(1)
    squares = (counts * rank_a**2).sum(1) * (counts * rank_b**2).sum(1)
    return both / np.sqrt(np.where(squares > 0, squares, np.inf))


def _ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return mean ranks, `[r, m]`, of values of which each sample has some."""
    _, group = np.unique(values, return_inverse=True)
    groups = np.zeros((len(counts), group.max() + 1))
    np.add.at(groups.T, group, counts.T)
    below = np.cumsum(groups, axis=1) - groups
    return (below + (groups + 1) / 2)[:, group]


def _agreement(outputs: np.ndarray) -> float | None:
    """Return the mean correlation of two runs a subset, of outputs `[m, seeds, t]`."""
    m, seeds, _ = outputs.shape
    if seeds < 2:
        return None
    once = np.ones((1, m))
    correlations = [
        spearman(a, b, once)
        for i, j in itertools.combinations(range(seeds), 2)
        for a, b in zip(outputs[:, i].T, outputs[:, j].T, strict=True)
    ]
    return float(np.mean(correlations))


def ceiling(agreement: float, seeds: int) -> float:
    """Return the root of the reliability of a mean of runs, by Spearman and Brown."""
    agreement = max(agreement, 0.0)
    return (seeds * agreement / (1 + (seeds - 1) * agreement)) ** 0.5


def scores_of(values: Values | npt.ArrayLike) -> np.ndarray:
    """Return scores `[t, n]` or `[n]` in float64, checked."""
    array = as_array("values", values.values if isinstance(values, Values) else values)
    check_numeric("values", array)
    if array.ndim not in (1, 2):
        raise ValueError(f"values must have shape [t, n] or [n], got {array.shape}")
    check_finite("values", array)
    return np.asarray(array, np.float64)
