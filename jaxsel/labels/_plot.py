"""Figures of label errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxsel.report import COLORS, new_figure, style

from ._noise_model import Confusion
from ._words import short

if TYPE_CHECKING:
    import matplotlib.axes

_BINS, _PAIRS = 40, 8


def plot_errors(
    scores: np.ndarray,
    mask: np.ndarray,
    confused: Sequence[Confusion],
    *,
    ax: Sequence[matplotlib.axes.Axes] | None = None,
) -> Sequence[matplotlib.axes.Axes]:
    """Draw the scores of suspected and other labels, and the most confused classes.

    Args:
        scores: Scores of all labels, `[n]`.
        mask: True where a label is suspected, `[n]`.
        confused: Pairs of classes, the most frequent first.
        ax: Two axes to draw on; made with pyplot if None.

    Returns:
        The two axes.

    Raises:
        ValueError: If `ax` does not hold two axes.
    """
    if ax is None:
        with style():
            ax = list(new_figure(8.8, 3.2, shown=True).subplots(1, 2))
    if len(ax) != 2:
        raise ValueError(f"ax must hold two axes, got {len(ax)}")
    left, right = ax
    parts = [scores[~mask], scores[mask]]
    with style():
        left.hist(
            parts,
            bins=np.linspace(0, 1, _BINS + 1).tolist(),
            stacked=True,
            color=[COLORS[0], COLORS[1]],
            label=["Others", "Suspected"],
        )
        left.set_yscale("symlog", linthresh=10)
        left.set_xlabel("Score of the label")
        left.set_ylabel("Labels")
        left.legend(loc="upper left")
        pairs = [pair for pair in confused[:_PAIRS] if pair.n >= 0.5][::-1]
        names = [f"{_cut(p.given)} → {_cut(p.true)}" for p in pairs]
        if not pairs:
            right.set_axis_off()
            right.text(0.5, 0.5, "No class has a wrong label", ha="center")
            return ax
        right.barh(np.arange(len(pairs)), [p.n for p in pairs], color=COLORS[1])
        right.set_yticks(np.arange(len(pairs)), names)
        right.set_xlabel("Estimated wrong labels, given → true")
        right.grid(visible=False, axis="y")
    return ax


def _cut(label: object) -> str:
    text = short(label, 16)
    return text.replace("$", r"\$")  # or it would be set as a formula
