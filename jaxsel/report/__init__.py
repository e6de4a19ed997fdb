"""Figures, and an HTML report made of chapters that any room can add."""

from ._chapter import (
    Chapter as Chapter,
    Figure as Figure,
    Heading as Heading,
    Table as Table,
)
from ._plots import (
    plot_curves as plot_curves,
    plot_images as plot_images,
    plot_values as plot_values,
)
from ._report import Report as Report
from ._style import COLORS as COLORS, new_figure as new_figure, style as style
