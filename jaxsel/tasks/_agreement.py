"""Agreement of methods on the ranks of the same points."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy.stats

from jaxsel._inputs.checks import as_array, check_count, check_finite
from jaxsel._inputs.show import SHOWN
from jaxsel._results.types import Values

from ._application import check_share

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas as pd


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Smoothed:
    """Means of two values within groups of like true value.

    Attributes:
        truth: `[g]`, mean true value of each group, rising.
        values: `[g]`, mean of the other values in it.
        spearman: Rank correlation of the two; NaN if one of them is constant.
        p_value: Two-sided, of no correlation.
    """

    truth: np.ndarray
    values: np.ndarray
    spearman: float
    p_value: float

    def __repr__(self) -> str:
        return (
            f"Smoothed({len(self.truth)} groups, spearman={self.spearman:.4g}, "
            f"p_value={self.p_value:.4g})"
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Agreement:
    """Agreement of m methods on the ranks of the same points.

    Attributes:
        names: Of the methods, `[m]`.
        spearman: Spearman's rank correlation, `[m, m]`; NaN for constant values.
        kendall: Kendall's tau-b, `[m, m]`; likewise.
        top: Shares, `[t]`.
        overlap: `[t, m, m]`: the share of one method's most valuable points that are
            among the other's.
        smoothed: By name, each method after percentile smoothing by the truth; empty
            without one.
    """

    names: tuple[str, ...]
    spearman: np.ndarray
    kendall: np.ndarray
    top: tuple[float, ...]
    overlap: np.ndarray
    smoothed: Mapping[str, Smoothed]

    def __repr__(self) -> str:
        m = len(self.names)
        rows, columns = np.triu_indices(m, 1)
        pairs = [
            f"{self.names[i]}/{self.names[j]}: {self.spearman[i, j]:.4g}"
            for i, j in zip(rows[:SHOWN], columns[:SHOWN], strict=True)
        ]
        more = ", ..." if len(rows) > SHOWN else ""
        return f"Agreement({m} methods, spearman={{{', '.join(pairs)}{more}}})"

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each pair of methods and measure."""
        import pandas as pd

        measures = {"spearman": self.spearman, "kendall": self.kendall}
        for share, overlap in zip(self.top, self.overlap, strict=True):
            measures[f"top {share:.0%}"] = overlap
        rows = [
            (a, b, measure, matrix[i, j])
            for measure, matrix in measures.items()
            for i, a in enumerate(self.names)
            for j, b in enumerate(self.names)
            if i < j
        ]
        return pd.DataFrame(rows, columns=["first", "second", "measure", "value"])

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw Spearman's correlations as a matrix.

        Args:
            ax: Axes to draw on; made with pyplot if None.

        Returns:
            The axes.
        """
        from jaxsel.report import new_figure, style

        with style():
            ax = new_figure(shown=True).subplots() if ax is None else ax
            image = ax.imshow(self.spearman, cmap="RdBu", vmin=-1, vmax=1)
            place = range(len(self.names))
            ax.set_xticks(place, self.names, rotation=30, ha="right")
            ax.set_yticks(place, self.names)
            ax.grid(visible=False)
            for i in place:
                for j in place:
                    r = self.spearman[i, j]
                    # Not black and white, which a report swaps in the dark.
                    color = "0.99" if abs(r) > 0.6 else "0.1"
                    ax.text(j, i, f"{r:.2f}", ha="center", va="center", color=color)
            ax.figure.colorbar(image, ax=ax, label="Spearman's correlation")
        return ax


def rank_agreement(
    values: Mapping[str, Values | npt.ArrayLike],
    *,
    top: Sequence[float] = (0.01, 0.05, 0.1, 0.2),
    truth: str | None = None,
    bins: int = 100,
) -> Agreement:
    """Compare the ranks that several methods give to the same points.

    Args:
        values: By name, two or more values `[n]` of the same points.
        top: Shares of the points, above 0 and below 1, whose overlap is wanted. Ties
            are broken by index.
        truth: Name of the values to take for true in percentile smoothing; None for
            none.
        bins: Groups of the smoothing.

    Returns:
        Correlations, overlaps, and smoothed correlations.

    Costs a sort for each pair.

    Raises:
        ValueError: If lengths differ, there are fewer than two methods or three points,
            a value is not finite, or an option is out of range.

    References:
        Jia et al., Scalability vs. utility, CVPR 2021, appendix D.1 (smoothing).
    """
    if not isinstance(values, Mapping) or len(values) < 2:
        raise ValueError(
            "values must map two or more names to values of the same points"
        )
    arrays = {name: _vector(f"values[{name!r}]", v) for name, v in values.items()}
    lengths = {len(v) for v in arrays.values()}
    if len(lengths) > 1 or min(lengths) < 3:
        raise ValueError(
            "values must all have the same length, 3 or more, got "
            + ", ".join(f"{len(v)} ({name})" for name, v in arrays.items())
        )
    if truth is not None and truth not in arrays:
        options = ", ".join(map(repr, arrays))
        raise ValueError(f"truth must be one of {options} or None, got {truth!r}")
    names, n = tuple(arrays), lengths.pop()
    counts = [check_share("top", share, n) for share in top]
    m = len(names)
    spearman, kendall = np.eye(m), np.eye(m)
    overlap = np.ones((len(counts), m, m))
    orders = {name: np.argsort(-v, kind="stable") for name, v in arrays.items()}
    for i, a in enumerate(names):
        for j, b in enumerate(names[: i + 1]):
            pair = arrays[a], arrays[b]
            spearman[i, j] = spearman[j, i] = _correlate(scipy.stats.spearmanr, *pair)[
                0
            ]
            kendall[i, j] = kendall[j, i] = _correlate(scipy.stats.kendalltau, *pair)[0]
            for t, count in enumerate(counts):
                both = np.intersect1d(orders[a][:count], orders[b][:count])
                overlap[t, i, j] = overlap[t, j, i] = len(both) / count
    smoothed = {}
    if truth is not None:
        smoothed = {
            name: percentile_smoothing(arrays[truth], v, bins=bins)
            for name, v in arrays.items()
            if name != truth
        }
    return Agreement(
        names=names,
        spearman=spearman,
        kendall=kendall,
        top=tuple(map(float, top)),
        overlap=overlap,
        smoothed=smoothed,
    )


def percentile_smoothing(
    truth: Values | npt.ArrayLike, values: Values | npt.ArrayLike, *, bins: int = 100
) -> Smoothed:
    """Group points by the truth's percentiles, and correlate the groups' means.

    Says whether values are right for groups where they are too noisy for single points.
    A correlation of group means is much higher than that of points, so compare it only
    with other smoothed ones.

    Args:
        truth: The values to group by, `[n]`.
        values: The values to judge, `[n]`.
        bins: Intervals between percentiles; those without a point are left out. Points
            of equal true value are in one group.

    Returns:
        The groups' means with their rank correlation.

    Costs two sorts.

    Raises:
        ValueError: If lengths differ, a value is not finite, `bins` is below 2, or
            fewer than three groups have points.

    References:
        Jia et al., Scalability vs. utility, CVPR 2021, appendix D.1.
    """
    t, v = _vector("truth", truth), _vector("values", values)
    if len(t) != len(v):
        raise ValueError(
            f"truth and values must have the same length, got {len(t)} and {len(v)}"
        )
    check_count("bins", bins, minimum=2)
    edges = np.quantile(t, np.arange(1, bins) / bins)
    _, group, size = np.unique(
        np.searchsorted(edges, t, side="left"), return_inverse=True, return_counts=True
    )
    if len(size) < 3:
        raise ValueError(f"truth must fall into three or more groups, got {len(size)}")
    means = [np.bincount(group, weights=a) / size for a in (t, v)]
    spearman, p_value = _correlate(scipy.stats.spearmanr, *means)
    return Smoothed(truth=means[0], values=means[1], spearman=spearman, p_value=p_value)


def _correlate(statistic, a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return a correlation and its p-value, NaN quietly where one is constant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.stats.ConstantInputWarning)
        result = statistic(a, b)
    return float(result.statistic), float(result.pvalue)


def _vector(name: str, values: Values | npt.ArrayLike) -> np.ndarray:
    array = as_array(name, values.values if isinstance(values, Values) else values)
    vector = np.asarray(array, np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{name} must have shape [n], got {vector.shape}")
    check_finite(name, vector)
    return vector
