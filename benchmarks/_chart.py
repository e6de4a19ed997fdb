"""The chart of RESULTS.md: narrow, so that its labels can be read on a telephone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._records import number
from ._summary import Line

ALT = (
    "How many times as fast as the closest peer each case is, on a logarithmic scale: "
    "the figures of the table above"
)
WIDTH_IN, LABEL_PT = 4.4, 9.5
"""The labels are 12 pixels high where the chart is 390 wide."""
# Of a palette that people with any colour vision tell apart, on white.
_COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#6b4fa0")
_INK, _FAINT = "#1f2328", "#d0d7de"


def chart(lines: Sequence[Line], path: Path) -> None:
    """Write a chart of the ratios as SVG, dark on white for any background."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    shown = [line for line in lines if line.peer is not None]
    groups = list(dict.fromkeys(line.machine for line in shown))
    height = 0.9 + 0.42 * (len(shown) + 1.2 * len(groups))
    # Letters as outlines look the same everywhere; a fixed salt, and no date, make the
    # same file of the same records.
    style: Any = {"svg.fonttype": "path", "svg.hashsalt": "jaxsel"}
    with rc_context(style | {"font.size": LABEL_PT}):
        figure = Figure(
            figsize=(WIDTH_IN, height), facecolor="white", layout="constrained"
        )
        FigureCanvasSVG(figure)
        _draw(figure.subplots(), shown, groups)
        figure.savefig(path, metadata={"Date": None})


def _draw(axes: Any, shown: Sequence[Line], groups: Sequence[str]) -> None:
    most = max((line.ratios[2] for line in shown), default=1.0)
    least = min((line.ratios[0] for line in shown), default=1.0)
    start, y = min(least, 1) / 1.3, 0.0
    for group, colour in zip(groups, _COLOURS * len(groups), strict=False):
        axes.text(start, y, group, va="center", color=colour, weight="bold")
        for line in (line for line in shown if line.machine == group):
            y += 1
            low, middle, high = line.ratios
            axes.plot([1, middle], [y, y], color=colour, lw=5, alpha=0.3,
                      solid_capstyle="butt", zorder=1)  # fmt: skip
            axes.plot([low, high], [y, y], color=colour, lw=2, zorder=2)
            axes.plot(middle, y, "o", color=colour, ms=5, zorder=3)
            peer = (line.peer or "").rsplit(", ", 1)[0]
            # Above its bar, so that no column of names takes half of the width.
            text = f"{line.bench} {line.case}{line.marks}: {number(middle)} × {peer}"
            axes.text(start, y - 0.42, text, va="center", color=_INK)
        y += 1.4
    axes.set_xscale("log")
    axes.set_xlim(start, max(most, 2) * 1.5)
    axes.set_ylim(y - 0.8, -0.7)
    axes.axvline(1, color=_INK, lw=1, zorder=0)
    axes.set_yticks([])
    axes.tick_params(which="both", length=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.grid(axis="x", color=_FAINT, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(
        "times as fast as the closest peer\n(line: quartiles of the rounds)"
    )
    for side in axes.spines.values():
        side.set_visible(False)
