"""Figures of filtering by loss: histograms with the threshold, rounds to a goal."""

from __future__ import annotations

import numpy as np

from jaxsel.report import (
    COLORS,
    Figure,
    new_figure,
    style,
)

from .thresholds import BINS


def first_rounds(accuracy: np.ndarray, goal: np.ndarray, rounds: np.ndarray) -> str:
    """Return the median rounds to a goal, over S, of accuracies `[S, T]`."""
    reached = accuracy >= goal[:, None]
    first = np.where(reached.any(1), rounds[reached.argmax(1)], np.inf)
    middle = np.median(first)
    return f"{middle:.0f}" if np.isfinite(middle) else f"not in {rounds[-1]}"


def loss_figure(
    histograms: np.ndarray,
    values: np.ndarray,
    band: np.ndarray,
    *,
    removed: float,
    kept: float,
    what: str,
) -> Figure:
    """Draw losses of one seed, and the cross-fitted threshold with its band."""
    value, (low, high) = values[1], band
    figure = new_figure()
    with style():
        ax = figure.subplots()
        for i, name in enumerate(("benchmark", "clean", "noise")):
            share = histograms[i] / histograms[i].sum()
            ax.stairs(share, BINS, color=COLORS[i], label=name, linewidth=1.6)
        ax.axvspan(low, high, color=COLORS[3], alpha=0.25, linewidth=0)
        ax.axvline(value, color=COLORS[3], label="threshold")
        ax.set(xscale="log", xlabel="Loss", ylabel="Share of samples")
        ax.legend(loc="upper left")
    return Figure(
        plot=figure,
        caption=f"{what}: losses of the first seed, and the cross-fitted threshold "
        "with the middle 90% of its bootstrap replicates.",
        alt=f"{kept:.0%} of the clean and {1 - removed:.0%} of the noisy samples lie "
        f"below the threshold, {value:.3g}; its band is {low:.3g} to {high:.3g}.",
    )
