"""One look for all figures, without touching the caller's matplotlib settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import matplotlib.figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
"""Colours that people with any colour vision can tell apart, on light and on dark.

From Okabe and Ito, Color Universal Design (2008), without black and yellow, which
vanish on one of the two backgrounds.
"""

# The report replaces these, and the blue, by colours that follow the reader's light or
# dark theme.
INK = "#1a1d22"
MUTED = "#5a626e"
GRID = "#d8dce3"
MARKED = "#b34f00"  # text that stands out

_LINES = ("-", (0, (5, 1.5)), "-.", (0, (1, 1)), (0, (3, 1, 1, 1, 1, 1)), "--", "-")


@contextmanager
def style() -> Iterator[None]:
    """Return a context within which new figures have the look of the report.

    A backend that is loaded by the first of them, as in a notebook, may switch
    interactive mode on: that stays, unlike the settings of the look.
    """
    import matplotlib
    from cycler import cycler

    context = matplotlib.rc_context(
        {
            "font.size": 10,
            "font.family": "sans-serif",
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.titlecolor": INK,
            "axes.titlesize": 10,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.edgecolor": MUTED,
            "axes.linewidth": 0.8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.prop_cycle": cycler(color=COLORS) + cycler(linestyle=_LINES),
            "grid.color": GRID,
            "grid.linewidth": 0.8,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "legend.frameon": False,
            "legend.fontsize": 9,
            "lines.linewidth": 1.8,
            "lines.markersize": 4,
            "image.cmap": "gray_r",
            "image.interpolation": "nearest",
            "figure.constrained_layout.use": True,
            "figure.dpi": 100,
            "svg.fonttype": "none",
            "svg.hashsalt": "jaxsel",
        }
    )
    interactive = matplotlib.is_interactive()
    try:
        with context:
            try:
                yield
            finally:
                interactive = matplotlib.is_interactive()
    finally:
        matplotlib.interactive(interactive)


def new_figure(
    width: float = 4.4, height: float = 3.2, *, shown: bool = False
) -> matplotlib.figure.Figure:
    """Return an empty figure in the style.

    Args:
        width: In inches. Two of 4.4 stand side by side in the report, and one fills the
            screen of a phone.
        height: In inches.
        shown: Whether pyplot has it: notebooks and `plt.show` show it then, and it is
            there until it is closed. Other figures need no display and no closing.
    """
    from matplotlib.figure import Figure

    make = Figure
    if shown:
        from matplotlib.pyplot import figure as make

    with style():
        return make(figsize=(width, height), layout="constrained")
