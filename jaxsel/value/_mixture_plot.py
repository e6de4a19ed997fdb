"""Figures of the response to a mixture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel.report import COLORS, new_figure, style

from ._mixture_best import BestMixture
from ._mixture_design import capped

if TYPE_CHECKING:
    import matplotlib.axes

_POINTS = 41
_CURVES = 7  # as many as there are colours


def plot_response(
    best: BestMixture,
    names: Sequence[Any],
    upper: np.ndarray,
    predict: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    *,
    ax: Sequence[matplotlib.axes.Axes] | None,
) -> Sequence[matplotlib.axes.Axes]:
    """Draw the metric along weights from the best mixture, and that with intervals.

    Args:
        best: The best mixture.
        names: Names of the domains.
        upper: Upper bounds of the weights, `[D]`.
        predict: From mixtures `[m, D]` to the metric, `[m]`, and the ends of its 95 %
            intervals, `[m, 2]`.
        ax: Two axes to draw on; made with pyplot if None.
    """
    if ax is None:
        with style():
            ax = list(new_figure(8.8, 3.4, shown=True).subplots(1, 2))
    if len(ax) != 2:
        raise ValueError(f"ax must hold two axes, got {len(ax)}")
    curves, bars = ax
    names = [str(name)[:16].replace("$", r"\$") for name in names]
    order: list[int] = np.argsort(-best.mixture, kind="stable").tolist()
    with style():
        for place, domain in enumerate(order[:_CURVES]):
            points = _along(best.mixture, domain, upper)
            mean, ends = predict(points)
            x, color = points[:, domain], COLORS[place]
            curves.plot(x, mean, color=color, label=names[domain])
            low, high = ends.T
            curves.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
        curves.set_xlabel("Weight, others in the best proportions")
        curves.set_ylabel("Metric, with 95 % band")
        curves.legend(loc="best", fontsize=8)
        rows = np.arange(len(order))[::-1]
        bars.barh(rows, best.mixture[order], color=COLORS[0])
        low, high = best.weight_intervals[order].T
        bars.hlines(rows, low, high, color=COLORS[1], linewidth=2)
        bars.set_yticks(rows, [names[i] for i in order])
        bars.set_xlabel("Weight of the best mixture, with 95 % interval")
        bars.grid(visible=False, axis="y")
    return ax


def _along(best: np.ndarray, domain: int, upper: np.ndarray) -> np.ndarray:
    """Return mixtures with more and more of a domain, as far as bounds allow."""
    others = np.arange(len(best)) != domain
    room = upper[others].sum()
    first, last = max(0.0, 1 - float(room)), float(upper[domain])
    points = np.empty((_POINTS, len(best)))
    for i, weight in enumerate(np.linspace(first, last, _POINTS).tolist()):
        rest, bounds = best.copy() + 1e-9, upper.copy()
        rest[domain] = 0
        share = 1 - weight
        points[i] = 0
        if share > 1e-9:
            points[i] = share * capped(rest[None], np.maximum(bounds / share, 0))[0]
        points[i, domain] = weight
    return points / points.sum(1, keepdims=True)
